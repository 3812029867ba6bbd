"""The door: Kafka messages in, updates of an epoch out, in three pure steps.

1. `decode`, on each worker alone: messages become updates, and facts about their partitions.
2. `advance`, the same on all workers: everybody's facts and the door's state give the new input frontier.
3. `admit`, on each worker alone: updates before the frontier enter; those at or behind it are held; late ones and
   what could not be decoded become dead letters.

No step reads a clock, a file or the network, so that an attempt which is repeated gives the same. The door's state is
JSON in the manifest, constant in size for each partition. Source: docs/architecture.md, "Time at the door".
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.schema import RowType
from service.clocks import Fact, PartitionClock, Statement, advance_arrival, advance_event, peak_of, stamp
from service.deadletter import DeadLetter
from service.formats import FORMATS
from service.formats.messages import NO_TIME, Parsed, Refused
from service.gate import Gate
from service.held import Held
from service.intake import Messages, Offsets, sort_messages
from service.sources import DoorConfig, SourceConfig, by_topic
from storage.errors import InvariantError
from storage.updates import MIN_TIME, Updates

Ints = npt.NDArray[np.int64]


class PartitionTwice(InvariantError):
    """Rows of one Kafka partition reached two workers, so that nobody knows their order."""

    message = "partition {partition} of topic {topic} reached two workers; rows must be spread by (topic, partition)"
    topic: str
    partition: int


class DoorState(msgspec.Struct, frozen=True):
    """What the door remembers between epochs: the input frontier and a clock for each partition of each input topic."""

    frontier: int = MIN_TIME
    topics: dict[str, dict[str, PartitionClock]] = {}


@dataclass(frozen=True, slots=True)
class Batch:
    """The decoded messages of one topic; parsed is None where no source reads the topic."""

    messages: Messages
    parsed: Parsed | None
    refused: Sequence[Refused]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What `decode` made of a worker's rows. facts: {topic: {partition: fact}}, JSON-able. repeated: rows that were not
    new."""

    facts: dict[str, Any]
    batches: Sequence[Batch]
    repeated: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """The step from one frontier to the next. before, state: the door's states as JSON; lower, upper: their frontiers.

    offsets: the next offsets of the partitions that had records. frontiers: by topic and partition, None for one that
    gives way.
    """

    before: dict[str, Any]
    state: dict[str, Any]
    lower: int
    upper: int
    offsets: dict[str, dict[str, int]]
    frontiers: dict[str, dict[str, int | None]]


@dataclass(frozen=True, slots=True)
class Admitted:
    """An epoch's input on one worker. inputs: every source's updates with lower <= time < upper. held: every source's
    batches that still wait. received: broker ms and how many of the entering updates came with it. counters: see
    `Door.admit`."""

    inputs: dict[str, Updates]
    held: dict[str, list[Held]]
    dead: list[DeadLetter]
    counters: dict[str, Counter[str]]
    received: tuple[Ints, Ints]


