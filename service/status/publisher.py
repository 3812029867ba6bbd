"""What the publisher tells of itself: `sinks.json` in the state directory, read by the sidecar and the driver.

It decides nothing about what goes out: positions are in Kafka. The driver keeps as many epochs more as the publisher is
behind, up to a bound; a file that is lost or torn costs that, and a line of status.
"""

from __future__ import annotations

import msgspec

from vernier.service.status.json_file import Word
from vernier.storage.blob.blob import Blob

FILE = "sinks.json"
FENCED = 4
"""Exit status of a publisher whose place another one has taken: started again it would take it back, and so on."""


class Sink(msgspec.Struct, frozen=True):
    """A view on its way out. frontier: its changes before it are in the topic; None: none yet. problem: why it does not
    go on."""

    topic: str
    format: str
    frontier: int | None
    messages: dict[str, int] = {}
    problem: str | None = None


class Told(msgspec.Struct, frozen=True):
    """The publisher at a moment. epoch: all views have gone out up to it. at_ns: wall clock. problem: why nothing goes
    out at all."""

    epoch: int
    at_ns: int
    sinks: dict[str, Sink] = {}
    problem: str | None = None


_WORD = Word(FILE, Told)


def tell(state: Blob, told: Told) -> None:
    """Leave word of it in the state directory. Raises StorageErrors."""
    _WORD.leave(state, told)


def forget(state: Blob) -> None:
    """Nothing is published."""
    _WORD.forget(state)


def read(state: Blob) -> Told | None:
    """What the publisher has left; None where there is none, or nobody can read it."""
    return _WORD.read(state)
