"""Stuck workers: the driver, on the same host, finds workers that cannot even report what they wait for.

A function of the program that holds the interpreter lock stops all threads of its worker. The interpreter then writes
its stack into an in-memory file (service/cluster/call_watch.py), in which the driver finds the program's line.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vernier.operators.location import is_ours_file
from vernier.service.cluster.call_watch import STACKS
from vernier.service.cluster.rendezvous import Attempt
from vernier.service.coordinator.attempt_watch import AttemptWatch

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class StuckWorkers(AttemptWatch):
    """Reads what the workers have written while an attempt runs. seconds: how long a call may take; report: called once
    with the attempt, the function with its line, and the seconds."""

    def __init__(self, attempt: Attempt, seconds: float, report: Callable[[Attempt, str, float], None]) -> None:
        self._report = report
        self._before: dict[int, int] = {}
        super().__init__(attempt, seconds)

    def look(self) -> bool:
        """Read what is new; returns whether nothing of it is a call of the program."""
        for pid in self.attempt.pids:
            written = _read(pid)
            # Text that is there at the first look belongs to an earlier attempt, or the interpreter will write it
            # again.
            before = self._before.setdefault(pid, len(written))
            frame = program_frame(written[before:])
            if frame is not None:
                call = f"{frame}, which lets nothing else of its process run, so its input cannot be shown"
                self._report(self.attempt, call, self.seconds)
                return False
        return True


def program_frame(stack: str) -> str | None:
    """The innermost frame of a written stack that is neither ours nor a library's, as "the function f at file:line"."""
    for file, line, function in _FRAME.findall(stack):
        if not is_ours_file(file) and not file.startswith(_LIBRARIES) and not file.startswith("<"):
            return f"the function {function} at {file}:{line}"
    return None


def _read(pid: int) -> str:
    """What a worker has written; empty where the system does not give access to it."""
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if STACKS in os.readlink(link):
                    return link.read_text("utf-8", "replace")
    return ""
