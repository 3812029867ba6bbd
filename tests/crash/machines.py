"""Machines that a service may run on: with a disk of its own, or on an object store somewhere else.

`process` gives a new process on the machine: the files as it sees them, and the faults that can strike it.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tests.crash.faults import Fault, Faults, FaultyDisk, FaultyStore
from tests.crash.simdisk import SimDisk
from tests.crash.simstore import SimStore
from vernier.storage.blob.blob import Blob, HeldLock
from vernier.storage.blob.leases import BEATS, LOCK_MS, TTL_MS
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.object_store import ObjectBlob

WHERE = "/state"


def chosen(rng: random.Random, actions: Sequence[tuple[Callable[[], str], int]]) -> Callable[[], str]:
    """One of the actions, each with its weight."""
    choices, weights = zip(*actions, strict=True)
    action: Callable[[], str] = rng.choices(choices, weights)[0]
    return action


class Process(NamedTuple):
    """A process: its files, and what fails of them."""

    blob: Blob
    faults: Faults


class Machine(Protocol):
    """What all machines can do."""

    def process(self, fault: Fault = Fault.CRASH_BEFORE, at: int = 0) -> Process:
        """A new process, whose `at`-th call fails."""
        ...

    def cut_power(self) -> None:
        """All processes end, and the machine starts again."""
        ...

    def wait(self) -> None:
        """As long as it takes until the leases of processes that have ended are gone."""
        ...

    def tick(self) -> None:
        """A moment passes; locks of processes that live are kept."""
        ...

    def sleep(self) -> bool:
        """A long time passes in which no process runs; whether others may take their locks then."""
        ...

    def stop(self, process: Process) -> None:
        """A process stands still from now on: it sends no heartbeats."""
        ...


class DiskMachine:
    """A disk that loses at a power cut what was not synced."""

    def __init__(self, seed: object = 0) -> None:
        self.disk = SimDisk(random.Random(str(seed)))

    def process(self, fault: Fault = Fault.CRASH_BEFORE, at: int = 0) -> Process:
        faulty = FaultyDisk(self.disk, fault, at)
        return Process(LocalBlob(WHERE, faulty), faulty)

    def cut_power(self) -> None:
        self.disk.cut_power()

    def wait(self) -> None:
        pass

    def tick(self) -> None:
        pass

    def sleep(self) -> bool:
        return False

    def stop(self, process: Process) -> None:
        pass


class _PatientBlob(ObjectBlob):
    """Looks at a lock that another process holds until it is clear whether that process lives."""

    def __init__(self, machine: "StoreMachine", store: FaultyStore, owner: str) -> None:
        super().__init__(WHERE, store, lambda: machine.ms, owner=owner, beating=False)
        self._machine = machine

    def lock(self, name: str) -> HeldLock | None:
        for _ in range(BEATS + 1):
            if held := super().lock(name):
                return held
            self._machine.tick()
        return super().lock(name)


class StoreMachine:
    """An object store and a clock; claims are kept alive by `tick`, not by threads."""

    def __init__(self, seed: object = 0) -> None:
        self.store = SimStore()
        self.ms = 1_000_000
        self._names = itertools.count()
        self._living: list[tuple[FaultyStore, ObjectBlob]] = []

    def process(self, fault: Fault = Fault.CRASH_BEFORE, at: int = 0) -> Process:
        faulty = FaultyStore(self.store, fault, at)
        blob = _PatientBlob(self, faulty, f"p{next(self._names)}")
        self._living.append((faulty, blob))
        return Process(blob, faulty)

    def stop(self, process: Process) -> None:
        self._living = [(faulty, blob) for faulty, blob in self._living if blob is not process.blob]

    def cut_power(self) -> None:
        self._living.clear()
        self.wait()

    def wait(self) -> None:
        for _ in range(BEATS * TTL_MS // LOCK_MS + 1):
            self.tick()

    def sleep(self) -> bool:
        self.ms += 2 * TTL_MS
        return True

    def tick(self) -> None:
        self.ms += LOCK_MS // BEATS
        self._living = [(faulty, blob) for faulty, blob in self._living if not faulty.crashed]
        for _, blob in self._living:
            blob.claims.beat()
