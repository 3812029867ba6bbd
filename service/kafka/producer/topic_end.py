"""The end of a topic: how far earlier producers came, read from the marks and promises of their last messages.

Each partition is read backwards from its end, until a promise that has all rows before it. That is usually among the
last 64 records. A topic that no producer of this kind has written to is read to its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from kafka import TopicPartition

from vernier.service.kafka.producer.batches import Mark
from vernier.service.kafka.reading import CommittedReader
from vernier.storage.updates import CLOSED

_FIRST_CHUNK, _LARGEST_CHUNK = 64, 1 << 14


class _Progress(msgspec.Struct):
    upper: list[str | int]


class _Head(msgspec.Struct):
    """What tells the kinds of messages apart; the updates are skipped."""

    p: _Progress | None = None
    resolved: str | int | None = None
    input: str | None = None


@dataclass
class End:
    """The end of one partition. upper: its last promise. count: the greatest of its promises. ranges: by source, the
    numbers (from, to before) whose rows are there, too."""

    upper: int | None = None
    count: int | None = None
    ranges: dict[str | None, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def greatest(self) -> int:
        """The greatest count of any message."""
        return max([self.count or 0, *(count for ranges in self.ranges.values() for _, count in ranges)])

    def look_at(self, key: bytes | None, value: bytes | None) -> bool:
        """Look at a record; they come backwards. Returns whether no earlier one matters."""
        try:
            head = msgspec.json.decode(value or b"", type=_Head)
            upper = _upper(head)
        except (msgspec.DecodeError, ValueError):
            return False
        mark = Mark.decode(key)
        if upper is not None:
            self.upper = upper if self.upper is None else self.upper
            if mark is None:
                return False
            self.count = mark.count if self.count is None else max(mark.count, self.count)
            return not mark.more
        if mark is None:
            return False
        self.ranges.setdefault(head.input, []).append((mark.first, mark.count))
        return self.count is not None and mark.count <= self.count and not mark.more


@dataclass(frozen=True)
class TopicEnd:
    """The end of all partitions."""

    partitions: Mapping[int, End]

    @property
    def upper(self) -> int | None:
        """The greatest promise of any partition; None if there is none."""
        return max((end.upper for end in self.partitions.values() if end.upper is not None), default=None)

    @property
    def position(self) -> int:
        """All rows with smaller numbers are in the topic."""
        # A promise is sent when all rows before it are acknowledged. Partitions without one were added later.
        return min((end.count for end in self.partitions.values() if end.count is not None), default=0)

    @property
    def following(self) -> int:
        """No row with this number or a greater one is in the topic."""
        return max((end.greatest for end in self.partitions.values()), default=0)

    def has(self, partition: int, source: str | None, number: int) -> bool:
        """Whether a row is in the topic. The partition must be the one that it was sent to."""
        end = self.partitions[partition]
        if number < (self._most if end.count is None else end.count):
            return True
        # There may be gaps: of messages that are not yet acknowledged, the client may drop one and deliver the next.
        return any(first <= number < count for first, count in end.ranges.get(source, ()))

    @property
    def _most(self) -> int:
        return max((end.count for end in self.partitions.values() if end.count is not None), default=0)


class Records(Protocol):
    """Reads the records of a partition."""

    def bounds(self, part: TopicPartition) -> tuple[int, int]:
        """The first offset, and the one after the last."""

    def between(self, part: TopicPartition, start: int, stop: int) -> Sequence[Any]:
        """The records with offsets in [start, stop)."""


def read_end(reader: Records, topic: str, partitions: Iterable[int]) -> TopicEnd:
    """The end of a topic. Raises KafkaErrors."""
    return TopicEnd({one: _read(reader, TopicPartition(topic, one)) for one in partitions})


def read_topic_end(client: Mapping[str, Any], topic: str) -> TopicEnd:
    """The end of a topic as readers of committed messages see it; no partitions if there is no topic. Raises
    KafkaErrors."""
    with CommittedReader({**client, "allow_auto_create_topics": False}) as reader:
        return read_end(reader, topic, [part.partition for part in reader.partitions(topic)])


def new_topic(partitions: int) -> TopicEnd:
    """The end of a topic without messages."""
    return TopicEnd({one: End() for one in range(partitions)})


def _read(reader: Records, part: TopicPartition) -> End:
    end, size = End(), _FIRST_CHUNK
    begin, stop = reader.bounds(part)
    while stop > begin:
        start = max(begin, stop - size)
        for record in reversed(reader.between(part, start, stop)):
            if end.look_at(record.key, record.value):
                return end
        stop, size = start, min(size * 8, _LARGEST_CHUNK)
    return end


def _upper(head: _Head) -> int | None:
    if head.p is not None:
        return int(head.p.upper[0]) if head.p.upper else CLOSED
    return None if head.resolved is None else int(head.resolved)
