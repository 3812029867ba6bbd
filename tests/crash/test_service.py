"""The real runner, ingestion, workers and store under a seeded `Random`: cuts, merges, holds, faults, other workers and
programs.

After every step what readers see must be what recomputing from the log gives, at the frontier and at times before it;
at the end, all of it; every message that cannot be read is one dead letter.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest

from tests.crash.faults import Crash, Fault
from tests.crash.machines import WHERE, DiskMachine, Machine, StoreMachine, chosen
from tests.crash.simservice import DELAY, NAME, PARTITIONS, TOPIC, Log, SimProcess, SimService, program
from tests.profiles import shorter
from vernier.service.cluster import shard, worker
from vernier.service.cluster.messages import Assign
from vernier.service.cluster.shard import Shard
from vernier.service.coordinator import collector, runner
from vernier.service.coordinator.topics import TopicReplaced
from vernier.service.errors import EpochFailed
from vernier.service.ingest import records
from vernier.service.ingest.stash import HeldUpdates
from vernier.service.views.snapshot_reader import Reader
from vernier.service.views.view import View
from vernier.storage.errors import EpochConflict, OwnershipLost, StorageError
from vernier.storage.state import reshard
from vernier.storage.state.audit import audit
from vernier.storage.state.manifest import HIGHEST, LOWEST, Manifest
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import TextMissing, Texts
from vernier.storage.trace import merge as merge_module
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME

STEPS = 30
FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN_WRITE, Fault.DISK_FULL, Fault.LOST_REPLY)
Update = tuple[int, int, int, int]


@pytest.fixture(autouse=True)
def _slow_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let merges of small batches take several epochs, and be written beside these, as large ones are; collect
    often."""
    # The wall clock decides nothing.
    monkeypatch.setattr(runner, "STAGE_SECONDS", 1e9)
    monkeypatch.setattr(trace_module, "LEAST", 3)
    monkeypatch.setattr(trace_module, "SMALL", 1)
    monkeypatch.setattr(trace_module, "FUEL", 1)
    monkeypatch.setattr(merge_module, "IN_BACKGROUND", 8)
    monkeypatch.setattr(collector, "GC_EVERY", 2)


