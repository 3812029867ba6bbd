"""Ingestion: Kafka messages in, the updates of an epoch out, in three pure steps.

1. `decode`, on each worker alone: messages become updates, and facts about their partitions.
2. `advance`, the same on all workers: all workers' facts and the ingest state give the new input frontier.
3. `admit`, on each worker alone: updates before the new frontier enter; updates at or after it are held; late ones and
   messages that could not be decoded become dead letters.

No step reads a clock, a file or the network, so repeating an attempt gives the same result. The ingest state
(ingestion_state.py) is JSON in the manifest. Rules: docs/messages.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.checks import refuse_diffs, refuse_timeless, without_messages
from vernier.service.ingest.config import IngestionConfig, SourceConfig, SourceMisfit, by_topic
from vernier.service.ingest.counts import SourceCounts
from vernier.service.ingest.deduplication import Copies, Counted, pack
from vernier.service.ingest.formats import make_format
from vernier.service.ingest.formats.by_schema import BySchema
from vernier.service.ingest.formats.messages import NO_TIME, Format, Parsed, Refused
from vernier.service.ingest.formats.one_by_one import decode_one_by_one
from vernier.service.ingest.formats.upsert import Upserts
from vernier.service.ingest.future_times import Discard, refuse_ahead
from vernier.service.ingest.ingestion_state import IngestionState
from vernier.service.ingest.lateness import Lateness
from vernier.service.ingest.partition_report import (
    DecodedTopic,
    Facts,
    Merged,
    drop_copies,
    facts_of,
    held_marks,
    merge_facts,
)
from vernier.service.ingest.quarantine import convict
from vernier.service.ingest.records import Messages, Offsets, sort_messages
from vernier.service.ingest.rejects import DeadLetter, Refusal, clipped
from vernier.service.ingest.stash import HeldUpdates
from vernier.service.ingest.table_snapshots import Followed, follow
from vernier.service.ingest.watermarks import (
    NS_PER_MS,
    PartitionClock,
    advance_arrival,
    advance_event,
    count_updates,
    stamp,
)
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME, Updates, distinct_counts, first_of_runs

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Poisoned = Mapping[tuple[str, int, int], str]
"""Messages, by topic, partition and offset, that cannot be decoded, and what they do to a process that tries."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What `decode` made of a worker's rows. facts: for the other workers; repeated: the number of rows that were not
    new."""

    facts: Facts
    batches: Sequence[DecodedTopic]
    repeated: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """The step from one frontier to the next. before, state: the ingest states as JSON; lower, upper: their frontiers.

    offsets: the next offsets of the partitions that had records. frontiers: by topic and partition, None for an idle
    partition. copies: by topic and partition, for counted partitions. updates: by topic, the number of updates that
    came on all workers.
    """

    before: dict[str, Any]
    state: dict[str, Any]
    lower: int
    upper: int
    offsets: dict[str, dict[str, int]]
    frontiers: dict[str, dict[str, int | None]]
    copies: dict[str, dict[int, Copies]]
    updates: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admitted:
    """An epoch's input on one worker. inputs: every source's updates with lower <= time < upper. held: every source's
    batches that still wait. received: broker times in ms, and the number of entering updates with each. counts: by
    source, or by topic for messages whose source is unknown."""

    inputs: dict[str, Updates]
    held: dict[str, list[HeldUpdates]]
    dead: list[DeadLetter]
    counts: dict[str, SourceCounts]
    received: tuple[Ints, Ints]


class Ingestion:
    """The three steps of ingestion for one program's sources. Immutable; each worker makes its own from the
    arguments."""

    def __init__(self, sources: Mapping[str, RowType], config: IngestionConfig) -> None:
        """Raises SourceMisfit when settings and program, or the sources of one topic, do not fit together."""
        self._sources, self._config = dict(sources), config
        self._topics = by_topic(sources, config)
        self._formats = {topic: self._format(names) for topic, names in self._topics.items()}

    def _format(self, names: Sequence[str]) -> Format:
        """The reader of a topic's messages. names: its sources. Raises SourceMisfit."""
        mine = self._config.sources[names[0]]
        sources = {name: self._sources[name] for name in names}
        most = self._config.max_decoded_bytes
        try:
            return make_format(mine.format, sources, mine.schemas, mine.key, most, mine.registry, mine.message)
        except Refusal as refusal:
            said = refusal.detail.replace("the message has", "it has")
            raise SourceMisfit(problem=f"the message type of source {names[0]} does not fit: {said}") from refusal

    def decode(
        self,
        batches: Iterable[pa.RecordBatch],
        offsets: Offsets,
        state: Mapping[str, Any],
        held: Mapping[str, Sequence[HeldUpdates]],
        heap: Heap | None = None,
        poisoned: Poisoned = {},  # noqa: B006  (never changed)
    ) -> Decoded:
        """Decode rows with columns key, value, topic, partition, offset, timestamp and, if any, headers.

        offsets: the next ones of the newest manifest; rows before them are skipped. state, held: the ingest state of
        that manifest and this worker's held updates. heap: receives the contents of long texts. poisoned: messages that
        must not be decoded, and why. Never raises because of a message's contents. O(bytes).
        """
        messages, repeated = sort_messages(batches, offsets)
        before = msgspec.convert(dict(state), IngestionState)
        discard = None if before.discard is msgspec.UNSET else before.discard
        decoded = [self._in_time(self._decode_topic(part, heap, poisoned), discard) for part in messages]
        counted = self._counted(before)
        partitions = {batch.messages.topic: facts_of(batch, counted.get(batch.messages.topic, {})) for batch in decoded}
        for batch in decoded:
            facts = partitions[batch.messages.topic]
            for partition, _, found in self._snapshots(batch, before):
                facts[partition] = msgspec.structs.replace(facts[partition], snapshot=found.at, snapped=found.ended)
        marks = {
            topic: {partition: self._marks(topic, partition, own, held) for partition, own in counts.items()}
            for topic, counts in counted.items()
        }
        return Decoded(Facts(partitions, marks), decoded, repeated)

    def quarantine(
        self, batches: Iterable[pa.RecordBatch], offsets: Offsets, known: Poisoned, seconds: float
    ) -> dict[tuple[str, int, int], str]:
        """The messages, in addition to the known ones, that kill or hang a process that decodes them (quarantine.py).

        seconds: the processor time that one message may take. Raises QuarantineBroken.
        """
        found = {}
        for messages in sort_messages(batches, offsets)[0]:
            reader = self._formats.get(messages.topic)
            if isinstance(reader, BySchema):
                reader.prepare(messages.values)  # a registry that is away convicts no message
            for at, how in convict(len(messages), *self._trials(messages, known), seconds).items():
                found[messages.topic, int(messages.partition[at]), int(messages.offset[at])] = how
        return found

    def _trials(self, messages: Messages, known: Poisoned) -> tuple[Callable[[int, int], None], Callable[[], None]]:
        """Two functions for the quarantine: one decodes a part of the messages, the other an empty message."""

        def decode(start: int, stop: int) -> None:
            facts_of(self._decode_topic(messages.part(start, stop), Heap(), known), {})

        def control() -> None:
            values = pa.array([b""], messages.values.type)
            self._decode_topic(
                replace(messages.part(0, 1), values=values, keys=pa.nulls(1, messages.keys.type)), Heap()
            )

        return decode, control

    def _marks(self, topic: str, partition: int, counted: Counted, held: Mapping[str, Sequence[HeldUpdates]]) -> str:
        """The marks of this worker's held updates of a counted partition."""
        names = self._topics[topic]
        return pack(
            np.concatenate([held_marks(name, held.get(name, ()), partition, counted.complete) for name in names])
        )

    def _counted(self, state: IngestionState) -> dict[str, dict[int, Counted]]:
        """The counted partitions of each topic that has any."""
        counted = {
            topic: {
                int(partition): clock.counted
                for partition, clock in state.topics.get(topic, {}).items()
                if clock.counted is not None
            }
            for topic in self._topics
        }
        return {topic: own for topic, own in counted.items() if own}

    def _decode_topic(self, messages: Messages, heap: Heap | None, poisoned: Poisoned = {}) -> DecodedTopic:  # noqa: B006
        topic = messages.topic
        if topic == self._config.heartbeat_topic:
            return DecodedTopic(messages, None, ())
        if topic not in self._topics:
            detail = f"no source reads topic {topic}"
            return DecodedTopic(
                messages, None, [Refused(m, "unknown_source", detail, None) for m in range(len(messages))]
            )
        unread = self._unread(messages, poisoned)
        values, keys = messages.values, messages.keys
        if unread:
            # The other messages keep their numbers: the unread ones are decoded as empty messages, and the result is
            # discarded.
            hidden = np.zeros(len(messages), np.bool_)
            hidden[list(unread)] = True
            values, keys = (pc.if_else(pa.array(hidden), pa.scalar(None, one.type), one) for one in (values, keys))
        reader, only = self._formats[topic], self._only_source(topic)
        parsed = without_messages(decode_one_by_one(reader, values, keys, only, heap), unread)
        refused = [*unread.values(), *parsed.refused]
        parsed, found = refuse_diffs(parsed, self._config.diff_range)
        refused += found
        if isinstance(reader, Upserts):
            parsed = self._placed(parsed, messages)
        if self._clock(topic).clock == "event":
            parsed, found = refuse_timeless(parsed)
            refused += found
        return DecodedTopic(messages, parsed, sorted(refused, key=lambda refusal: refusal.message))

    def _in_time(self, batch: DecodedTopic, discard: Discard | None) -> DecodedTopic:
        """A batch without the messages whose times are too far ahead or discarded."""
        messages, parsed = batch.messages, batch.parsed
        if parsed is None:
            return batch
        config = self._clock(messages.topic)
        if config.clock == "event":
            found = refuse_ahead(messages, parsed, parsed.time, config.max_ahead_ns, discard)
        elif discard is not None:
            # Progress has no effect on an arrival clock.
            own = replace(parsed, progress=())
            found = refuse_ahead(messages, own, messages.ms[parsed.message] * NS_PER_MS, None, discard)
        else:
            return batch
        if not found:
            return batch
        refused = sorted([*batch.refused, *found], key=lambda refusal: refusal.message)
        return DecodedTopic(messages, without_messages(parsed, {refusal.message for refusal in found}), refused)

    def _unread(self, messages: Messages, poisoned: Poisoned) -> dict[int, Refused]:
        """The messages that are not passed to a format, by number."""
        sizes = pc.fill_null(pc.binary_length(messages.values), 0).to_numpy()
        limit, only = self._config.max_message_bytes, self._only_source(messages.topic)
        unread = {
            m: Refused(m, "decode", f"the message has {sizes[m]} bytes, more than max_message_bytes, {limit}", only)
            for m in np.flatnonzero(sizes > limit).tolist()
        }
        for (topic, partition, offset), how in poisoned.items():
            if topic == messages.topic:
                here = np.flatnonzero((messages.partition == partition) & (messages.offset == offset))
                detail = f"decoding it failed more than once; its own process {how}"
                unread |= {m: Refused(m, "poison", detail, only) for m in here.tolist()}
        return unread

    def _placed(self, parsed: Parsed, messages: Messages) -> Parsed:
        """Put each upsert's log position into its diff and, with an event clock, its record's time into its data
        time."""
        diff = parsed.diff * (messages.offset[parsed.message] + 1)
        time = parsed.time
        if self._clock(messages.topic).clock == "event":
            time = np.where(time == NO_TIME, messages.ms[parsed.message] * NS_PER_MS, time)
        return replace(parsed, diff=diff, time=time)

    def advance(self, state: Mapping[str, Any], facts: Iterable[Facts]) -> Advanced:
        """The new state and frontier from every worker's facts, in any order. Raises PartitionTwice.

        The input frontier is the minimum over the partitions of all sources, except idle ones, and never goes back.
        """
        before = msgspec.convert(dict(state), IngestionState)
        merged = merge_facts(facts)
        now_ms = max((fact.ms for own in merged.fresh.values() for fact in own.values()), default=None)
        offsets = {
            topic: {str(partition): fact.next for partition, fact in sorted(own.items())}
            for topic, own in sorted(merged.fresh.items())
        }
        clocks, copies = before.topics, {}
        if now_ms is not None:
            entering = {self._config.sources[name].topic for name in before.entering if name in self._sources}
            both = {
                topic: (self._waiting(topic, before, now_ms), {})
                if topic in entering
                else self._advance_topic(topic, before, merged, now_ms)
                for topic in self._topics
            }
            clocks = {topic: own for topic, (own, _) in both.items()}
            copies = {topic: own for topic, (_, own) in both.items()}
        reached = [at for own in clocks.values() for clock in own.values() if (at := clock.reached) is not None]
        frontier = max(before.frontier, min(reached, default=before.frontier))
        after = msgspec.structs.replace(before, frontier=frontier, topics=clocks)
        frontiers = {
            topic: {partition: clock.reached for partition, clock in own.items()} for topic, own in clocks.items()
        }
        as_json: dict[str, Any] = msgspec.to_builtins(after)
        updates = {topic: sum(fact.updates for fact in own.values()) for topic, own in merged.fresh.items()}
        return Advanced(dict(state), as_json, before.frontier, after.frontier, offsets, frontiers, copies, updates)

    def _waiting(self, topic: str, before: IngestionState, now_ms: int) -> dict[str, PartitionClock]:
        """The clocks of a topic that is not read yet, because its source's snapshot still enters: they hold nothing
        back."""
        known = before.topics.get(topic, {})
        return {
            str(one): msgspec.structs.replace(known.get(str(one)) or PartitionClock(active_ms=now_ms), idle=True)
            for one in sorted({*range(self._config.partitions.get(topic, 1)), *map(int, known)})
        }

    def _advance_topic(
        self, topic: str, before: IngestionState, merged: Merged, now_ms: int
    ) -> tuple[dict[str, PartitionClock], dict[int, Copies]]:
        """The clocks of a topic's partitions after the epoch, and the second copies in its counted partitions."""
        config, known = self._clock(topic), before.topics.get(topic, {})
        facts, held = merged.fresh.get(topic, {}), merged.held.get(topic, {})
        clocks, copies = {}, {}
        ended = any(fact.snapped for fact in facts.values())
        for partition in sorted({*range(self._config.partitions.get(topic, 1)), *map(int, known), *facts}):
            clock = known.get(str(partition)) or PartitionClock(active_ms=now_ms)
            fact = facts.get(partition)
            at = clock.snapshot if fact is None else fact.snapshot
            if ended or at is not None or clock.snapshot is not None:
                # The end of a snapshot in one partition is that of all: no row of it is sent after its last one.
                at = None if ended and (fact is None or not fact.snapped) else at
                clock = msgspec.structs.replace(clock, snapshot=at, snapped=clock.snapped or ended)
            if config.clock == "arrival":
                clocks[str(partition)] = advance_arrival(clock, fact, now_ms, self._config.slack_ms)
                continue
            clock, found = count_updates(clock, fact, held.get(partition, ()), before.frontier)
            if found is not None:
                copies[partition] = found
            clocks[str(partition)] = advance_event(clock, fact, now_ms, config.lateness_ns, config.idle_timeout_ms)
        return clocks, copies

    def admit(self, decoded: Decoded, held: Mapping[str, Sequence[HeldUpdates]], step: Advanced) -> Admitted:
        """The updates of [lower, upper), the updates that are held further, and the dead letters."""
        counts = {name: SourceCounts() for name in self._sources}
        before = msgspec.convert(step.before, IngestionState)
        joined = {name: one.joined for name, one in before.begun.items()}
        lateness = {
            name: Lateness(
                name,
                row_type.width,
                self._config.sources[name],
                step.lower,
                step.upper,
                counts[name],
                joined.get(name, MIN_TIME),
            )
            for name, row_type in self._sources.items()
        }
        dead: list[DeadLetter] = []
        for batch in decoded.batches:
            refused = list(batch.refused)
            if batch.parsed is not None:
                time, second = self._times(batch, before), _second_copies(batch, step.copies)
                for _, own, found in list(self._snapshots(batch, before, time)):
                    time = time.copy()
                    found.enter(time[own])
                for name in batch.parsed.names:
                    known, when = second, time
                    if name in before.begun and self._config.sources[name].clock == "event":
                        known = second | (time <= before.begun[name].time)  # the snapshot has them
                        if step.lower <= joined[name]:
                            when = np.maximum(time, joined[name])  # the source has no history before it joined
                    refused += lateness[name].pass_updates(batch.messages, batch.parsed, when, known)
            dead += _letters(batch.messages, refused, step.lower)
            _count_messages(batch, refused, counts)
        inputs, still = {}, {}
        for name, one in lateness.items():
            waiting = list(held.get(name, ()))
            for partition, copies in step.copies.get(self._config.sources[name].topic, {}).items():
                if copies.held:
                    waiting, dropped = drop_copies(name, waiting, partition, copies)
                    counts[name].copies += dropped
            inputs[name], still[name] = one.close(waiting, step.updates.get(self._config.sources[name].topic, 0))
        arrived = [received for one in lateness.values() for received in one.received]
        received = distinct_counts(np.concatenate(arrived or [np.empty(0, np.int64)]))
        return Admitted(inputs, still, dead, counts, received)

    def _times(self, batch: DecodedTopic, before: IngestionState) -> Ints:
        """The data times of a batch's updates by their topic's clock, int64[n]."""
        messages, parsed = batch.messages, batch.parsed
        if parsed is None or self._clock(messages.topic).clock == "event":
            return parsed.time if parsed is not None else np.empty(0, np.int64)
        known = before.topics.get(messages.topic, {})
        time = np.empty_like(parsed.time)
        for partition, run in messages.runs():
            own = batch.updates_of(run)
            clock = known.get(str(partition)) or PartitionClock(active_ms=0)
            time[own] = stamp(clock.last, messages.ms[parsed.message[own]])
        return time

    def _snapshots(
        self, batch: DecodedTopic, before: IngestionState, time: Ints | None = None
    ) -> Iterator[tuple[int, slice, Followed]]:
        """What the batch says about the snapshots of its partitions, with the updates of each. time: the updates' data
        times, if the caller has them."""
        messages, parsed = batch.messages, batch.parsed
        known = before.topics.get(messages.topic, {})
        if parsed is None or (parsed.marks is None and all(clock.snapshot is None for clock in known.values())):
            return
        time = self._times(batch, before) if time is None else time
        for partition, run in messages.runs():
            own = batch.updates_of(run)
            clock = known.get(str(partition)) or PartitionClock(active_ms=0)
            marks = None if parsed.marks is None else parsed.marks[run]
            yield partition, own, follow(clock, marks, parsed.message[own] - run.start, time[own], before.frontier)

    def _clock(self, topic: str) -> SourceConfig:
        """One source of the topic, for the settings that all sources of a topic share."""
        return self._config.sources[self._topics[topic][0]]

    def _only_source(self, topic: str) -> str | None:
        names = self._topics[topic]
        return names[0] if len(names) == 1 else None


