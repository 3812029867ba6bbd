"""Taking: what makes an epoch's input of the rows that Spark delivers to a task: messages, or rows of a snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.messages import DECODED, DECODING, Poisoned, Start
from vernier.service.cluster.process import Process
from vernier.service.cluster.shard import Shard
from vernier.service.errors import NoAttempt
from vernier.service.ingest.ingestion import Admitted, Advanced
from vernier.service.ingest.partition_report import Facts
from vernier.storage.updates import Updates


class Phases:
    """Measures seconds by phase; each phase ends where the next begins."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, phase: str) -> None:
        """The phase ends now."""
        now = time.perf_counter()
        self.seconds[phase], self._last = now - self._last, now


@dataclass(frozen=True)
class Task:
    """One task of an attempt, once it has its shard. number: Spark's number of it; base: the shard as the newest commit
    left it."""

    attempt: str
    number: int
    start: Start
    base: Shard
    exchange: Exchange


Take = Callable[[Process, Task, Iterable[pa.RecordBatch], Phases], tuple[Advanced, Admitted]]
"""Makes an epoch's step and this worker's input of the rows from Spark."""


def take_messages(
    process: Process, own: Task, rows: Iterable[pa.RecordBatch], clock: Phases
) -> tuple[Advanced, Admitted]:
    """Take messages, which are all there already."""
    start, base, ingestion = own.start, own.base, process.ingestion
    heap = base.open_heap()
    clock.end("load")
    process.link.phase(own.attempt, DECODING)
    poisoned = {(one.topic, one.partition, one.offset): one.how for one in start.poisoned}
    if start.quarantine:
        found = ingestion.quarantine(rows, start.offsets, poisoned, process.job.quarantine_seconds)
        if found:
            process.link.convicted(own.attempt, [Poisoned(*place, how) for place, how in found.items()])
        poisoned |= found
    decoded = ingestion.decode(rows, start.offsets, start.ingestion, base.held, heap, poisoned)
    process.link.phase(own.attempt, DECODED)
    clock.end("decode")
    gathered = own.exchange.allgather(decoded.facts.encode())
    step = ingestion.advance(start.ingestion, [Facts.decode(facts) for facts in gathered])
    admitted = ingestion.admit(decoded, base.held, step)
    clock.end("admit")
    return step, admitted


def take_rows(process: Process, own: Task, rows: Iterable[pa.RecordBatch], clock: Phases) -> tuple[Advanced, Admitted]:
    """Take a piece of a snapshot; a task whose number is none of the pieces to take discards what it reads."""
    part, loading = own.start.part, process.loading
    if part is None:
        raise NoAttempt()
    heap = own.base.open_heap()
    clock.end("load")
    mine = own.number in part.take
    decoded = [loading.decode(part.source, batch, heap) for batch in rows if mine]
    taken = Updates.concat(decoded, process.plan.sources[part.source].width)
    clock.end("decode")
    counts = own.exchange.allgather(len(taken).to_bytes(8, "big"))
    step = loading.advance(own.start.ingestion, part, sum(int.from_bytes(count, "big") for count in counts))
    admitted = loading.admit(part, taken, own.base.held, step)
    clock.end("admit")
    return step, admitted
