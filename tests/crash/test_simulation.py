"""A seeded simulation of the state directory: one thread, a fake disk or store, a fake clock, and a `Random` that
chooses what happens next.

The service commits, collects with different limits, sweeps, fails and is started again; a second one is refused;
readers come, hold epochs and go, or are killed; disks fill; machines lose power, or sleep. After every step all that
must hold is checked.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.crash.faults import Crash, Fault, Faults
from tests.crash.machines import WHERE, DiskMachine, Machine, StoreMachine, chosen
from tests.crash.workload import Rows, Service, add_rows, rows_in, updates_of
from tests.profiles import shorter
from vernier.storage.blob.leases import Claim, Claims
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.errors import (
    DiskFull,
    EpochGone,
    FileFailed,
    NothingCommitted,
    OwnershipLost,
    StateInUse,
    StorageError,
)
from vernier.storage.state import rollups
from vernier.storage.state.garbage import Garbage
from vernier.storage.state.lease import Leases, ReadLease
from vernier.storage.state.state import StateDirectory

STEPS = 40
FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN_WRITE, Fault.DISK_FULL, Fault.LOST_REPLY)


@pytest.fixture(autouse=True)
def _some_rollups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a rollup every few epochs."""
    monkeypatch.setattr(rollups, "ROLL_UP_EVERY", 3)


class Simulation:
    """One run of one seed; `log` says what happened."""

    def __init__(self, seed: int, kind: Callable[[object], Machine] = DiskMachine) -> None:
        self.rng = random.Random(seed)
        self.machine = kind(seed)
        self.log: list[str] = []
        self.acknowledged = 0
        self.starts = 0
        self.expected: list[Rows] = [Counter()]
        self.readers: list[tuple[Faults, StateDirectory, ReadLease]] = []
        self.process = self.machine.process()
        self.service: Service | None = None

    def run(self) -> list[str]:
        for _ in range(STEPS):
            actions = [
                (self.step, 12),
                (self.fail, 4),
                (self.sweep, 1),
                (self.read, 4),
                (self.leave, 2),
                (self.cut_power, 1),
                (self.sleep, 1),
                (self.intrude, 1),
            ]
            action = chosen(self.rng, actions)
            self.log.append(f"{action.__name__}: {action()}")
            self.machine.tick()
            self.check()
        return [*self.log, *self.process.faults.calls]

    def start(self) -> Service:
        """The service, started if it is not running."""
        if self.service is None:
            self.starts += 1
            self.machine.wait()
            self.process = self.machine.process()
            self.service = Service(self.process.blob, attempt=f"a{self.starts}")
            assert self.service.state.damaged == []
            assert self.acknowledged <= self.service.epoch <= self.acknowledged + 1
            self.acknowledged = self.service.epoch
        return self.service

    def step(self) -> str:
        service = self.start()
        service.step(self.rng.choice((0, 2, 3, 5)))
        self.acknowledged = service.epoch
        return f"epoch {service.epoch}"

    def fail(self) -> str:
        """An epoch at one of whose calls something goes wrong."""
        service = self.start()
        fault, call = self.rng.choice(FAULTS), self.rng.randint(1, 20)
        self.process.faults.fail_later(fault, call)
        try:
            service.step()
        except Crash:
            self.service = None
        except StorageError as problem:
            expected = DiskFull if fault is Fault.DISK_FULL else FileFailed
            if not isinstance(problem, expected):
                raise
            if problem.may_have_happened or self.rng.random() < 0.3:
                self.process.faults.end()
                self.service = None
            else:
                service.newest = service.state.latest()
                service.take_up()
        self.process.faults.repair()
        self.acknowledged = max(self.acknowledged, service.epoch)
        return f"{fault.name} at call {call}, then epoch {self.acknowledged}"

    def sweep(self) -> str:
        return f"{self.start().state.sweep()} files"

    def read(self) -> str:
        process = self.machine.process()
        state = StateDirectory(WHERE, process.blob)
        try:
            lease = state.lease(self.rng.choice((None, None, max(1, self.acknowledged - self.rng.randint(0, 3)))))
        except (NothingCommitted, EpochGone) as problem:
            return type(problem).__name__
        self.readers.append((process.faults, state, lease))
        return f"epoch {lease.epoch}"

    def leave(self) -> str:
        if not self.readers:
            return "no process"
        process, _, lease = self.readers.pop(self.rng.randrange(len(self.readers)))
        if self.rng.random() < 0.5:
            lease.release()
            return f"epoch {lease.epoch} released"
        process.end()
        return f"epoch {lease.epoch} killed"

    def cut_power(self) -> str:
        for process in (self.process.faults, *(process for process, _, _ in self.readers)):
            process.end()
        self.machine.cut_power()
        self.readers.clear()
        self.service = None
        return f"after epoch {self.acknowledged}"

    def sleep(self) -> str:
        """No process runs for a long time. An owner whose lock another one took meanwhile must notice it before it does
        any harm; if no process took it, it goes on."""
        service = self.start()
        if not self.machine.sleep():
            return "nothing"
        # What readers held may be gone.
        for process, _, _ in self.readers:
            process.end()
        self.readers.clear()
        if self.rng.random() < 0.5:
            return f"no process took the lock: {self.step()}"
        old, self.service = self.process, None
        self.machine.stop(old)
        self.start()
        for operation in (service.step, service.state.sweep, lambda: service.state.gc(2)):
            with pytest.raises(OwnershipLost):
                operation()
        old.faults.end()
        return "the lock is lost"

    def intrude(self) -> str:
        """A second service on the same state is refused."""
        self.start()
        process = self.machine.process()
        with pytest.raises(StateInUse):
            Service(process.blob)
        process.faults.end()
        return "refused"

    def check(self) -> None:
        """What readers hold is there and right; so is what the newest manifest says; HEAD shows what is committed."""
        for _, state, lease in self.readers:
            assert rows_in(state, lease.manifest) == self.rows_until(lease.epoch)
        outside = StateDirectory(WHERE, self.machine.process().blob)
        newest = outside.latest()
        assert (newest.epoch if newest else 0) in (self.acknowledged, self.acknowledged + 1)
        if newest is not None:
            assert rows_in(outside, newest) == self.rows_until(newest.epoch)
        if self.service is not None:
            assert outside.head() <= self.acknowledged

    def rows_until(self, epoch: int) -> Rows:
        while len(self.expected) <= epoch:
            total = Counter(self.expected[-1])
            add_rows(total, updates_of(len(self.expected)))
            self.expected.append(Counter({row: count for row, count in total.items() if count}))
        return self.expected[epoch]