def _second_copies(batch: DecodedTopic, copies: Mapping[str, Mapping[int, Copies]]) -> Bools:
    """Which of a batch's updates are second copies, bool[n]."""
    second = np.zeros(0 if batch.parsed is None else len(batch.parsed.time), np.bool_)
    own = copies.get(batch.messages.topic, {})
    for partition, run in batch.messages.runs() if own else ():
        if partition in own:
            second[batch.updates_of(run)] = own[partition].fresh
    return second


def _letters(messages: Messages, refused: Iterable[Refused], frontier: int) -> Iterator[DeadLetter]:
    for refusal in sorted(refused, key=lambda refusal: refusal.message):
        at = refusal.message
        key, value, headers = messages.original(at)
        partition, offset = int(messages.partition[at]), int(messages.offset[at])
        place = (messages.topic, partition, offset, frontier, refusal.source)
        yield DeadLetter(refusal.reason, clipped(refusal.detail), *place, key, value, headers)


def _count_messages(batch: DecodedTopic, refused: Iterable[Refused], counts: dict[str, SourceCounts]) -> None:
    """Count bytes by the source of a message's first update, and refused messages by reason."""
    messages, parsed = batch.messages, batch.parsed
    for refusal in refused:
        name = refusal.source or messages.topic
        counts.setdefault(name, SourceCounts()).refuse(refusal.reason)
    if parsed is None:
        return
    sizes = pc.fill_null(pc.binary_length(messages.values), 0).to_numpy()
    if len(parsed.names) == 1:
        counts[parsed.names[0]].bytes += int(sizes.sum())
        return
    first = first_of_runs(parsed.message)
    totals = np.bincount(parsed.source[first], weights=sizes[parsed.message[first]], minlength=len(parsed.names))
    for name, total in zip(parsed.names, totals.tolist()):
        counts[name].bytes += int(total)
