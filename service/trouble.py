"""Trouble: what keeps the pipeline from making its next epoch, told by the driver and read by the sidecar.

The driver leaves `trouble.json` in the state directory when an epoch fails for good, and takes it away with the next
commit. The file tells and decides nothing: whether an epoch exists is the manifests' business alone, so a file that is
lost, torn or left behind costs a message.
"""

from __future__ import annotations

import msgspec

from service.word import Word
from storage.blob import Blob

FILE = "trouble.json"
STOPPED = 3
"""Exit status of a driver that stops as the settings say: another process would fail in the same way."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch that cannot be made. reason: the last attempt's own words. program: the program or its data are at
    fault, not the machine. tries: how often in a row. since_ns: when it first failed. stopped: nobody tries again."""

    epoch: int
    reason: str
    program: bool
    tries: int
    since_ns: int
    stopped: bool = False

    def describe(self) -> str:
        """One line for a person."""
        whose = "the program cannot make" if self.program else "the service cannot make"
        times = "once" if self.tries == 1 else f"{self.tries} times"
        then = "it has stopped (epoch.on_error is stop)" if self.stopped else "it tries again"
        return f"{whose} epoch {self.epoch}: it failed {times} ({self.reason}); {then}"


_WORD = Word(FILE, Trouble)


def tell(state: Blob, trouble: Trouble) -> None:
    """Leave word of it in the state directory. Raises StorageErrors."""
    _WORD.leave(state, trouble)


def clear(state: Blob) -> None:
    """It is over."""
    _WORD.forget(state)


def read(state: Blob) -> Trouble | None:
    """What the driver has left; None when all is well, or nobody can read it."""
    return _WORD.read(state)
