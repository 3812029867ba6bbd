"""Facts: what workers tell each other about an epoch's messages, so that all of them compute the same frontier."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from vernier.service.ingest.deduplication import Copies, Counted, Statement, keys_of, marks_of, pack, unpack
from vernier.service.ingest.formats.messages import Parsed, Refused
from vernier.service.ingest.records import Messages
from vernier.service.ingest.stash import HeldUpdates
from vernier.service.ingest.watermarks import Fact, peak_of
from vernier.storage.errors import InvariantError
from vernier.storage.updates import MIN_TIME

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class PartitionTwice(InvariantError):
    """Rows of one Kafka partition reached two workers, so their order is unknown."""

    message = "partition {partition} of topic {topic} reached two workers; rows must be spread by (topic, partition)"
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class DecodedTopic:
    """The decoded messages of one topic; parsed is None if no source reads the topic."""

    messages: Messages
    parsed: Parsed | None
    refused: Sequence[Refused]

    def updates_of(self, run: slice) -> slice:
        """The slice of the updates that belong to a run of messages."""
        if self.parsed is None:
            return slice(0, 0)
        start, stop = np.searchsorted(self.parsed.message, [run.start, run.stop])
        return slice(int(start), int(stop))


class Facts(msgspec.Struct, frozen=True):
    """The facts of one worker, by topic and partition. held: the marks of its held updates of counted partitions
    (service/ingest/deduplication.py); most services have none."""

    partitions: dict[str, dict[int, Fact]]
    held: dict[str, dict[int, str]]

    def encode(self) -> bytes:
        """The facts as bytes for the other workers."""
        return _encode(self)

    @staticmethod
    def decode(data: bytes) -> "Facts":
        """The facts that another worker has encoded."""
        return _decode(data)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Facts).decode


@dataclass(frozen=True, slots=True)
class Merged:
    """The facts of all workers: fresh[topic][partition], and the marks of held updates, one matrix per worker."""

    fresh: Mapping[str, Mapping[int, Fact]]
    held: Mapping[str, Mapping[int, Sequence[Ints]]]


def facts_of(batch: DecodedTopic, counted: Mapping[int, Counted]) -> dict[int, Fact]:
    """The facts of a topic's partitions; counted: the partitions with counted progress."""
    messages, parsed = batch.messages, batch.parsed
    facts = {}
    for partition, run in messages.runs():
        fact = Fact(next=int(messages.offset[run.stop - 1]) + 1, ms=int(messages.ms[run].max()))
        if parsed is not None:
            own = batch.updates_of(run)
            progress = [entry for entry in parsed.progress if run.start <= entry.message < run.stop]
            statements = [
                Statement(entry.lower, entry.upper, entry.counts) for entry in progress if entry.counts is not None
            ]
            fact = msgspec.structs.replace(
                fact,
                updates=own.stop - own.start,
                peak=peak_of(messages.ms[parsed.message[own]]),
                newest=int(parsed.time[own].max(initial=MIN_TIME)),
                promise=max((entry.upper for entry in progress if entry.counts is None), default=MIN_TIME),
                statements=tuple(statements),
                marks=pack(_fresh_marks(messages, parsed, own)) if partition in counted else "",
            )
        facts[partition] = fact
    return facts


def _fresh_marks(messages: Messages, parsed: Parsed, own: slice) -> Ints:
    """The marks of a run of updates, in log order."""
    offset = messages.offset
    marks = np.empty((own.stop - own.start, 4), np.int64)
    for number, name in enumerate(parsed.names):
        mine = np.flatnonzero(parsed.source == number)
        part = slice(*np.searchsorted(mine, [own.start, own.stop]).tolist())
        at = mine[part]
        found = marks_of(name, parsed.words[name][part], parsed.time[at], parsed.diff[at], offset[parsed.message[at]])
        marks[at - own.start] = found
    return marks


def held_marks(name: str, batches: Iterable[HeldUpdates], partition: int, complete: int) -> Ints:
    """The marks of a source's held updates of one partition that are not complete yet."""
    parts = [np.empty((0, 4), np.int64)]
    for batch in batches:
        mine = np.flatnonzero((batch.origin[:, 0] == partition) & (batch.time >= complete))
        updates = batch.updates.take(mine)
        parts.append(marks_of(name, updates.rows, updates.time, updates.diff, batch.origin[mine, 1]))
    return np.concatenate(parts)


def drop_copies(
    name: str, batches: Iterable[HeldUpdates], partition: int, copies: Copies
) -> tuple[list[HeldUpdates], int]:
    """A source's held batches without second copies, and the number of copies removed. Of each update, the copy with
    the least offset stays."""
    kept: set[bytes] = set()
    result, dropped = [], 0
    for batch in batches:
        mine = np.flatnonzero(batch.origin[:, 0] == partition)
        updates = batch.updates.take(mine)
        marks = marks_of(name, updates.rows, updates.time, updates.diff, batch.origin[mine, 1])
        unwanted = np.zeros(len(batch), np.bool_)
        for at, key, offset in zip(mine.tolist(), keys_of(marks), marks[:, 3].tolist()):
            if key in copies.held:
                unwanted[at] = copies.held[key] != offset or key in kept
                kept.add(key)
        dropped += int(np.count_nonzero(unwanted))
        result.append(batch.drop(unwanted))
    return result, dropped


def merge_facts(facts: Iterable[Facts]) -> Merged:
    """Combine the facts of all workers, in any order. Raises PartitionTwice."""
    fresh: dict[str, dict[int, Fact]] = {}
    held: dict[str, dict[int, list[Ints]]] = {}
    for worker in facts:
        for topic, own in worker.partitions.items():
            for partition, fact in own.items():
                if partition in fresh.setdefault(topic, {}):
                    raise PartitionTwice(topic=topic, partition=partition)
                fresh[topic][partition] = fact
        for topic, marks in worker.held.items():
            for partition, text in marks.items():
                held.setdefault(topic, {}).setdefault(partition, []).append(unpack(text))
    return Merged(fresh, held)
