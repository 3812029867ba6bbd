"""A Kafka log in memory and a service of several workers that reads it through ingestion, for tests."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest import records as kafka_records
from vernier.service.ingest.ingestion import Admitted, Advanced, Ingestion
from vernier.service.ingest.partition_report import Facts
from vernier.service.ingest.rejects import DeadLetter
from vernier.service.ingest.stash import HeldUpdates

EDGES = RowType([("src", Int64(), False), ("dst", Int64(), False)])
ROOTS = RowType([("node", Int64(), False)])

SCHEMA = kafka_records.SCHEMA.set(kafka_records.SCHEMA.get_field_index("timestamp"), pa.field("timestamp", pa.int64()))


@dataclass(frozen=True)
class Record:
    """One Kafka record; `ms` is the broker's time."""

    topic: str
    partition: int
    offset: int
    ms: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def values(*messages: str | bytes | None) -> pa.LargeBinaryArray:
    """Messages as a format takes them."""
    given = [message.encode() if isinstance(message, str) else message for message in messages]
    return pa.array(given, pa.large_binary())


def batch(records: Iterable[Record]) -> pa.RecordBatch:
    """Records as Spark hands them to a worker."""
    rows = [
        {**record.__dict__, "timestamp": record.ms, "headers": [{"key": k, "value": v} for k, v in record.headers]}
        for record in records
    ]
    columns = [pa.array([row[name] for row in rows], kind) for name, kind in zip(SCHEMA.names, SCHEMA.types)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class Topics:
    """Appends records with the offsets and broker times that a broker would give them."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ms = 1_000
        self._next: Counter[tuple[str, int]] = Counter()

    def append(self, topic: str, partition: int, value: str | bytes | None, later_ms: int = 0, **rest: Any) -> Record:
        """Append a record `later_ms` after the one before."""
        self.ms += later_ms
        data = value.encode() if isinstance(value, str) else value
        record = Record(topic, partition, self._next[topic, partition], self.ms, data, **rest)
        self._next[topic, partition] += 1
        self.records.append(record)
        return record


Entry = tuple[str, tuple[int, ...], int, int]
"""(source, words of the row, time, diff)."""


@dataclass
class Service:
    """Workers around ingestion, with the manifest between epochs; every epoch checks what must always hold."""

    ingestion: Ingestion
    workers: int = 1
    state: dict[str, Any] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    shards: list[dict[str, list[HeldUpdates]]] = field(default_factory=list)
    entered: Counter[Entry] = field(default_factory=Counter)
    letters: list[DeadLetter] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    frontiers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shards = [{} for _ in range(self.workers)]

    def epoch(self, records: Sequence[Record], rng: random.Random | None = None) -> tuple[Advanced, list[Admitted]]:
        """One epoch: partitions spread over the workers and rows shuffled by `rng`."""
        rng = rng or random.Random(0)
        places = {place: rng.randrange(self.workers) for place in sorted({(r.topic, r.partition) for r in records})}
        decoded = []
        for worker, held in enumerate(self.shards):
            mine = [record for record in records if places[record.topic, record.partition] == worker]
            rng.shuffle(mine)
            cut = rng.randint(0, len(mine))
            decoded.append(
                self.ingestion.decode([batch(mine[:cut]), batch(mine[cut:])], self.offsets, self.state, held)
            )
        facts = [Facts.decode(one.facts.encode()) for one in decoded]
        rng.shuffle(facts)
        step = self.ingestion.advance(self.state, facts)
        assert self.ingestion.advance(self.state, facts[::-1]).state == step.state
        assert step.upper >= step.lower
        admitted = [self.ingestion.admit(one, held, step) for one, held in zip(decoded, self.shards)]
        for worker, one in enumerate(admitted):
            self.shards[worker] = {name: [_stored(held) for held in batches] for name, batches in one.held.items()}
            self._record(one, step)
        self.state = json.loads(json.dumps(step.state))
        for topic, own in step.offsets.items():
            self.offsets.setdefault(topic, {}).update(own)
        self.frontiers.append(step.upper)
        return step, admitted

    def _record(self, admitted: Admitted, step: Advanced) -> None:
        entering = 0
        for name, updates in admitted.inputs.items():
            assert np.all((updates.time >= step.lower) & (updates.time < step.upper))
            entering += len(updates)
            for row in updates.data.tolist():
                self.entered[name, tuple(row[: updates.width]), row[-2], row[-1]] += 1
        assert int(admitted.received[1].sum()) == entering
        for batches in admitted.held.values():
            for held in batches:
                assert np.all(np.diff(held.time) >= 0)
                assert len(held)
        self.letters += admitted.dead
        for counts in admitted.counts.values():
            told = msgspec.structs.asdict(counts)
            refused = told.pop("refused")
            self.counters.update({name: count or 0 for name, count in told.items()})
            self.counters.update({f"refused {reason}": count for reason, count in refused.items()})

    @property
    def waiting(self) -> int:
        """How many updates are held."""
        upper = self.frontiers[-1]
        return sum(held.count_from(upper) for shard in self.shards for batches in shard.values() for held in batches)


def _stored(held: HeldUpdates) -> HeldUpdates:
    """What comes back from a file that holds the batch."""
    return HeldUpdates.open(held.updates.width, held.arrays(), ref=held.ref or "stored")


def refusals(letters: Iterable[DeadLetter]) -> list[tuple[str, int, int, str, str]]:
    """What was refused and why, sorted."""
    return sorted((one.topic, one.partition, one.offset, one.reason, one.detail) for one in letters)


def native(updates: Iterable[tuple[Sequence[int], int, int]], least: int | None = None, **more: Any) -> str:
    """A native message of (row, time, diff)."""
    given = [[list(row), str(time), diff] for row, time, diff in updates]
    least = min((int(str(update[1])) for update in given), default=0) if least is None else least
    return json.dumps({"v": 1, "t": str(least), "u": given, **more})


def progress(upper: int | None, lower: int = 0, counts: Mapping[int, int] | None = None) -> str:
    """A native progress message; upper None: the partition is complete."""
    p: dict[str, Any] = {"lower": [str(lower)], "upper": [] if upper is None else [str(upper)]}
    if counts is not None:
        p["counts"] = [[str(time), number] for time, number in counts.items()]
    return json.dumps({"v": 1, "p": p})
