"""The worker processes of a sidecar: started at the first question, lent to one question at a time, replaced when they
die.

A worker ends a question at its deadline by itself; if it does not, because it is parsing or out of its mind, it is
killed a moment later. The worker that was used last is lent first, because it has the newest rows.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from vernier.service.ask.errors import LEAVES, Abandoned, BadSql, QueryFailed, QueryTimeout, SqlOff, TooManyQueries
from vernier.service.ask.frames import Channel, Closed, Done, Form, Part, Read, Reads, Refused, Run, Table, Wanted
from vernier.service.ask.tables import Contents, stream
from vernier.service.views.answers import Answers
from vernier.service.views.deadline import Deadline, TooSlow
from vernier.service.views.view import View

Result = TypeVar("Result")
Work = Callable[[Channel, Deadline, float], Result]

MOST_WAITING = 64
"""Questions that may wait for a worker."""
_GRACE_SECONDS = 2.0
"""How much longer than its deadline a question may take before its process is killed."""
_START_SECONDS = 60.0
"""How long a process may take to start; a busy machine takes seconds."""
_SHORTEST_SECONDS = 0.0005
"""What is left of a deadline that has passed, as clocks are read one after the other."""
_COMMAND = (sys.executable, "-m", "vernier.service.ask.worker")
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "XDG_CACHE_HOME")


class Starts:
    """How long processes have been starting: a clock that runs while at least one of them is. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._since = 0.0
        self._before = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """While a process starts."""
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._before += time.monotonic() - self._since

    @property
    def seconds(self) -> float:
        """What the clock shows."""
        with self._lock:
            return self._before + (time.monotonic() - self._since if self._running else 0.0)


class Worker:
    """One process and the connection to it. For one thread at a time. starts: runs while the process starts."""

    def __init__(self, memory_mb: int, starts: Starts) -> None:
        self._memory_mb, self._starts = memory_mb, starts
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None

    def talk(self, deadline: Deadline, work: Work[Result]) -> Result:
        """Call work with the channel, what is left of the deadline, and the time at which the process will be killed.
        Starting a process takes nothing off the deadline. Raises what the worker sends, QueryTimeout, and QueryFailed
        if the process dies."""
        seconds = deadline.seconds or 0.0
        try:
            channel = self._connected()
            until = time.monotonic() + seconds + _GRACE_SECONDS
            return work(channel, Deadline(int(seconds * 1000)), until)
        except TimeoutError:
            self.close()
            raise QueryTimeout(ms=deadline.ms) from None
        except Closed:
            status = self.close()
            problem = f"the process that ran it ended with status {status}; it is probably too large or nested too deep"
            raise QueryFailed(problem=problem) from None

    def close(self) -> int | None:
        """End the process; returns its exit status."""
        process, self._process = self._process, None
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        if process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            # One that is about to end by itself has a status that says why.
            return process.wait(0.2)
        process.kill()
        return process.wait()

    def _connected(self) -> Channel:
        if self._channel is None:
            with self._starts.one():
                ours, theirs = socket.socketpair()
                with theirs:
                    self._process = subprocess.Popen(
                        [*_COMMAND, str(self._memory_mb)],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                    )
                self._channel = Channel(ours)
                self._channel.receive(time.monotonic() + _START_SECONDS)
        return self._channel


