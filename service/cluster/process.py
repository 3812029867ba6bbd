"""Process: what Spark's Python worker process keeps from task to task, and what it knows about its service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.budget import Budget
from vernier.service.cluster.call_watch import Watch
from vernier.service.cluster.connection import Connection
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.transport import Mailbox
from vernier.service.cluster.filling import Filling
from vernier.service.cluster.messages import Assign, Hot, Target
from vernier.service.cluster.shard import Shard
from vernier.service.cluster.shelf import Borrower, Place
from vernier.service.config.programs import Program, compiled
from vernier.service.errors import DriverGone, OtherPlan
from vernier.service.ingest.config import IngestionConfig
from vernier.service.ingest.former import Columns, with_former
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.ingest.loading import Loading
from vernier.storage.blob.location import BlobLocation
from vernier.storage.state.background_writer import BackgroundWriter
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace import spill


@dataclass(frozen=True)
class Job:
    """What a worker needs to know about its service. address, keys: of the rendezvous. fingerprint: of the programs'
    plan. seconds: how long an attempt may take. keep_sources, push, upserts: see operators/planning/planner.py.
    former: for each source that had other columns, those (service/ingest/former.py).
    memory_bytes: a worker's memory limit between epochs; spill: a folder for what exceeds memory; most_bytes: its
    memory limit within an epoch, None for its share of its machine's memory; call_seconds: how long a function of the
    program may take before it is reported. quarantine_seconds: see service/ingest/quarantine.py. shelf: what to
    read of the driver's shelf, to find out whether that is possible; None if the driver has none."""

    address: tuple[str, int]
    keys: Keys
    programs: tuple[Program, ...]
    fingerprint: str
    state: BlobLocation
    ingestion: IngestionConfig
    slice_updates: int
    seconds: float
    keep_sources: bool = False
    push: bool = True
    upserts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    former: dict[str, list[Columns]] = field(default_factory=dict)
    memory_bytes: int | None = None
    spill: str | None = None
    most_bytes: int | None = None
    call_seconds: float | None = None
    quarantine_seconds: float = 10.0
    shelf: Place | None = None


def planned(
    programs: Sequence[Program], *, keep_sources: bool, upserts: Mapping[str, Sequence[str]], push: bool
) -> Plan:
    """The plan of programs. A process keeps the last one that it made. Raises ProgramErrors."""
    keys = tuple((name, tuple(columns)) for name, columns in sorted(upserts.items()))
    return _planned(tuple(programs), keep_sources, keys, push)


@lru_cache(maxsize=1)
def _planned(
    programs: tuple[Program, ...], keep_sources: bool, upserts: tuple[tuple[str, tuple[str, ...]], ...], push: bool
) -> Plan:
    return compiled(programs, keep_sources=keep_sources, upserts=dict(upserts), push=push)[1]


@lru_cache(maxsize=1)
def state_at(place: BlobLocation) -> StateDirectory:
    """The state directory of this process. Its first call for a state in an object store takes a second, to load the
    store's client."""
    return StateDirectory(place)


@dataclass
class Process:
    """What this process keeps from task to task. short: an epoch used too much memory, so slices are kept short."""

    job: Job
    directory: StateDirectory
    mailbox: Mailbox
    link: Connection
    borrower: Borrower = field(default_factory=Borrower)
    shards: dict[int, list[Shard]] = field(default_factory=dict)
    tasks: int = 0
    short: bool = False
    attempt: str = ""
    watch: Watch | None = None
    filling: Filling = field(default_factory=Filling)

    @staticmethod
    def start(job: Job) -> Process:
        spill.spill(None if job.spill is None else Path(job.spill))
        if job.spill is None:
            spill.keep()
        link = Connection(job.address, job.keys)
        mailbox = Mailbox(job.keys, link.host)
        borrower = Borrower()
        link.introduce(mailbox.address, job.shelf is not None and borrower.sees(job.shelf))
        process = Process(job, state_at(job.state), mailbox, link, borrower)
        if job.call_seconds is not None:
            process.watch = Watch(job.call_seconds, process.stuck)
        return process

    def stuck(self, said: str, seconds: float) -> None:
        """Report a function that does not return to the driver. Runs on the watch's thread."""
        with suppress(DriverGone):  # the working thread notices this, too
            self.link.stuck(self.attempt, said, seconds)

    @cached_property
    def plan(self) -> Plan:
        return self._compile(self.job.programs, self.job.fingerprint)

    def plan_of(self, target: Target) -> Plan:
        """The plan of the programs to change to. Raises OtherPlan and ProgramErrors."""
        return self._compile([Program(name, text) for name, text in target.programs], target.fingerprint)

    def _compile(self, programs: Sequence[Program], fingerprint: str) -> Plan:
        job = self.job
        plan = planned(programs, keep_sources=job.keep_sources, upserts=job.upserts, push=job.push)
        if plan.fingerprint != fingerprint:
            _planned.cache_clear()
            names = ", ".join(program.name for program in programs)
            raise OtherPlan(name=names, found=plan.fingerprint[:8], wanted=fingerprint[:8])
        return replace(plan, sources=with_former(plan.sources, job.former)) if job.former else plan

    def change(self, job: Job) -> bool:
        """Go on with a job that differs in its programs, its sources and its share of the memory alone; False if it
        differs in more."""
        mine = replace(
            self.job,
            programs=job.programs,
            fingerprint=job.fingerprint,
            ingestion=job.ingestion,
            former=job.former,
            most_bytes=job.most_bytes,
        )
        if mine != job:
            return False
        was, self.job = self.job, job
        for name in ("ingestion", "loading", "budget"):
            self.__dict__.pop(name, None)
        if (job.programs, job.fingerprint, job.former) != (was.programs, was.fingerprint, was.former):
            self.__dict__.pop("plan", None)
        return True

    @cached_property
    def budget(self) -> Budget:
        return Budget(self.job.most_bytes)

    @cached_property
    def background_writer(self) -> BackgroundWriter:
        return BackgroundWriter(self.directory)

    @cached_property
    def ingestion(self) -> Ingestion:
        return Ingestion(self.plan.sources, self.job.ingestion)

    @cached_property
    def loading(self) -> Loading:
        return Loading(self.plan.sources, self.job.ingestion)

    def exchange(self, assigned: Assign) -> Exchange:
        """The exchange through which the task of an attempt communicates with its peers."""
        return Exchange(self.mailbox, assigned.attempt, assigned.shard, assigned.peers, self.link, self.job.seconds)

    def stop(self) -> None:
        if self.watch is not None:
            self.watch.stop()
        self.link.close()
        self.mailbox.close()

    def hot(self) -> list[Hot]:
        return [Hot(one.index, one.epoch, one.attempt, one.workers) for kept in self.shards.values() for one in kept]

    def keep(self, shard: Shard, base: Shard) -> None:
        """Remember a shard, and the shard it was made from in case this attempt is not the one that is committed."""
        self.shards = {shard.index: [base, shard]}