class Simulation:
    """One run of one seed; `log` says what happened."""

    def __init__(self, seed: int, kind: Callable[[object], Machine] = DiskMachine) -> None:
        self.rng = random.Random(seed)
        self.machine = kind(seed)
        self.topic = Log()
        self.sent: list[list[list[Update]]] = [[] for _ in range(PARTITIONS)]
        self.promised = [0] * PARTITIONS
        self.bad: list[tuple[int, int]] = []
        self.service: SimService | None = None
        self.starts = 0
        self.log: list[str] = []
        self.reader = Reader(WHERE, blob=self.machine.process().blob)

    def run(self) -> list[str]:
        for _ in range(STEPS):
            actions = [
                (self.produce, 10),
                (self.epoch, 10),
                (self.fail, 5),
                (self.restart, 2),
                (self.rescale, 2),
                (self.cut_power, 1),
                (self.look, 4),
            ]
            action = chosen(self.rng, actions)
            self.log.append(f"{action.__name__}: {action()}")
            self.machine.tick()
        self.finish()
        return self.log

    # --- the world ----------------------------------------------------------------------------------------------------

    def produce(self) -> str:
        """Messages that keep what was promised, some of them far ahead, some unreadable; and promises."""
        for _ in range(self.rng.randint(1, 4)):
            at = self.rng.randrange(PARTITIONS)
            what = self.rng.random()
            if what < 0.1:
                self.bad.append((at, len(self.topic.partitions[at])))
                self.topic.partitions[at].append(b"{")
                self.sent[at].append([])
            elif what < 0.4:
                self.promise(at, self.promised[at] + self.rng.randint(0, 15))
            else:
                base = self.promised[at]
                rng = self.rng
                updates = [
                    (rng.randrange(6), rng.randrange(4), base + rng.randrange(40), rng.choice((-1, 1, 1)))
                    for _ in range(rng.randint(1, 8))
                ]
                self.topic.updates(at, updates)
                self.sent[at].append(updates)
        return f"{[len(values) for values in self.topic.partitions]} messages, promised {self.promised}"

    def promise(self, at: int, upper: int) -> None:
        self.promised[at] = upper
        self.topic.progress(at, upper)
        self.sent[at].append([])

    # --- the service --------------------------------------------------------------------------------------------------

    def start(self) -> SimService:
        if self.service is None:
            self.starts += 1
            self.machine.wait()
            workers, more = self.rng.randint(1, 3), self.rng.random() < 0.4
            small = self.rng.random() < 0.6
            gone = (lambda: self.rng.random() < 0.1) if small else None
            name = f"s{self.starts}"
            limit = (None, 1, 3, 20)[(self.starts + workers) % 4]
            self.service = SimService(
                self.machine, self.topic, workers, name, app=program(more), gone=gone, limit=limit
            )
            what = "the larger program" if more else "the program"
            self.log.append(f"start {what} with {workers} workers at {self.service.epochs.start.epoch}")
        return self.service

    def epoch(self) -> str:
        service = self.start()
        again = self.rng.randint(1, 3) if self.rng.random() < 0.2 else 0
        service.epoch([self.rng.randrange(6) for _ in range(PARTITIONS)], again)
        return self.told(service)

    def told(self, service: SimService) -> str:
        newest = service.epochs.newest
        if newest is None:
            return "no epoch"
        batches = sum(len(shard) for trace in newest.traces.values() for shard in trace.shards)
        return f"epoch {newest.epoch} of {newest.attempt} to {newest.upper}, {batches} batches"

    def fail(self) -> str:
        """An epoch in which some call of some process goes wrong."""
        service = self.start()
        victim = self.rng.choice(list(service.every()))
        fault, call = self.rng.choice(FAULTS), self.rng.randint(1, 12)
        victim.faults.fail_later(fault, call)
        what = "nothing"
        try:
            service.epoch([self.rng.randrange(6) for _ in range(PARTITIONS)])
        except Crash:
            what = "crash"
            service.end()
            self.service = None
        except (StorageError, EpochFailed) as problem:
            what = type(problem).__name__
            if getattr(problem, "may_have_happened", False) or self.rng.random() < 0.3:
                service.end()
                self.service = None
            else:
                service.requery()
        for process in service.every():
            process.faults.repair()
        mine = [len(process.faults.calls) for process in service.every()]
        return f"{fault.name} at call {call}: {what}, calls {mine}, {self.told(service)}"

    def restart(self) -> str:
        if self.service is not None:
            self.service.epochs.close()
            self.service.end()
        self.service = None
        return self.told(self.start())

    def rescale(self) -> str:
        """The service goes on with another number of workers; the first epoch with them may be one that fails."""
        service = self.start()
        was, workers = service.workers, self.rng.randint(1, 3)
        service.rescale(workers)
        return f"{workers} workers instead of {was}"

    def cut_power(self) -> str:
        if self.service is not None:
            self.service.end()
        self.service = None
        self.machine.cut_power()
        self.reader = Reader(WHERE, blob=self.machine.process().blob)
        return "all is dark"

    # --- what must hold -----------------------------------------------------------------------------------------------

    def look(self) -> str:
        """A reader follows, which holds the epoch that it is at; what it answers is right."""
        self.reader.poll()
        if self.reader.failure is not None or self.reader.snapshot is None:
            assert self.reader.failure is None, self.reader.failure
            return "nothing yet"
        manifest, views = self.reader.snapshot.manifest, self.reader.snapshot.views
        if manifest.upper > MIN_TIME:
            times = {manifest.upper - 1}
            since = max(view.since for view in views.values())
            if since < manifest.upper:
                times.add(self.rng.randint(max(since, manifest.upper - 30), manifest.upper - 1))
            for time in sorted(times):
                self.compare(manifest, views, time)
        return f"epoch {manifest.epoch} to {manifest.upper}"

    def compare(self, manifest: Manifest, views: Mapping[str, View], time: int) -> None:
        found = {}
        for name, view in views.items():
            found[name] = {tuple(row) for row in view.rows_as_of(time).flat().rows.tolist()}
        pairs = self.pairs(manifest, time)
        counts: Counter[int] = Counter()
        for (_, value), count in pairs.items():
            counts[value] += count
        assert found["sums"] == sums_of(pairs), f"sums at {time}"
        assert found["late"] == sums_of(self.pairs(manifest, time - DELAY)), f"late at {time}"
        both = {(key, value) for (key, value), count in pairs.items() if count > 0 and counts[value] > 1}
        assert found["shared"] == both, f"shared at {time}"
        late = self.pairs(manifest, time - DELAY)
        stored = np.array(list(found["named"]), np.int64).reshape(-1, views["named"].stored.width)
        named = views["named"].stored.decode_rows(stored, views["named"].heap)
        assert set(named) == {(f"{NAME}{value}", key) for (key, value), count in late.items() if count > 0}
        if "values" in found:
            flipped = sums_of(Counter({(value, key): count for (key, value), count in pairs.items()}))
            assert found["values"] == {row[:2] for row in flipped}, f"values at {time}"

    def pairs(self, manifest: Manifest, time: int) -> Counter[tuple[int, int]]:
        """What the messages that an epoch has consumed add up to, as of a time."""
        rows: Counter[tuple[int, int]] = Counter()
        for at, messages in enumerate(self.sent):
            for updates in messages[: manifest.offsets.get(TOPIC, {}).get(at, 0)]:
                for key, value, when, diff in updates:
                    rows[key, value] += diff * (when <= time)
        return Counter({row: count for row, count in rows.items() if count})

    def finish(self) -> None:
        """No more faults: everything is promised and read, answers are final, the state is sound, letters are sent."""
        end = max(self.promised) + 100
        for at in range(PARTITIONS):
            self.promise(at, end)
        service = self.start()
        while service.epochs.newest is None or service.epochs.newest.upper < end:
            service.epoch([50] * PARTITIONS)
        self.look()
        assert self.reader.snapshot is not None
        assert self.reader.snapshot.manifest.upper == end
        assert sorted(self.topic.letters) == sorted(self.bad)
        checked = StateDirectory(WHERE, self.machine.process().blob)
        assert audit(checked).problems == []
        self.log.append(self.told(service))


