"""Surplus: worker processes that an executor has beyond its tasks.

Spark gives tasks to its idle processes in turn, so with one too many another process works for a shard in each epoch,
and opens it from files. There is one after an executor has done the work of another one, and with fewer workers than
before. The driver ends those of its own host; on others, the worker that has the task does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Sequence

import psutil

GONE_SECONDS = 0.5
"""Seconds for a worker process that was ended to be gone."""

_log = logging.getLogger("vernier.workers")


def end_surplus(pids: Sequence[int]) -> None:
    """End worker processes of this host, and wait until they are gone."""
    for pid in pids:
        _log.info("worker process %d has no shard any more and ends", pid)
    _end(pids, signal.SIGTERM)


def kill(pids: Sequence[int]) -> None:
    """End worker processes of this host that do not return from what they do."""
    _end(pids, signal.SIGKILL)


def _end(pids: Sequence[int], how: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, how)
    deadline = time.monotonic() + GONE_SECONDS
    while time.monotonic() < deadline and any(map(psutil.pid_exists, pids)):
        time.sleep(0.001)


def end_siblings(pids: Sequence[int]) -> None:
    """End those of these processes that have this process's parent: others with their ids are none of Spark's."""
    for pid in pids:
        with contextlib.suppress(psutil.Error, OSError):
            if pid != os.getpid() and psutil.Process(pid).ppid() == os.getppid():
                os.kill(pid, signal.SIGTERM)