def run_all(seeds: Iterable[int], kind: Callable[[object], Machine] = DiskMachine) -> None:
    for seed in seeds:
        simulation = Simulation(seed, kind)
        try:
            simulation.run()
        except BaseException as problem:
            problem.add_note(f"seed {seed}, after: " + "; ".join(simulation.log))
            raise


@pytest.mark.parametrize("kind", [DiskMachine, StoreMachine])
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_whatever_happens_epochs_are_whole_and_readers_safe(first: int, kind: Callable[[object], Machine]) -> None:
    run_all(range(first, first + shorter(25)), kind)


@pytest.mark.parametrize("kind", [DiskMachine, StoreMachine])
def test_one_seed_gives_one_log(kind: Callable[[object], Machine]) -> None:
    assert Simulation(7, kind).run() == Simulation(7, kind).run()
    assert Simulation(7, kind).run() != Simulation(8, kind).run()


def never_lost(claim: Claim) -> None:
    """An owner that does not look whether it still is one."""


def any_time(claims: Claims, chain: str) -> Claim | None:
    """A lock that every process gets."""
    name = f"{chain}/{len(claims._objects.list(chain)) + 1:012d}"
    claim = Claim(claims, name, claims.elapsed(), chain=chain, alone=True)
    claims.write(claim)
    return claims._hold(claim)


def no_sync(blob: LocalBlob, folder: str) -> None:
    """A commit that does not make its name durable."""


def no_epochs(leases: Leases) -> set[int]:
    """A collection that does not ask for leases."""
    return set()


def forget_twice(garbage: Garbage, epoch: int) -> None:
    """A collection that loses count of who uses a segment."""
    for name in garbage._kept.pop(epoch):
        garbage._uses[name] -= 2
        if garbage._uses[name] <= 0:
            garbage._garbage.add(name)


@pytest.mark.parametrize(
    ("owner", "name", "bug", "kind"),
    [
        (LocalBlob, "sync", no_sync, DiskMachine),
        (Leases, "epochs", no_epochs, DiskMachine),
        (Garbage, "_forget", forget_twice, DiskMachine),
        (Leases, "epochs", no_epochs, StoreMachine),
        (Claim, "check", never_lost, StoreMachine),
        (Claims, "lock", any_time, StoreMachine),
    ],
    ids=["sync", "leases", "counts", "claimed leases", "lost claims", "locks"],
)
def test_a_planted_bug_is_found(
    owner: type[object],
    name: str,
    bug: Callable[..., object],
    kind: Callable[[object], Machine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, StorageError, pytest.fail.Exception)):
        run_all(range(50), kind)
