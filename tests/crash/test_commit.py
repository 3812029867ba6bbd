"""Every storage call of a run of commits, failed in every way: a whole prefix of epochs is left, and can go on.

A run writes, merges, commits and collects; on a disk, where a power cut loses what was not synced, and in an object
store.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from tests.crash.faults import Crash, Fault, FaultyDisk
from tests.crash.machines import DiskMachine, Machine, Process, StoreMachine
from tests.crash.workload import EPOCHS, KEEP, Service, files, rows_in, rows_until, shape
from tests.profiles import shorter
from vernier.storage.blob.blob import Blob
from vernier.storage.blob.disk import OsDisk
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.segment import segment_file
from vernier.storage.errors import DiskFull, StorageError
from vernier.storage.state import rollups
from vernier.storage.state import state as state_module
from vernier.storage.state.manifest import manifest_file
from vernier.storage.state.state import StateDirectory

Result = TypeVar("Result")

KINDS = [DiskMachine, StoreMachine]


@pytest.fixture(autouse=True)
def _some_batches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the larger batches have segments of their own, as in life."""
    monkeypatch.setattr(state_module, "ALONE", 600)


@pytest.fixture(autouse=True)
def _some_rollups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a rollup in every second epoch or so."""
    monkeypatch.setattr(rollups, "ROLL_UP_EVERY", 2)


def unbroken(machine: Machine) -> tuple[list[list[object]], int]:
    """What a run without faults ends with, and how many calls it makes."""
    process = machine.process()
    service = Service(process.blob)
    service.run()
    assert service.newest is not None
    return shape(service.newest), len(process.faults.calls)


def check_and_finish(blob: Blob, acknowledged: int, expected: list[list[object]]) -> None:
    """Reopen: a whole prefix, with all that was acknowledged; go on to the end; nothing is left over."""
    service = Service(blob, attempt="b")
    assert acknowledged <= service.epoch <= acknowledged + 1
    assert service.state.head() == service.epoch
    if service.newest is not None:
        assert rows_in(service.state, service.newest) == rows_until(service.epoch)
    assert service.state.damaged == []
    service.run()
    check_end(service, expected)
    service.state.release()


def check_end(service: Service, expected: list[list[object]]) -> None:
    newest = service.newest
    assert newest is not None
    assert newest.epoch == EPOCHS
    assert shape(newest) == expected
    assert rows_in(service.state, newest) == rows_until(EPOCHS)
    service.state.gc(KEEP)
    service.state.sweep()
    kept = [service.state.manifest(epoch) for epoch in range(EPOCHS - KEEP + 1, EPOCHS + 1)]
    segments: set[str] = set().union(*(found.segments() for found in kept))
    needed = [*map(segment_file, segments), *(manifest_file(found.epoch) for found in kept)]
    assert files(service.state) == sorted(needed)


def run_until_crash(process: Process) -> int:
    """Run until the fault strikes; returns the newest epoch whose commit returned."""
    service = None
    try:
        service = Service(process.blob)
        while service.epoch < EPOCHS:
            service.step()
    except Crash:
        pass
    return service.epoch if service is not None else 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN_WRITE])
@pytest.mark.parametrize("power_cut", [False, True], ids=["process", "power"])
def test_crash_at_every_call(kind: type[Machine], fault: Fault, power_cut: bool) -> None:
    """The process ends at call n; with it, or not, the machine, which then loses all that was not synced."""
    expected, calls = unbroken(kind())
    for call in range(1, calls + 1):
        for seed in range(3 if power_cut and kind is DiskMachine else 1):
            machine = kind(f"{call} {seed}")  # type: ignore[call-arg]
            process = machine.process(fault, call)
            acknowledged = run_until_crash(process)
            assert process.faults.reached
            if power_cut:
                machine.cut_power()
            machine.wait()
            check_and_finish(machine.process().blob, acknowledged, expected)


def test_crash_at_every_call_of_a_real_disk(tmp_path_factory: pytest.TempPathFactory) -> None:
    expected, calls = unbroken(DiskMachine())
    for call in range(1, calls + 1):
        path = tmp_path_factory.mktemp("state")
        disk = FaultyDisk(OsDisk(), Fault.CRASH_AFTER if call % 2 else Fault.TORN_WRITE, call)
        acknowledged = run_until_crash(Process(LocalBlob(path, disk), disk))
        assert disk.reached
        check_and_finish(LocalBlob(path), acknowledged, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_two_crashes_in_a_row(kind: type[Machine]) -> None:
    """The recovery from a crash may crash as well, at any call."""
    expected, calls = unbroken(kind())
    for seed in range(shorter(300 if kind is DiskMachine else 100)):
        rng = random.Random(seed)
        machine = kind(seed)  # type: ignore[call-arg]
        acknowledged = run_until_crash(machine.process(Fault.CRASH_AFTER, rng.randint(1, calls)))
        while True:
            process = machine.process(rng.choice((Fault.CRASH_BEFORE, Fault.TORN_WRITE)), rng.randint(1, 40))
            if rng.random() < 0.5:
                machine.cut_power()
            machine.wait()
            acknowledged = max(acknowledged, run_until_crash(process))
            if not process.faults.crashed:
                process.faults.end()
                break
        machine.wait()
        check_and_finish(machine.process().blob, acknowledged, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [Fault.DISK_FULL, Fault.LOST_REPLY])
def test_errors_at_every_call_leave_the_state_valid(kind: type[Machine], fault: Fault) -> None:
    """A failed epoch raises one error that says what is wrong; the state is whole, and the next try goes on."""
    expected, calls = unbroken(kind())
    for call in range(1, calls + 1):
        machine = kind(call)  # type: ignore[call-arg]
        process = machine.process(fault, call)
        problems: list[StorageError] = []
        service = attempt(partial(Service, process.blob), problems)
        while service is not None and service.epoch < EPOCHS and not problems:
            attempt(service.step, problems)
        if fault is Fault.DISK_FULL:
            assert all(isinstance(problem, DiskFull) for problem in problems)
            assert all("no space left in /state" in str(problem) for problem in problems)
        reader = StateDirectory("/state", machine.process().blob)
        seen = reader.latest()
        if seen is not None:
            assert rows_in(reader, seen) == rows_until(seen.epoch)
        process.faults.repair()
        if service is not None and not any(problem.may_have_happened for problem in problems):
            # The same process goes on: it tries the epoch again from the newest manifest.
            service.newest = service.state.latest()
            service.take_up()
            problems.clear()
            while service.epoch < EPOCHS and not problems:
                attempt(service.step, problems)
        if service is not None and not problems:
            check_end(service, expected)
        else:
            process.faults.end()
            machine.wait()
            acknowledged = service.epoch if service is not None else 0
            check_and_finish(machine.process().blob, acknowledged, expected)


def attempt(call: Callable[[], Result], problems: list[StorageError]) -> Result | None:
    try:
        return call()
    except StorageError as problem:
        problems.append(problem)
        return None