def sums_of(pairs: Counter[tuple[int, int]]) -> set[tuple[int, ...]]:
    """Key, total and count of each group that is not all zero: copies of different rows may cancel each other."""
    totals: dict[int, list[int]] = {}
    for (key, value), count in pairs.items():
        total = totals.setdefault(key, [0, 0])
        total[0] += value * count
        total[1] += count
    return {(key, *total) for key, total in totals.items() if any(total)}


def run_all(seeds: Iterable[int], kind: Callable[[object], Machine] = DiskMachine) -> None:
    for seed in seeds:
        simulation = Simulation(seed, kind)
        try:
            simulation.run()
        except BaseException as problem:
            problem.add_note(f"seed {seed}, after: " + "; ".join(simulation.log))
            raise


@pytest.mark.parametrize("kind", [DiskMachine, StoreMachine])
@pytest.mark.parametrize("first", [0, 20])
def test_whatever_happens_answers_are_those_of_the_log(first: int, kind: Callable[[object], Machine]) -> None:
    run_all(range(first, first + shorter(20)), kind)


@pytest.mark.parametrize("kind", [DiskMachine, StoreMachine])
def test_one_seed_gives_one_log(kind: Callable[[object], Machine]) -> None:
    logs = [Simulation(seed, kind).run() for seed in (3, 3, 4)]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


@pytest.mark.parametrize("gone", [None, lambda: False, lambda: True], ids=["tasks", "handed out", "a worker is gone"])
def test_nothing_of_a_replaced_topic_is_committed(gone: Callable[[], bool] | None) -> None:
    topic = Log()
    service = SimService(DiskMachine(0), topic, 2, "s", gone=gone)
    for at in range(3):
        topic.updates(0, [(at, 1, 10 * at, 1)])
        topic.progress(1, 10 * at)
        service.epoch([1, 1])
    assert service.epochs.reached == 3
    service.replaced = True
    topic.updates(0, [(7, 7, 70, 1)])
    with pytest.raises(TopicReplaced):
        service.epoch([1, 1])
    assert service.epochs.reached == 3
    service.replaced = False
    service.requery()
    service.epoch([1, 1])
    assert service.epochs.reached == 4


def read_again(*_: object) -> None:
    """Messages that an earlier epoch consumed are taken again."""


def everyone(index: int, workers: int) -> tuple[int, int]:
    """Every worker opens whole batches when the number of workers changes."""
    return LOWEST, HIGHEST


def forget_held(width: int, arrays: object, ref: object) -> HeldUpdates:
    """What is held does not survive a restart."""
    return HeldUpdates.open(width, {name: array[:0] for name, array in arrays.items()}, ref)  # type: ignore[attr-defined]


_close, _base = Trace.close_slice, worker._base


def anywhere(plan: object, queue: str) -> None:
    """When the number of workers changes, what operators hold stays with the first worker."""


def hot_by_number(process: SimProcess, assigned: Assign, epoch: int, attempt: str) -> Shard:
    """A shard in memory is used for the shard of the same number, however many there were."""
    for one in process.shards.get(assigned.shard, ()):
        if (one.epoch, one.attempt) == (epoch, attempt):
            return one
    return _base(process, assigned, epoch, attempt)


def forget_texts(arrays: object) -> Texts:
    """Contents of long texts do not survive a restart."""
    return Texts.empty()


def compact_all(trace: Trace, since: int) -> None:
    """Compaction goes past the times that readers may still read."""
    _close(trace, since + 20)
    trace.since = since


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (records, "_mark_consumed", read_again),
        (reshard, "hash_range", everyone),
        (HeldUpdates, "open", staticmethod(forget_held)),
        (shard, "_placement", anywhere),
        (Trace, "close_slice", compact_all),
        (Texts, "of_arrays", staticmethod(forget_texts)),
        (worker, "_base", hot_by_number),
        (shard, "read_dead_letters", None),
    ],
    ids=["offsets", "ranges", "held", "queues", "since", "texts", "hot", "letters"],
)
def test_a_planted_bug_is_found(
    owner: object, name: str, bug: Callable[..., object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bug is None:
        monkeypatch.setattr("tests.crash.simservice.read_dead_letters", lambda entry: [])
    else:
        monkeypatch.setattr(owner, name, bug)
    found = (AssertionError, StorageError, EpochFailed, EpochConflict, OwnershipLost, RecursionError, TextMissing)
    with pytest.raises(found):
        run_all(range(30))
