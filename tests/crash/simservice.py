"""The real service on one thread: runner, committer, ingestion, workers, shards and store are those of production.

Simulated are the disk or object store and the clock (`machines`), Kafka (`Log`), Spark (`Stage`), the rendezvous'
sockets, and how workers take turns: each is a greenlet that runs until it must wait for the others.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from greenlet import GreenletExit, getcurrent, greenlet
from kafka import TopicPartition

import vernier as vn
from tests.crash.faults import Crash
from tests.crash.machines import WHERE, Machine
from tests.crash.machines import Process as MachineProcess
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime.exchange import Round, least
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.messages import Assign, Hot, Poisoned, Report, Target
from vernier.service.cluster.process import Job, Process
from vernier.service.cluster.rendezvous import Attempt, Rendezvous
from vernier.service.cluster.shard import read_dead_letters
from vernier.service.cluster.shelf import Rows
from vernier.service.cluster.worker import work
from vernier.service.config.settings import load
from vernier.service.coordinator.changing import Changing
from vernier.service.coordinator.committer import Committer
from vernier.service.coordinator.runner import Hooks, Runner
from vernier.service.coordinator.small_batches import SmallBatches
from vernier.service.coordinator.topics import TopicReplaced
from vernier.service.errors import DeadLettersNotSent, SparkFailed
from vernier.service.ingest.former import former_columns, with_former
from vernier.service.ingest.rejects import DeadLetter
from vernier.service.kafka.log_reader import Record
from vernier.storage.blob.location import BlobLocation
from vernier.storage.errors import StorageError
from vernier.storage.state.background_writer import BackgroundWriter
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import Ints

TOPIC = "pairs"
PARTITIONS = 2
NAME = "what is called by the number "
DELAY = 9
"""Nanoseconds by which one view is late: its changes wait in a queue."""


class Pair(vn.Schema):
    """What the log holds."""

    key: vn.Int64
    value: vn.Int64


def program(more: bool = False) -> vn.App:
    """Sums by key, the same a little later, the pairs whose value some other key has, too, and the keys by names, which
    are longer than words, late, too; `more`: sums by value."""
    app = vn.App("sim", retain="30ns")
    pairs = app.source("pairs", Pair)
    sums = pairs.group_by("key").agg(total=vn.sum("value"), n=vn.count())
    app.view("sums", sums, key=["key"])
    if more:
        app.view("values", pairs.group_by("value").agg(total=vn.sum("key")), key=["value"])
    app.view("late", sums.delay(f"{DELAY}ns"), key=["key"])
    names = pairs.select("key", name=vn.concat(vn.lit(NAME), vn.col("value").cast(vn.String)))
    app.view("named", names.delay(f"{DELAY}ns").distinct(), key=["name"])
    shared = pairs.group_by("value").agg(n=vn.count()).filter(vn.col("n") > 1)
    app.view("shared", pairs.join(shared, on="value").select("key", "value").distinct(), key=["key", "value"])
    return app


@dataclass
class Log:
    """A topic: by partition the values of its messages, and what was sent of dead letters."""

    partitions: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    letters: list[tuple[int, int]] = field(default_factory=list)
    letters_until: int = 0
    refusals: int = 0
    """How often in a row sending dead letters fails."""

    def updates(self, partition: int, updates: list[tuple[int, int, int, int]]) -> None:
        """Append a message of (key, value, time, diff)."""
        listed = [[[key, value], str(time), diff] for key, value, time, diff in updates]
        least_time = str(min(time for _, _, time, _ in updates))
        self.partitions[partition].append(json.dumps({"v": 1, "t": least_time, "u": listed}).encode())

    def progress(self, partition: int, upper: int) -> None:
        """Promise that nothing before `upper` follows in a partition."""
        self.partitions[partition].append(json.dumps({"v": 1, "p": {"lower": ["0"], "upper": [str(upper)]}}).encode())

    def between(self, partition: int, start: int, stop: int) -> pa.RecordBatch:
        """Messages as Spark hands them over."""
        values = self.partitions[partition][start:stop]
        count = len(values)
        columns = {
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array([TOPIC] * count, pa.string()),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
            "timestamp": pa.array(range(start, start + count), pa.int64()),
        }
        return pa.RecordBatch.from_pydict(columns)


class Room:
    """What workers of an attempt have said to each other, by call."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.said: dict[int, dict[int, Any]] = {}