class Door:
    """The three steps for one program's sources. Immutable; made from its arguments in every worker."""

    def __init__(self, sources: Mapping[str, RowType], config: DoorConfig) -> None:
        """Raises SourceMisfit when settings and program, or the sources of one topic, do not fit together."""
        self._sources, self._config = dict(sources), config
        self._topics = by_topic(sources, config)
        self._formats = {
            topic: FORMATS[config.sources[names[0]].format]({name: sources[name] for name in names})
            for topic, names in self._topics.items()
        }

    def decode(
        self,
        batches: Iterable[pa.RecordBatch],
        offsets: Offsets,
        state: Mapping[str, Any],
        held: Mapping[str, Sequence[Held]],
    ) -> Decoded:
        """Decode rows with columns key, value, topic, partition, offset, timestamp and, if any, headers.

        offsets: the next ones of the newest manifest; rows before them are skipped. state, held: what that manifest has
        of the door and of this worker's held updates. Never raises for what messages hold. O(bytes).
        """
        messages, repeated = sort_messages(batches, offsets)
        decoded = [self._decode_topic(part) for part in messages]
        facts = {batch.messages.topic: self._facts(batch) for batch in decoded}
        return Decoded(facts, decoded, repeated)

    def _decode_topic(self, messages: Messages) -> Batch:
        topic = messages.topic
        if topic == self._config.heartbeat_topic:
            return Batch(messages, None, ())
        if topic not in self._topics:
            detail = f"no source reads topic {topic}"
            return Batch(messages, None, [Refused(m, "unknown_source", detail, None) for m in range(len(messages))])
        values = messages.values
        sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
        limit, only = self._config.max_message_bytes, self._only_source(topic)
        long = np.flatnonzero(sizes > limit)
        refused = [
            Refused(m, "decode", f"the message has {sizes[m]} bytes, more than max_message_bytes, {limit}", only)
            for m in long.tolist()
        ]
        if len(long):
            # The rest keeps its numbers: a long message is decoded as an empty one, whose refusal is then replaced.
            values = pc.if_else(pa.array(sizes > limit), pa.scalar(None, values.type), values)
        parsed = self._formats[topic].decode(values)
        refused += [refusal for refusal in parsed.refused if sizes[refusal.message] <= limit]
        if self._clock(topic).clock == "event":
            parsed, timeless = _without_timeless(parsed)
            refused += timeless
        return Batch(messages, parsed, sorted(refused, key=lambda refusal: refusal.message))

    def _facts(self, batch: Batch) -> dict[str, Any]:
        """The facts of a topic's partitions, by partition."""
        messages, parsed = batch.messages, batch.parsed
        facts = {}
        for partition, run in messages.runs():
            fact = Fact(next=int(messages.offset[run.stop - 1]) + 1, ms=int(messages.ms[run].max()))
            if parsed is not None:
                own = _updates_of(parsed, run)
                progress = [entry for entry in parsed.progress if run.start <= entry.message < run.stop]
                promises = [entry.upper for entry in progress if entry.counts is None]
                fact = msgspec.structs.replace(
                    fact,
                    updates=own.stop - own.start,
                    peak=peak_of(messages.ms[parsed.message[own]]),
                    newest=int(parsed.time[own].max(initial=MIN_TIME)),
                    promise=max(promises, default=MIN_TIME),
                    statements=tuple(
                        Statement(entry.lower, entry.upper, entry.counts)
                        for entry in progress
                        if entry.counts is not None
                    ),
                )
            facts[str(partition)] = msgspec.to_builtins(fact)
        return facts

    def advance(self, state: Mapping[str, Any], facts: Iterable[Mapping[str, Any]]) -> Advanced:
        """The new state and frontier from every worker's facts, in any order. Raises PartitionTwice.

        The input frontier is the meet over the partitions of all sources but those that give way, and never goes back.
        """
        before = msgspec.convert(dict(state), DoorState)
        merged = _merge_facts(facts)
        now_ms = max((fact.ms for own in merged.values() for fact in own.values()), default=None)
        offsets = {
            topic: {str(partition): fact.next for partition, fact in sorted(own.items())}
            for topic, own in sorted(merged.items())
        }
        clocks = before.topics
        if now_ms is not None:
            clocks = {
                topic: self._advance_topic(topic, before, merged.get(topic, {}), now_ms) for topic in self._topics
            }
        reached = [clock.frontier for own in clocks.values() for clock in own.values() if not clock.idle]
        after = DoorState(max(before.frontier, min(reached, default=before.frontier)), clocks)
        frontiers = {
            topic: {partition: None if clock.idle else clock.frontier for partition, clock in own.items()}
            for topic, own in clocks.items()
        }
        as_json: dict[str, Any] = msgspec.to_builtins(after)
        return Advanced(dict(state), as_json, before.frontier, after.frontier, offsets, frontiers)

    def _advance_topic(
        self, topic: str, before: DoorState, facts: Mapping[int, Fact], now_ms: int
    ) -> dict[str, PartitionClock]:
        config = self._clock(topic)
        known = before.topics.get(topic, {})
        count = self._config.partitions.get(topic, 1)
        clocks = {}
        for partition in sorted({*range(count), *map(int, known), *facts}):
            clock = known.get(str(partition)) or PartitionClock(active_ms=now_ms)
            fact = facts.get(partition)
            if config.clock == "arrival":
                clock = advance_arrival(clock, fact, now_ms, self._config.slack_ms)
            else:
                clock = advance_event(clock, fact, now_ms, config.lateness_ns, config.idle_timeout_ms)
            clocks[str(partition)] = clock
        return clocks

    def admit(self, decoded: Decoded, held: Mapping[str, Sequence[Held]], step: Advanced) -> Admitted:
        """The updates of [lower, upper), what waits on, and the dead letters.

        counters, by source (or topic, where no source is known): `insert` and `delete` updates decoded, `bytes` of
        messages, `late_reject` and `late_advance` updates, `skewed` arrivals moved up to the frontier, `held` and
        `released` updates, `error_<reason>` messages.
        """
        counters: dict[str, Counter[str]] = {name: Counter() for name in self._sources}
        gates = {
            name: Gate(name, row_type.width, self._config.sources[name], step.lower, step.upper, counters[name])
            for name, row_type in self._sources.items()
        }
        dead: list[DeadLetter] = []
        before = msgspec.convert(step.before, DoorState)
        for batch in decoded.batches:
            refused = list(batch.refused)
            if batch.parsed is not None:
                time = self._times(batch, before)
                for name in batch.parsed.names:
                    refused += gates[name].pass_updates(batch.messages, batch.parsed, time)
            dead += _letters(batch.messages, refused, step.lower)
            _count_messages(batch, refused, counters)
        inputs, still = {}, {}
        for name, gate in gates.items():
            inputs[name], still[name] = gate.close(held.get(name, ()))
        arrived = [received for gate in gates.values() for received in gate.received]
        ms, count = np.unique(np.concatenate(arrived or [np.empty(0, np.int64)]), return_counts=True)
        return Admitted(inputs, still, dead, counters, (ms, count.astype(np.int64)))

    def _times(self, batch: Batch, before: DoorState) -> Ints:
        """The data times of a batch's updates by their topic's clock, int64[n]."""
        messages, parsed = batch.messages, batch.parsed
        if parsed is None or self._clock(messages.topic).clock == "event":
            return parsed.time if parsed is not None else np.empty(0, np.int64)
        known = before.topics.get(messages.topic, {})
        time = np.empty_like(parsed.time)
        for partition, run in messages.runs():
            own = _updates_of(parsed, run)
            clock = known.get(str(partition)) or PartitionClock(active_ms=0)
            time[own] = stamp(clock.last, messages.ms[parsed.message[own]])
        return time

    def _clock(self, topic: str) -> SourceConfig:
        """A source of the topic, to ask for what all sources of a topic share."""
        return self._config.sources[self._topics[topic][0]]

    def _only_source(self, topic: str) -> str | None:
        names = self._topics[topic]
        return names[0] if len(names) == 1 else None


