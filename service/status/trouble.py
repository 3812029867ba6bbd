"""Trouble: what keeps the pipeline from making its next epoch, told by the driver and read by the sidecar.

The driver leaves `trouble.json` in the state directory when an epoch fails for good, and takes it away with the next
commit. The file tells and decides nothing: whether an epoch exists is the manifests' business alone, so a file that is
lost, torn or left behind costs a message.
"""

from __future__ import annotations

import logging

import msgspec

from vernier.service.status.json_file import Word
from vernier.storage.blob.blob import Blob
from vernier.storage.errors import StorageError

FILE = "trouble.json"
STOPPED = 3
"""Exit status of a driver that stops because another process would fail in the same way."""

_log = logging.getLogger("vernier.trouble")


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch that cannot be made. reason: the last attempt's own words. program: the program or its data are at
    fault, not the machine. tries: how often in a row. since_ns: when it first failed. stopped: the driver has ended and
    nothing tries again; the reason then names the way out, and `why` says, for a program, what it stopped for.
    running: the epoch has not failed, it goes on; the reason is what it waits for."""

    epoch: int
    reason: str
    program: bool
    tries: int
    since_ns: int
    stopped: bool = False
    why: str = "epoch.on_error is stop"
    running: bool = False

    def describe(self) -> str:
        """One line for a person."""
        if self.running:
            return f"epoch {self.epoch} is not done: {self.reason}"
        whose = "the program cannot make" if self.program else "the service cannot make"
        times = "once" if self.tries == 1 else f"{self.tries} times"
        then = "it tries again"
        if self.stopped:
            then = f"it has stopped ({self.why})" if self.program else "it has stopped"
        return f"{whose} epoch {self.epoch}: it failed {times} ({self.reason}); {then}"


_WORD = Word(FILE, Trouble)


class Troubles:
    """The driver's end of the file: one object writes it and takes it back, so that every trouble it has told ends with
    the next commit, whichever part of the driver told it. Neither call raises."""

    def __init__(self, state: Blob) -> None:
        self._state = state
        self._standing = True  # an earlier process may have left one

    def tell(self, trouble: Trouble) -> None:
        """Write it. A failure to do so must not hide the trouble itself."""
        self._standing = True
        try:
            tell(self._state, trouble)
        except StorageError as problem:
            _log.warning("cannot tell of trouble in the state directory: %s", problem)

    def over(self) -> None:
        """An epoch was committed. A file that cannot be deleted now is deleted after a later commit."""
        if not self._standing:
            return
        try:
            clear(self._state)
        except StorageError as problem:
            _log.warning("cannot take trouble back in the state directory yet: %s", problem)
            return
        self._standing = False


def tell(state: Blob, trouble: Trouble) -> None:
    """Leave word of it in the state directory. Raises StorageErrors."""
    _WORD.leave(state, trouble)


def clear(state: Blob) -> None:
    """It is over."""
    _WORD.forget(state)


def read(state: Blob) -> Trouble | None:
    """What the driver has left; None when all is well, or nobody can read it."""
    return _WORD.read(state)