class Turns:
    """An exchange between greenlets: each sends its part, then waits until all have."""

    def __init__(self, room: Room, index: int) -> None:
        self.workers, self.index = room.workers, index
        self.waited, self.bytes_sent, self.lanes = 0.0, 0, None
        self._room, self._call = room, 0

    def _all(self, mine: Any) -> list[Any]:
        said = self._room.said.setdefault(self._call, {})
        said[self.index] = mine
        self._call += 1
        while len(said) < self.workers:
            getcurrent().parent.switch()
        return [said[index] for index in range(self.workers)]

    def all_to_all(self, parts: list[Ints]) -> list[Ints]:
        return [part[self.index].copy() for part in self._all(parts)]

    def allgather(self, payload: bytes) -> list[bytes]:
        return self._all(payload)

    def agree_min(self, value: Round | None) -> Round | None:
        return least(self._all(value))


class SimLink:
    """A worker's end of the rendezvous, without a socket."""

    def __init__(self, service: SimService) -> None:
        self._service = service
        self.index = 0
        self.reports: list[Report] = []

    def open(self, attempt: str, task: int, hot: list[Hot]) -> None:
        pass

    def assigned(self, attempt: str, seconds: float) -> Assign:
        current = self._service.runner.rendezvous._named(attempt)
        assert current is not None
        return Assign(attempt, self.index, [""] * self._service.workers, current.start)

    def phase(self, attempt: str, phase: str) -> None:
        current = self._service.runner.rendezvous._named(attempt)
        assert current is not None
        current._phases[self] = phase  # type: ignore[index]

    def convicted(self, attempt: str, messages: list[Poisoned]) -> None:
        current = self._service.runner.rendezvous._named(attempt)
        assert current is not None
        current.convicted += messages

    def report(self, report: Report) -> None:
        self.reports.append(report)

    def close(self) -> None:
        pass


class SimProcess(Process):
    """A worker process whose peers are greenlets beside it."""

    room: Room
    target: Plan | None = None

    def plan_of(self, target: Target) -> Plan:
        assert self.target is not None
        return self.target

    def exchange(self, assigned: Assign) -> Any:
        return Turns(self.room, assigned.shard)