def _without_timeless(parsed: Parsed) -> tuple[Parsed, list[Refused]]:
    """Refuse the messages with an update that has no time, which a source with an event clock needs."""
    bad = np.unique(parsed.message[parsed.time == NO_TIME])
    if not len(bad):
        return parsed, []
    keep = ~np.isin(parsed.message, bad)
    refused = []
    for message in bad.tolist():
        name = parsed.names[int(parsed.source[np.searchsorted(parsed.message, message)])]
        refused.append(
            Refused(message, "decode", f"the message has no time, and source {name} has an event clock", name)
        )
    words = {name: rows[keep[parsed.source == number]] for number, (name, rows) in enumerate(parsed.words.items())}
    source, message, time, diff = (column[keep] for column in (parsed.source, parsed.message, parsed.time, parsed.diff))
    return Parsed(parsed.names, source, message, time, diff, words, parsed.progress, parsed.refused), refused


def _updates_of(parsed: Parsed, run: slice) -> slice:
    """The updates of a run of messages."""
    start, stop = np.searchsorted(parsed.message, [run.start, run.stop])
    return slice(int(start), int(stop))


def _merge_facts(facts: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, Fact]]:
    merged: dict[str, dict[int, Fact]] = {}
    for worker in facts:
        for topic, own in worker.items():
            for partition, fact in msgspec.convert(own, dict[int, Fact], strict=False).items():
                if partition in merged.setdefault(topic, {}):
                    raise PartitionTwice(topic=topic, partition=partition)
                merged[topic][partition] = fact
    return merged


def _letters(messages: Messages, refused: Iterable[Refused], frontier: int) -> Iterator[DeadLetter]:
    for refusal in sorted(refused, key=lambda refusal: refusal.message):
        at = refusal.message
        key, value, headers = messages.original(at)
        partition, offset = int(messages.partition[at]), int(messages.offset[at])
        place = (messages.topic, partition, offset, frontier, refusal.source)
        yield DeadLetter(refusal.reason, refusal.detail, *place, key, value, headers)


def _count_messages(batch: Batch, refused: Iterable[Refused], counters: dict[str, Counter[str]]) -> None:
    """Count bytes by the source of a message's first update and messages refused by reason."""
    messages, parsed = batch.messages, batch.parsed
    for refusal in refused:
        name = refusal.source or messages.topic
        counters.setdefault(name, Counter())[f"error_{refusal.reason}"] += 1
    if parsed is None:
        return
    sizes = pc.fill_null(pc.binary_length(messages.values), 0).to_numpy()
    if len(parsed.names) == 1:
        counters[parsed.names[0]]["bytes"] += int(sizes.sum())
        return
    message, first = np.unique(parsed.message, return_index=True)
    totals = np.bincount(parsed.source[first], weights=sizes[message], minlength=len(parsed.names))
    for name, total in zip(parsed.names, totals.tolist()):
        counters[name]["bytes"] += int(total)
