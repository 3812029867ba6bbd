"""Errors of producers."""

from __future__ import annotations

from typing import Any, NamedTuple

from vernier.storage.errors import CallerError, StorageError

_NAMED = 3


class Unsent(NamedTuple):
    """A row that no broker has acknowledged. number: see `Producer.position`."""

    source: str | None
    row: Any
    time: int
    diff: int
    number: int


class DeliveryFailed(StorageError):
    """Kafka has not acknowledged rows. `rows` has them all; some may be in the topic nevertheless."""

    may_have_happened = True
    topic: str
    bootstrap: str
    reason: str
    rows: tuple[Unsent, ...]

    def describe(self) -> str:
        """The first rows, and the way out."""
        named = ", ".join(
            f"{'' if one.source is None else one.source + ' '}{one.row} at {one.time} ({one.diff:+d})"
            for one in self.rows[:_NAMED]
        )
        more = f" and {len(self.rows) - _NAMED} more" if len(self.rows) > _NAMED else ""
        what = f"{len(self.rows)} rows are not acknowledged: {named}{more}" if self.rows else "no row was waiting"
        return (
            f"topic {self.topic} at {self.bootstrap}: {self.reason}; {what}; "
            "a new producer with resume=True goes on where the topic ends"
        )


class CannotConnect(StorageError):
    """A producer cannot begin."""

    message = "no producer for topic {topic} at {bootstrap}: {reason}"
    topic: str
    bootstrap: str
    reason: str


class NoTopic(CallerError):
    """There is no such topic."""

    message = "there is no topic {topic} at {bootstrap}; the service creates its sources' topics when it starts"
    topic: str
    bootstrap: str


class Complete(CallerError):
    """It is promised that nothing follows in a topic."""

    message = "topic {topic} is complete: it is promised that nothing follows in it; send to another topic"
    topic: str


class LateRow(CallerError):
    """A row's time is before what was promised."""

    message = (
        "row number {number} is at {time}, before the message time {promised}, which was announced already; send rows "
        "earlier, or give the producer a lateness (or clock='rows' if rows come in the order of their times)"
    )
    number: int
    time: int
    promised: int


class BadRow(CallerError):
    """A row, its time, its diff or its place is not what the producer takes."""

    message = "{problem}"
    problem: str


class BufferFull(StorageError):
    """Kafka takes rows more slowly than they come."""

    message = (
        "{waiting} bytes of rows wait for topic {topic}, and buffer_bytes is {most}; "
        "wait and try again, or let on_full be 'block'"
    )
    waiting: int
    most: int
    topic: str


class FlushTimeout(StorageError):
    """Rows are not acknowledged yet. They are still being sent."""

    message = "after {seconds:g} s, {count} messages for topic {topic} are not acknowledged; they are still being sent"
    seconds: float
    count: int
    topic: str


class ProducerClosed(CallerError):
    """A closed producer takes no rows."""

    message = "the producer of topic {topic} is closed; make a new one"
    topic: str