class Ended(threading.Event):
    """The end of an attempt, and the work that leads to it: who waits for the end does it."""

    work: Callable[[], None] | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Do the work, if it is not done yet."""
        work, self.work = self.work, None
        if work is not None:
            work()
        return super().wait(timeout)


class SimRendezvous(Rendezvous):
    """Attempts without sockets; their names are counted."""

    def __init__(
        self, workers: int, complete: Callable[[Attempt], None], name: str, give: Callable[[Attempt, Any], bool]
    ) -> None:
        self._give = give
        self.workers, self.keys = workers, Keys("sim")
        self._complete = complete
        self._lock = threading.Lock()
        self._current: Attempt | None = None
        self._connected = set()
        self._name, self._count = name, 0

    def begin(self, start: Any) -> Attempt:
        self._count += 1
        self._current = Attempt(f"{self._name}x{self._count}", start, self.workers, ended=Ended())
        return self._current

    def lay(self, streams: list[bytes]) -> list[Rows]:
        return [*streams]

    def hand_out(self, attempt: Attempt, rows: Sequence[Rows]) -> bool:
        return self._give(attempt, rows)

    def close(self) -> None:
        pass


class SimReader:
    """A reader of the log. It fails when there is nothing more to read, and so ends what waits for more."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reached: dict[TopicPartition, int] = {}

    def read_from(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._reached = dict(offsets)

    def position(self, part: TopicPartition) -> int:
        return self._reached[part]

    def end(self, part: TopicPartition) -> int:
        return len(self._log.partitions[part.partition])

    def poll(self, seconds: float, most: int) -> dict[TopicPartition, list[Record]]:
        found = {}
        for part, start in self._reached.items():
            values = self._log.partitions[part.partition][start:]
            if values:
                found[part] = [
                    Record(None, value, TOPIC, part.partition, at, at, []) for at, value in enumerate(values, start)
                ]
                self._reached[part] = start + len(values)
        if not found:
            raise EOFError
        return found

    def close(self) -> None:
        pass


class SimSmallBatches(SmallBatches):
    """What the driver reads itself. limit: the most messages of an epoch; ends: where the micro-batch ends, by
    partition."""

    def __init__(self, log: Log, limit: int | None) -> None:
        self.ends: list[int] = []
        super().__init__({}, lambda: {TOPIC: dict(enumerate(self.ends))}, 1000, lambda: limit)
        self._log = log

    def _connect(self) -> Any:
        return SimReader(self._log)


class SimDeadLetterSender:
    """Dead letters into the log, each epoch's once, as the transaction with the consumer group's offset does it."""

    def __init__(self, log: Log, directory: StateDirectory) -> None:
        self._log, self._directory = log, directory
        self._unsent: Manifest | None = None

    def recover(self, newest: Manifest | None) -> None:
        if newest is not None and self._log.letters_until < newest.epoch:
            self.send(newest)

    def settle(self) -> None:
        """What is unsent is the newest epoch's, as production has it."""
        unsent, self._unsent = self._unsent, None
        self.recover(unsent)

    def send(self, manifest: Manifest) -> int:
        if self._log.refusals:
            self._log.refusals -= 1
            self._unsent = manifest
            raise DeadLettersNotSent(epoch=manifest.epoch, reason="refused")
        letters: list[DeadLetter] = []
        for ref in manifest.dead:
            letters += read_dead_letters(self._directory.open(ref.segment).entry(ref.label))
        self._log.letters += [(letter.partition, letter.offset) for letter in letters]
        self._log.letters_until = manifest.epoch
        return len(letters)


class SimService:
    """A driver and its workers. Making it takes the state over. Every process of it has faults of its own."""

    def __init__(
        self,
        machine: Machine,
        log: Log,
        workers: int,
        name: str,
        *,
        app: vn.App | None = None,
        keep: int = 3,
        rebuild: bool = False,
        collect_beside: bool = False,
        gone: Callable[[], bool] | None = None,
        limit: int | None = None,
    ) -> None:
        """gone: if the driver hands out what it reads itself, whether a worker is gone before it does. limit: the most
        messages of an epoch then."""
        self.gone, self.limit = gone, limit
        self.replaced = False
        """Whether the topic is no longer the one that the query reads."""
        self.machine, self.log, self.workers = machine, log, workers
        made = app or program()
        settings = load(None, {"workers": workers, "sources.pairs.clock": "event", "epoch.attempts": 3}, {}).settings
        ingestion = settings.ingestion(made, {TOPIC: PARTITIONS})
        self.plan = compile_app(made)
        self.driver = machine.process()
        directory = StateDirectory(WHERE, self.driver.blob)
        self.epochs = Committer(
            directory,
            self.plan,
            ingestion,
            workers,
            keep,
            lambda: 0,
            rebuild=rebuild,
            collect_beside=collect_beside,
        )
        former = former_columns(self.epochs.newest, self.plan.sources)
        self.plan.sources = with_former(self.plan.sources, former)
        self.letters = SimDeadLetterSender(log, directory)
        self.letters.recover(self.epochs.newest)
        self.runner = Runner(
            settings,
            self.epochs,
            self.letters,  # type: ignore[arg-type]
            None,
            lambda count, complete: SimRendezvous(count, complete, name, self.hand_out),
            hooks=Hooks(switched=self._switched, check_topics=self._check_topics),
        )
        self.runner.attach(self)  # type: ignore[arg-type]
        self.job = Job(("", 0), Keys("sim"), (), self.plan.fingerprint, BlobLocation(WHERE), ingestion, 7, 1.0)
        self.target: Plan | None = None
        self.requery()
        self.processes = [self._worker() for _ in range(workers)]
        self.idle: list[tuple[SimProcess, MachineProcess]] = []

    def _offsets(self) -> list[int]:
        found = self.epochs.start.offsets.get(TOPIC, {})
        return [found.get(partition, 0) for partition in range(PARTITIONS)]

    def _worker(self) -> tuple[SimProcess, MachineProcess]:
        mine = self.machine.process()
        process = SimProcess(self.job, StateDirectory(WHERE, mine.blob), None, SimLink(self))  # type: ignore[arg-type]
        process.__dict__["plan"] = self.plan
        process.target = self.target
        process.__dict__["background_writer"] = BackgroundWriter(process.directory, threads=False)
        return process, mine

    def epoch(self, takes: list[int], again: int = 0) -> None:
        """One micro-batch: `takes` new messages of each partition, and the last `again` ones for a second time.

        Raises what ends the query.
        """
        frame = []
        for start, take, values in zip(self.next, takes, self.log.partitions, strict=True):
            frame.append((max(0, start - again), min(start + take, len(values))))
        if self.small is not None:
            self.small.ends = [stop for _, stop in frame]
        self.runner(frame, 0)  # type: ignore[arg-type]
        self.next = [stop for _, stop in frame]

    def rescale(self, workers: int) -> None:
        """Make the next epochs with another number of workers. Processes that are not needed are idle until they are,
        and those that stay get other shards."""
        self.runner.rescale(workers)
        self.workers = workers
        found = [*self.idle, *reversed(self.processes)]
        found += [self._worker() for _ in range(workers - len(found))]
        self.processes, self.idle = found[:workers], found[workers:]

    def change_to(self, app: vn.App) -> None:
        """Let the workers fill what is new in another program, and switch to it."""
        self.target = compile_app(app)
        for process, _ in self.processes:
            process.target = self.target
        self.epochs.change_to(Changing([], self.target, self.job.ingestion))

    def _switched(self) -> None:
        assert self.target is not None
        self.plan, self.target = self.target, None
        self.job = replace(self.job, fingerprint=self.plan.fingerprint)
        for process, _ in self.processes:
            assert process.change(self.job)
            process.__dict__["plan"] = self.plan

    def _check_topics(self, topics: Collection[str]) -> None:
        assert set(topics) <= {TOPIC}
        if self.replaced and topics:
            raise TopicReplaced(topic=TOPIC, source="pairs", known="one", found="other")

    def requery(self) -> None:
        """A new query from the newest commit, as the driver starts one after a failure."""
        self.next = self._offsets()
        self.small = None if self.gone is None else SimSmallBatches(self.log, self.limit)
        self.runner.read_with(self.small)

    # --- the stage ----------------------------------------------------------------------------------------------------

    def run(self, frame: list[tuple[int, int]], attempt_id: str) -> bool:
        """What Spark does: run all tasks. Raises SparkFailed when a worker process is gone."""
        if all(start == stop for start, stop in frame):
            return False
        rows: list[list[pa.RecordBatch]] = []
        for index in range(self.workers):
            own = [(p, *frame[p]) for p in range(PARTITIONS) if p % self.workers == index]
            rows.append([self.log.between(*part) for part in own])
        self._work(attempt_id, rows)
        return True

    def hand_out(self, attempt: Attempt, rows: Sequence[Any]) -> bool:
        """What the rendezvous does with messages that the driver has read."""
        if self.gone is None or self.gone():
            return False
        attempt.handed_out = True
        batches = [pa.ipc.open_stream(own).read_all().to_batches() if own else [] for own in rows]

        def work() -> None:
            try:
                self._work(attempt.id, batches, attempt)
            except SparkFailed as error:
                self.runner.rendezvous.cancel(attempt, str(error))

        assert isinstance(attempt.ended, Ended)
        attempt.ended.work = work
        return True

    def _work(self, attempt_id: str, rows: list[list[pa.RecordBatch]], handed: Attempt | None = None) -> None:
        room = Room(self.workers)
        tasks = []
        for index, (process, _) in enumerate(self.processes):
            process.room = room
            process.link.index = index  # type: ignore[attr-defined]
            process.link.reports.clear()  # type: ignore[attr-defined]
            assigned = (
                None if handed is None else Assign(attempt_id, index, [""] * self.workers, handed.start, rows=b"")
            )

            def run(process: SimProcess = process, own: Any = rows[index], assigned: Assign | None = assigned) -> None:
                work(process, attempt_id, iter(own), assigned=assigned)

            tasks.append(greenlet(run))
        self._take_turns(tasks, attempt_id)
        for process, _ in self.processes:
            for report in process.link.reports:  # type: ignore[attr-defined]
                self.runner.rendezvous._report(report)

    def cancel(self) -> None:
        """Nothing runs longer than it is let."""

    def _take_turns(self, tasks: list[greenlet], attempt_id: str) -> None:
        try:
            while any(not task.dead for task in tasks):
                for index, task in enumerate(tasks):
                    if task.dead:
                        continue
                    try:
                        task.switch()
                    except Crash:
                        self.processes[index] = self._worker()
                        raise SparkFailed(problem=f"worker {index} is gone") from None
                    except StorageError as error:
                        current = self.runner.rendezvous._named(attempt_id)
                        assert current is not None
                        self.runner.rendezvous.cancel(current, f"worker {index}: {error}")
                        return
        finally:
            for task in tasks:
                if not task.dead:
                    task.throw(GreenletExit)

    def end(self) -> None:
        """All its processes are gone, at once."""
        for process in self.every():
            process.faults.end()

    def every(self) -> Iterator[MachineProcess]:
        """The driver's and the workers' processes."""
        yield self.driver
        yield from (mine for _, mine in (*self.processes, *self.idle))
