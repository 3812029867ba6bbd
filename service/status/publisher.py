"""The publisher's status file: `sinks.json` in the state directory, read by the sidecar and the driver.

It does not decide what is published: the positions are in Kafka. While the publisher is behind, the driver keeps that
many more epochs, up to a bound. If the file is lost or torn, the driver does not keep these extra epochs, and the
status lacks a line.
"""

from __future__ import annotations

import msgspec

from vernier.service.status.status_file import StatusFile
from vernier.storage.blob.blob import Blob

FILE = "sinks.json"
FENCED = 4
"""The exit status of a publisher that another one has fenced. If it were started again it would fence the other in
turn, and so on."""


class Sink(msgspec.Struct, frozen=True):
    """The status of one sink. topic: the topic, or another place. frontier: the view's changes before this time are
    there; None: none yet. problem: why it does not advance. view: the view, if the sink has another name."""

    topic: str
    format: str
    frontier: int | None
    messages: dict[str, int] = {}
    problem: str | None = None
    view: str = ""


class PublisherStatus(msgspec.Struct, frozen=True):
    """The publisher's status at one moment. epoch: all views have been published up to this epoch. at_ns: wall clock.
    problem: why nothing is published at all."""

    epoch: int
    at_ns: int
    sinks: dict[str, Sink] = {}
    problem: str | None = None


_FILE = StatusFile(FILE, PublisherStatus)


def write(state: Blob, status: PublisherStatus) -> None:
    """Write the file. Raises StorageErrors."""
    _FILE.write(state, status)


def delete(state: Blob) -> None:
    """Delete the file, because nothing is published."""
    _FILE.delete(state)


def read(state: Blob) -> PublisherStatus | None:
    """The publisher's status; None if there is none or it cannot be read."""
    return _FILE.read(state)
