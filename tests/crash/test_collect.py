"""Each call of a collection that has readers, and of a reader, failed in every way: what is held stays, no more."""

import contextlib

import pytest

from tests.crash.faults import Crash, Fault
from tests.crash.machines import WHERE, DiskMachine, Machine, Process, StoreMachine
from tests.crash.workload import Service, files, rows_in, rows_until
from vernier.storage.blob.segment import segment_file
from vernier.storage.errors import DiskFull, EpochGone, StorageError
from vernier.storage.state.lease import ReadLease
from vernier.storage.state.manifest import manifest_file
from vernier.storage.state.state import StateDirectory

FAULTS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_REPLY, Fault.DISK_FULL]
LAST = 6
kinds = pytest.mark.parametrize("kind", [DiskMachine, StoreMachine])


class Collection:
    """Six epochs, of which a reader holds the second; another comes for the third while collection decides."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = machine
        self.process = machine.process()
        self.service = Service(self.process.blob)
        while self.service.epoch < LAST:
            self.service.step(keep=100)
        self.readers: list[tuple[StateDirectory, ReadLease]] = []
        self.read(2)
        rename = type(self.process.blob).rename

        def hide(blob: object, old: str, new: str) -> None:
            if old == manifest_file(1) and len(self.readers) == 1:
                self.read(3)
            rename(blob, old, new)  # type: ignore[arg-type]

        monkeypatch.setattr(type(self.process.blob), "rename", hide)

    def read(self, epoch: int) -> None:
        reader = StateDirectory(WHERE, self.machine.process().blob)
        self.readers.append((reader, reader.lease(epoch)))

    def check(self) -> None:
        """What readers hold can be read, all of it."""
        for reader, lease in self.readers:
            assert rows_in(reader, lease.manifest) == rows_until(lease.epoch)

    def finish(self, service: Service) -> None:
        """Collect as often as one may, while readers are there and after; nothing of what is held goes, all else."""
        for _ in range(2):
            service.state.gc(2)
        held = [lease.epoch for _, lease in self.readers]
        assert service.state.epochs() == [*held, LAST - 1, LAST]
        self.check()
        for _, lease in self.readers:
            lease.release()
        service.state.gc(2)
        service.state.sweep()
        kept = [service.state.manifest(epoch) for epoch in (LAST - 1, LAST)]
        segments: set[str] = set().union(*(found.segments() for found in kept))
        assert files(service.state) == sorted([*map(segment_file, segments), *(manifest_file(e) for e in (5, 6))])
        assert rows_in(service.state, kept[-1]) == rows_until(LAST)


def fails(process: Process, fault: Fault, call: int, service: Service) -> bool:
    """Collect with a fault at a call to come; whether it was reached."""
    before = len(process.faults.calls)
    process.faults.fail_later(fault, call)
    try:
        service.state.gc(2)
    except Crash:
        assert process.faults.crashed
    except DiskFull:
        assert fault is Fault.DISK_FULL
    except StorageError:
        assert fault is Fault.LOST_REPLY
    return len(process.faults.calls) >= before + call


@kinds
@pytest.mark.parametrize("fault", FAULTS)
def test_a_collection_that_fails_at_any_call(
    kind: type[Machine], fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, reached = 0, True
    while reached:
        call += 1
        with monkeypatch.context() as patch:
            run = Collection(kind(), patch)
            reached = fails(run.process, fault, call, run.service)
            run.check()
            run.process.faults.repair()
            if run.process.faults.crashed or call % 2:
                run.process.faults.end()
                run.machine.wait()
                run.check()
                again = Service(run.machine.process().blob, attempt="b")
                assert again.epoch == LAST
                assert again.state.damaged == []
                run.finish(again)
            else:
                # The same process goes on, and tries again.
                run.finish(run.service)
    assert call > 8


@kinds
def test_a_crash_in_recovery_after_a_crash_in_collection(kind: type[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(1, 30, 3):
        for second in range(1, 30, 4):
            with monkeypatch.context() as patch:
                run = Collection(kind(), patch)
                fails(run.process, Fault.CRASH_AFTER, first, run.service)
                run.process.faults.end()
                run.machine.wait()
                process = run.machine.process(Fault.CRASH_BEFORE, second)
                with contextlib.suppress(Crash):
                    Service(process.blob).state.gc(2)
                process.faults.end()
                run.check()
                run.machine.wait()
                run.finish(Service(run.machine.process().blob, attempt="c"))


@kinds
@pytest.mark.parametrize("fault", FAULTS)
def test_a_reader_that_fails_at_any_call_holds_nothing_for_long(kind: type[Machine], fault: Fault) -> None:
    call, reached = 0, True
    while reached:
        call += 1
        machine = kind()
        service = Service(machine.process().blob)
        while service.epoch < LAST:
            service.step(keep=100)
        process = machine.process(fault, call)
        reader = StateDirectory(WHERE, process.blob)
        with contextlib.suppress(Crash, StorageError), reader.lease(2) as lease:
            service.state.gc(2)
            assert rows_in(reader, lease.manifest) == rows_until(2)
        reached = process.faults.reached
        process.faults.end()
        machine.wait()
        service.state.gc(2)
        assert service.state.epochs() == [LAST - 1, LAST]
        assert service.state.blob.list("leases") == []
    assert call > 2


@kinds
def test_a_lease_that_comes_too_late_is_refused(kind: type[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Collection has looked for the second time: the reader must not find the manifest any more."""
    machine = kind()
    service = Service(machine.process().blob)
    while service.epoch < LAST:
        service.step(keep=100)
    reader = StateDirectory(WHERE, machine.process().blob)
    leases = service.state._leases
    looked = leases.epochs
    seen: list[object] = []

    def late() -> set[int]:
        found = looked()
        seen.append(found)
        if len(seen) == 2:
            with pytest.raises(EpochGone):
                reader.lease(1)
        return found

    monkeypatch.setattr(leases, "epochs", late)
    service.state.gc(2)
    assert len(seen) == 2
    assert service.state.epochs() == [LAST - 1, LAST]
