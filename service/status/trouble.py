"""Trouble: what keeps the pipeline from making its next epoch, written by the driver and read by the sidecar.

The driver writes `trouble.json` into the state directory when an epoch has failed for good, and deletes it with the
next commit. The file only informs. Whether an epoch exists is decided by manifests alone, so a file that is lost, torn
or left behind only makes the status wrong.
"""

from __future__ import annotations

import logging

import msgspec

from vernier.service.status.status_file import StatusFile
from vernier.storage.blob.blob import Blob
from vernier.storage.errors import StorageError

FILE = "trouble.json"
STOPPED = 3
"""The exit status of a driver that stops because another process would fail in the same way."""

_log = logging.getLogger("vernier.trouble")


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch that cannot be made. reason: the last attempt's error text. program: the program or its data are at
    fault, not the machine. tries: the number of failures in a row. since_ns: when it first failed. stopped: the driver
    has ended and nothing tries again; the reason then says what to do, and `why` says, for a program, why the driver
    stopped. running: the epoch has not failed and goes on; the reason is what it waits for."""

    epoch: int
    reason: str
    program: bool
    tries: int
    since_ns: int
    stopped: bool = False
    why: str = "epoch.on_error is stop"
    running: bool = False

    def describe(self) -> str:
        """A one-line description for people."""
        if self.running:
            return f"epoch {self.epoch} has not finished: {self.reason}"
        where = "in the program" if self.program else "in the service"
        times = "once" if self.tries == 1 else f"{self.tries} times"
        then = "the driver tries again"
        if self.stopped:
            then = f"the driver has stopped ({self.why})" if self.program else "the driver has stopped"
        return f"epoch {self.epoch} failed {times} {where} ({self.reason}); {then}"


_FILE = StatusFile(FILE, Trouble)


class Troubles:
    """The driver's access to the file. A single object writes and deletes it, so every trouble ends with the next
    commit, whichever part of the driver reported it. Neither method raises."""

    def __init__(self, state: Blob) -> None:
        self._state = state
        self._written = True  # an earlier process may have left a file

    def report(self, trouble: Trouble) -> None:
        """Write the file. A failure to do so must not hide the trouble itself."""
        self._written = True
        try:
            write(self._state, trouble)
        except StorageError as problem:
            _log.warning("cannot write the trouble into the state directory: %s", problem)

    def clear(self) -> None:
        """An epoch was committed: delete the file. If that fails now, a later commit tries again."""
        if not self._written:
            return
        try:
            delete(self._state)
        except StorageError as problem:
            _log.warning("cannot delete the trouble in the state directory yet: %s", problem)
            return
        self._written = False


def write(state: Blob, trouble: Trouble) -> None:
    """Write the file. Raises StorageErrors."""
    _FILE.write(state, trouble)


def delete(state: Blob) -> None:
    """Delete the file."""
    _FILE.delete(state)


def read(state: Blob) -> Trouble | None:
    """The trouble that the driver has reported; None if all is well or the file cannot be read."""
    return _FILE.read(state)