class Workers:
    """Lends workers. count: how many processes; memory_mb: of each. Waiting for a worker counts towards a deadline,
    except while one of them starts."""

    def __init__(self, count: int, memory_mb: int, answers: Answers) -> None:
        self.count, self._answers = count, answers
        self._contents = Contents()
        self._starts = Starts()
        self._all = [Worker(memory_mb, self._starts) for _ in range(count)]
        self._idle = list(self._all)
        self._free = asyncio.Semaphore(count)
        self._waiting = 0
        self._pool = ThreadPoolExecutor(max(1, count), thread_name_prefix="ask")

    async def read(self, sql: str, deadline: Deadline) -> Reads:
        """Parse a question. Raises CallerError of errors.py."""
        _check_text(sql)

        def work(channel: Channel, left: Deadline, until: float) -> Any:
            channel.send(Read(sql, left.seconds or 0.0), until)
            return _answer(channel, until)

        found: Reads = await self._lend(deadline, work)
        return found

    async def run(
        self,
        sql: str,
        as_of: int,
        views: Sequence[tuple[str, View]],
        form: Form,
        max_rows: int,
        max_bytes: int,
        deadline: Deadline,
    ) -> Done:
        """Answer a question. views: each view under the name by which the question knows it. Raises CallerError of
        errors.py, and what reading the views raises."""

        def work(channel: Channel, left: Deadline, until: float) -> Done:
            by_number = {self._contents.number(view, as_of): view for _, view in views}
            tables = [Table(name, self._contents.number(view, as_of)) for name, view in views]
            channel.send(Run(sql, as_of, tables, form, max_rows, max_bytes, left.seconds or 0.0), until)
            wanted: Wanted = _answer(channel, until)
            for number in wanted.numbers:
                try:
                    for data in stream(self._answers, by_number[number], as_of, left):
                        channel.send(Part(data), until)
                except (Closed, TimeoutError):
                    raise
                except BaseException:
                    channel.send(Part(b"", failed=True), until)
                    with suppress(Abandoned):
                        _answer(channel, until)
                    raise
                channel.send(Part(b""), until)
            done: Done = _answer(channel, until)
            return done

        return await self._lend(deadline, work)

    def close(self) -> None:
        """End all processes."""
        for worker in self._all:
            worker.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _lend(self, deadline: Deadline, work: Work[Result]) -> Result:
        if not self.count:
            raise SqlOff
        if self._waiting >= MOST_WAITING:
            raise TooManyQueries(waiting=self._waiting, workers=self.count)
        self._waiting += 1
        try:
            left = await self._acquire(deadline)
        finally:
            self._waiting -= 1
        worker, loop = self._idle.pop(), asyncio.get_running_loop()

        def give_back() -> None:
            self._idle.append(worker)
            self._free.release()

        def lent() -> Result:
            try:
                return worker.talk(left, work)
            finally:
                with suppress(RuntimeError):  # the loop is closed: the sidecar ends
                    loop.call_soon_threadsafe(give_back)

        try:
            # If the request is cancelled, the thread still has the worker, so it must run to its end.
            return await asyncio.shield(loop.run_in_executor(self._pool, lent))
        except (TooSlow, QueryTimeout):
            # The worker knows only what was left of the time.
            raise QueryTimeout(ms=deadline.ms) from None

    async def _acquire(self, deadline: Deadline) -> Deadline:
        """Wait for a free worker; returns the deadline without the time in which workers started. Raises
        QueryTimeout."""
        begun, before, whole = time.monotonic(), self._starts.seconds, deadline.seconds or 0.0

        def left() -> float:
            return max(whole - (time.monotonic() - begun) + self._starts.seconds - before, 0.0)

        while True:
            try:
                async with asyncio.timeout(left()):
                    await self._free.acquire()
                return Deadline(int(left() * 1000))
            except TimeoutError:
                if left() < _SHORTEST_SECONDS:
                    raise QueryTimeout(ms=deadline.ms) from None


def _check_text(sql: str) -> None:
    """Raises BadSql for half of a character (a lone surrogate, which JSON can write and UTF-8 cannot)."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        before = sql[: error.start]
        problem = f"U+{ord(sql[error.start]):04X} is half of a character; write the whole one"
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise BadSql(problem=problem, line=line, column=column) from None


def _answer(channel: Channel, until: float) -> Any:
    """The worker's answer. Raises the error that it sends instead."""
    found = channel.receive(until)
    if isinstance(found, Refused):
        raise LEAVES[found.error](**found.fields)
    return found
