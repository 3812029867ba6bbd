"""`python -m vernier.service.ask.worker MEMORY_MB`: the process that answers questions. Its standard input is the
socket to its sidecar, and it ends with that.

Limits around DuckDB's own: a process that holds much more memory than its tables and questions may take ends itself,
the kernel ends it before others when memory is short, it runs at low priority, and its environment has no secrets.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import resource
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn, get_args

import pyarrow as pa

from vernier.service.ask.database import Database
from vernier.service.ask.errors import LEAVES, Abandoned
from vernier.service.ask.frames import Channel, Closed, Done, Form, Part, Read, Reads, Ready, Refused, Run, Wanted
from vernier.storage.errors import CallerError
from vernier.storage.memory import resident_bytes

_BESIDE_MB = 768
"""Memory of the process besides DuckDB's: the interpreter, Arrow, an encoded answer."""
_RESERVED_MB = 4_096
"""Address space that DuckDB reserves and does not use, which RLIMIT_DATA counts."""
_LOOK_MS = 250
_START_SECONDS = 3_600.0
"""No limit: the sidecar ends a process that takes too long to start."""
_NICE = 5
_log = logging.getLogger("vernier.ask")


class Parts(io.RawIOBase):
    """The bytes of a table as they arrive, as a file. failed: the sidecar gave up."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._rest, self.ended, self.failed = channel, memoryview(b""), False, False

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if not len(self._rest):
            self._rest = memoryview(self._next())
        size = min(len(into), len(self._rest))
        into[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def skip(self) -> None:
        """Receive what is left."""
        while self._next():
            pass

    def _next(self) -> bytes:
        if self.ended:
            return b""
        part: Part = self._channel.receive()
        self.ended, self.failed = not part.data, part.failed
        return part.data


class Worker:
    """Answers the requests of one channel."""

    def __init__(self, channel: Channel, memory_mb: int) -> None:
        self._channel, self._memory_mb = channel, memory_mb
        self._database = Database(memory_mb)
        # The first question of a process loads hundreds of modules. That belongs to the start, which has its own time,
        # or else no question would be answered where it takes longer than one may.
        for form in get_args(Form):
            self._database.run(Run("SELECT 1 AS n", 0, [], form, 1, 1_000, _START_SECONDS))

    def serve(self) -> None:
        """Answer until the sidecar is gone."""
        with contextlib.suppress(Closed):
            self._channel.send(Ready())
            while True:
                request = self._channel.receive()
                try:
                    self._channel.send(self._reads(request) if isinstance(request, Read) else self._done(request))
                except CallerError as error:
                    known = type(error).__name__ in LEAVES
                    fields = error.fields if known else {"problem": str(error)}
                    self._channel.send(Refused(type(error).__name__ if known else "QueryFailed", fields))
                except Closed:
                    raise
                except Exception as error:
                    # Its DuckDB may be in any state.
                    _log.exception("a question failed in an unexpected way")
                    self._database = Database(self._memory_mb)
                    self._channel.send(Refused("QueryFailed", {"problem": f"{type(error).__name__}: {error}"}))

    def _reads(self, request: Read) -> Reads:
        found = self._database.read(request.sql)
        return Reads(found.as_of, found.names)

    def _done(self, request: Run) -> Done:
        used = [table.number for table in request.tables]
        missing = self._database.missing(used)
        self._channel.send(Wanted(missing))
        failures: list[Exception] = []
        for number in missing:
            parts = Parts(self._channel)
            try:
                if not failures:
                    with pa.ipc.open_stream(parts) as rows:
                        self._database.keep(number, rows, used)
            except Exception as error:
                failures.append(error)
            # Whatever happened, the sidecar sends all that was wanted.
            parts.skip()
            if parts.failed:
                raise Abandoned
        if failures:
            raise failures[0]
        return self._database.run(request)


def _limit(memory_mb: int) -> None:
    """Bound this process, where the system can."""
    os.nice(_NICE)
    with contextlib.suppress(ValueError, OSError):
        bound = memory_mb + _BESIDE_MB + _RESERVED_MB << 20
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _watch(connection: socket.socket, most_mb: int) -> None:
    """End the process, also during a question, when the other end of the socket is closed or memory exceeds a bound."""
    watched = select.poll()
    watched.register(connection, 0)  # only POLLHUP and POLLERR, which are always reported
    while not watched.poll(_LOOK_MS):
        if resident_bytes() > most_mb << 20:
            _log.error("the process of questions in SQL took more than %d MB, so it ends", most_mb)
            os._exit(1)
    os._exit(0)


def main() -> NoReturn:
    """Serve until the sidecar is gone."""
    memory_mb = int(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sidecar's to handle
    _limit(memory_mb)
    connection = socket.socket(fileno=0)
    threading.Thread(target=_watch, args=(connection, memory_mb + _BESIDE_MB), name="watch", daemon=True).start()
    Worker(Channel(connection), memory_mb).serve()
    os._exit(0)  # without DuckDB's own end, which prints what it leaks


if __name__ == "__main__":
    main()
