"""Template: a process that has everything loaded and outlives its executor, so that the next one on its host starts
quickly.

Loading takes five seconds of CPU. When an executor dies, Spark starts another one, mostly on the same host, and an
epoch waits until its daemon has loaded. So the first daemon of a host forks a template when it has loaded. A later
daemon hands its files and its environment to the template, which forks a process that does the daemon's work. The
daemon itself, whose process Spark watches, waits for that process. A template ends with the last of the daemons that it
was forked from or that were forked from it, if Spark has asked one to stop, as it does when a service ends; otherwise
`IDLE_SECONDS` later. It serves processes of its own user, with the same interpreter and the same files of ours.

Only where an executor's other processes outlive it, as with Spark's own cluster manager. Linux only.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

WANTED = "VERNIER_WORKER_TEMPLATE"
"""The environment variable that is set where daemons use a template."""
IDLE_SECONDS = 60.0
_ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_FILES = 3
_SIZE = struct.Struct(">I")
_PEER = struct.Struct("3i")
_GO = b"g"
_ALSO = ("PYTHONPATH", "OMP_NUM_THREADS")
"""Environment variables, beside numba's, that modules read when they are imported."""


def borrow(name: bytes) -> int | None:
    """Let a process of the template do this daemon's work; returns its exit status once it has ended. None at once if
    there is no template that answers: nothing has happened then."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_ANSWER_SECONDS)
        try:
            link.connect(name)
            if not _is_ours(link):
                return None
            body = json.dumps({"env": dict(os.environ), "folder": os.getcwd(), "argv": sys.argv}).encode()
            socket.send_fds(link, [_SIZE.pack(len(body))], range(_FILES))
            link.sendall(body)
            (pid,) = _SIZE.unpack(_exactly(link, _SIZE.size))
            stopping = _pass_on(pid)
            link.settimeout(None)
            link.sendall(_GO)
        except (OSError, EOFError):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            return None
        status = b""
        with suppress(OSError):
            status = link.recv(1)
    if stopping():
        dismiss(name)
    return (status or b"\1")[0]


def _pass_on(pid: int) -> Callable[[], bool]:
    """Pass SIGTERM on to another process; returns whether it has come, at each call."""
    came: list[int] = []

    def stop(number: int, _frame: object) -> None:
        came.append(number)
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, stop)
    return lambda: bool(came)


def dismiss(name: bytes) -> None:
    """Spark has asked this daemon to stop: let the template end with the last of its daemons."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link, suppress(OSError):
        link.settimeout(_ANSWER_SECONDS)
        link.connect(name)
        link.sendall(_SIZE.pack(0))


def leave(name: bytes, work: Callable[[], object], idle_seconds: float = IDLE_SECONDS) -> None:
    """Fork a template from this process, unless there is one. work: what a daemon does when it has loaded."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(name)
    except OSError:
        listening.close()
        return
    listening.listen()
    daemon = os.getpid()
    if os.fork():
        listening.close()
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(_FILES):
            os.dup2(nothing, number)
        os.close(nothing)
        _serve(listening, work, daemon, idle_seconds)
    finally:
        os._exit(0)


def name_of(folder: Path) -> bytes:
    """The address of the template of this user, interpreter, environment and code. folder: of our files. One stat a
    file."""
    about = [sys.executable, sys.version, str(folder)]
    about += [f"{key}={value}" for key, value in sorted(os.environ.items()) if key in _ALSO or key.startswith("NUMBA_")]
    for room in ("service", "operators", "storage"):
        for file in sorted((folder / room).rglob("*.py")):
            found = file.stat()
            about.append(f"{file} {found.st_size} {found.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(about).encode()).hexdigest()[:32]
    # A name without a file, which ends with its process. Each network namespace has names of its own.
    return f"\0vernier-{os.getuid()}-{digest}".encode()


def _serve(listening: socket.socket, work: Callable[[], object], daemon: int, idle_seconds: float) -> None:
    children: set[int] = set()
    used, patience = time.monotonic(), idle_seconds
    listening.settimeout(_LOOK_SECONDS)
    while True:
        for child in list(children):
            if os.waitpid(child, os.WNOHANG)[0]:
                children.discard(child)
        now = time.monotonic()
        if children or os.getppid() == daemon:
            used = now
        elif now - used > patience:
            return
        with suppress(OSError, EOFError, ValueError):
            link, _ = listening.accept()
            with link:
                child = _lend(listening, link, work)
            patience = idle_seconds if child else 0.0
            children |= {child} if child else set()


def _lend(listening: socket.socket, link: socket.socket, work: Callable[[], object]) -> int:
    """Fork a process for the daemon that has connected; returns 0 if it wants none, but says that it stops."""
    link.settimeout(_ANSWER_SECONDS)
    if not _is_ours(link):
        raise OSError("a process of another user")
    size, files, *_ = socket.recv_fds(link, _SIZE.size, _FILES)
    if size == _SIZE.pack(0):
        return 0
    try:
        if len(files) != _FILES or len(size) != _SIZE.size:
            raise EOFError
        given = json.loads(_exactly(link, _SIZE.unpack(size)[0]))
        child = os.fork()
        if not child:
            listening.close()
            _become(link, files, given, work)
    finally:
        for file in files:
            os.close(file)
    return child


def _become(link: socket.socket, files: list[int], given: dict[str, object], work: Callable[[], object]) -> None:
    """Go on as the daemon. Does not return."""
    status = 1
    try:
        link.sendall(_SIZE.pack(os.getpid()))
        if _exactly(link, len(_GO)) != _GO:
            raise EOFError
        link.settimeout(None)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        env, folder, argv = given["env"], given["folder"], given["argv"]
        assert isinstance(env, dict)
        assert isinstance(argv, list)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(str(folder))
        sys.argv = argv
        # Its workers must not keep the link open: its end says that this process has ended.
        os.register_at_fork(after_in_child=link.close)
        work()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            link.sendall(bytes([status & 0xFF]))
        os._exit(status)


def _is_ours(link: socket.socket) -> bool:
    """Whether the other end belongs to this user: it gets our environment, which has secrets."""
    _, user, _ = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(user == os.getuid())


def _exactly(link: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        if not (more := link.recv(size - len(found))):
            raise EOFError
        found += more
    return bytes(found)
