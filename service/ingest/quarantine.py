"""Quarantine: finds the messages of an epoch that kill or hang a process that decodes them.

If an attempt ended while a worker was decoding, the epoch is tried again in quarantine. There, the worker first decodes
its messages in forked children: in chunks, and if a chunk fails, one by one. A message is convicted when a child that
decodes it alone dies, hangs or raises, and a second child does so, too, with nothing else to decode. Signals from
outside, a short lack of memory, or processes that are stopped for a while do not convict a message.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import struct
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from vernier.storage.errors import InvariantError

CHUNK = 256
"""The number of messages that a child decodes together while nothing is wrong with them."""

WALL = 3
"""How long a message may sleep, as a multiple of its processor-time limit; this is for one that waits and does no
work."""

_TICK_SECONDS = 0.02
_LONGEST_TICK = 0.2
_DETAIL_BYTES = 400
_RAISED = 3
_ASLEEP = (psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP, psutil.STATUS_IDLE)
_HEAD = struct.Struct("<qq")
"""The range that the child is working on, and the number of bytes of its error text."""

Range = tuple[int, int]


class QuarantineBroken(InvariantError):
    """A child of the quarantine died before it looked at any message."""

    message = "quarantine failed: its process {how} before it decoded anything"
    how: str


@dataclass(frozen=True, slots=True)
class Failure:
    """How a child failed, and at which of its ranges."""

    at: int
    how: str


def convict(
    count: int, decode: Callable[[int, int], None], control: Callable[[], None], seconds: float
) -> dict[int, str]:
    """Which of `count` messages cannot be decoded, and what each does to its process.

    decode: decodes the messages [start, stop); it runs in a child of this process. control: decodes something harmless
    in the same way. seconds: the processor time that a message may take. Raises QuarantineBroken.
    """
    found: dict[int, str] = {}
    at = 0
    while at < count:
        chunks = [(start, min(start + CHUNK, count)) for start in range(at, count, CHUNK)]
        failure = _try(chunks, decode, control, seconds)
        if failure is None:
            break
        start, at = chunks[failure.at]
        while start < at:
            single = [(one, one + 1) for one in range(start, at)]
            if (suspected := _try(single, decode, control, seconds)) is None:
                break
            suspect = single[suspected.at]
            confirmed = _try([suspect], decode, control, seconds)
            if confirmed is not None:
                found[suspect[0]] = confirmed.how
            start = suspect[1]
    return found


def _try(
    ranges: Sequence[Range], decode: Callable[[int, int], None], control: Callable[[], None], seconds: float
) -> Failure | None:
    """Decode ranges in a child, one after another; returns None if it finished them all."""
    with mmap.mmap(-1, mmap.PAGESIZE) as shared, contextlib.ExitStack() as pipes:
        _HEAD.pack_into(shared, 0, -1, 0)
        # Nothing is ever written to this pipe: the child sees its end when this process has ended.
        theirs, mine = os.pipe()
        pipes.callback(os.close, mine)
        pid = _fork()
        if pid == 0:
            _live(shared, theirs, mine, ranges, decode, control, seconds)
        os.close(theirs)
        how = _await(pid, shared, seconds)
        at, length = _HEAD.unpack_from(shared, 0)
        if how is None:
            return None
        if length:
            how = bytes(shared[_HEAD.size : _HEAD.size + length]).decode("utf-8", "replace")
    if at < 0:
        raise QuarantineBroken(how=how)
    return Failure(at, how)


def _fork() -> int:
    with warnings.catch_warnings():
        # The worker has threads, which the child does not need. If a child hangs because of them, `control` hangs as
        # well, and no message is convicted.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _await(pid: int, shared: mmap.mmap, seconds: float) -> str | None:
    """Wait for a child to end; returns what it died of, or what it was killed for.

    The clock counts only moments in which this process runs and the child sleeps: processor time has its own limit, and
    a message is not blamed if processes are stopped or the machine is busy.
    """
    child = psutil.Process(pid)
    at, waited, last = -1, 0.0, time.monotonic()
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return _ended(status, seconds)
        time.sleep(_TICK_SECONDS)
        now = time.monotonic()
        waited, last = waited + (min(now - last, _LONGEST_TICK) if child.status() in _ASLEEP else 0.0), now
        reached = _HEAD.unpack_from(shared, 0)[0]
        if reached != at:
            at, waited = reached, 0.0
        elif waited > seconds * WALL:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"slept for more than {seconds * WALL:g} s"


def _ended(status: int, seconds: float) -> str | None:
    """What a child died of; None if it finished."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return f"took more than {seconds:g} s of processor time"
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(number).name}"
        return f"died of signal {number}"
    code = os.WEXITSTATUS(status)
    return None if code == 0 else f"ended with status {code}"


def _live(
    shared: mmap.mmap,
    parent_pipe: int,
    theirs: int,
    ranges: Sequence[Range],
    decode: Callable[[int, int], None],
    control: Callable[[], None],
    seconds: float,
) -> None:
    """The body of a child process; never returns."""
    status = _RAISED
    try:
        os.close(theirs)
        for handled in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU):
            signal.signal(handled, signal.SIG_DFL)
        # The child must not keep the worker's connections open after the worker has ended.
        os.closerange(3, parent_pipe)
        os.closerange(parent_pipe + 1, 1 << 16)
        threading.Thread(target=_watch, args=(parent_pipe,), name="parent-watch", daemon=True).start()
        _allow(seconds * WALL)
        with contextlib.suppress(Exception):
            control()
        for number, (start, stop) in enumerate(ranges):
            _HEAD.pack_into(shared, 0, number, 0)
            _allow(seconds)
            decode(start, stop)
        status = 0
    except BaseException as error:
        said = f"raised {type(error).__name__}: {error}".encode()[:_DETAIL_BYTES]
        shared[_HEAD.size : _HEAD.size + len(said)] = said
        _HEAD.pack_into(shared, 0, _HEAD.unpack_from(shared, 0)[0], len(said))
    finally:
        os._exit(status)


def _allow(seconds: float) -> None:
    """Limit this process to this much more processor time; this works even if its parent is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 1
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard != resource.RLIM_INFINITY:
        until = min(until, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


def _watch(parent_pipe: int) -> None:
    """End when the worker ends: the kernel then closes the worker's end of the pipe."""
    os.read(parent_pipe, 1)
    os._exit(1)
