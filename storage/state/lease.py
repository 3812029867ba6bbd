"""Leases: a reader declares which epoch it reads, and garbage collection keeps that epoch's files.

A lease is a name `leases/<epoch>.<pid>.<serial>` that its reader holds. On a file system it is an flock, which the
kernel releases when the reader ends, however it ends; in an object store it is a claim that expires. A dead reader's
lease therefore expires by itself, and the next process that lists the leases deletes it. The process id in the name is
for people.
"""

from vernier.storage.blob.blob import Blob, HeldLock
from vernier.storage.state.manifest import Manifest

FOLDER = "leases"


class Lease:
    """A held lease; release it, or use it as a context manager."""

    def __init__(self, epoch: int, held: HeldLock) -> None:
        self.epoch = epoch
        self._held = held

    def release(self) -> None:
        """Release the lease; idempotent."""
        self._held.release()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class ReadLease:
    """An epoch that is safe to read: its manifest, and a lease on its files until `release`."""

    def __init__(self, held: Lease, found: Manifest) -> None:
        self._held = held
        self.manifest = found

    @property
    def epoch(self) -> int:
        """The leased epoch."""
        return self._held.epoch

    def release(self) -> None:
        """Release the lease; idempotent."""
        self._held.release()

    def __enter__(self) -> "ReadLease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The leases in one state directory, for readers and for the garbage collector."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob

    def take(self, epoch: int) -> Lease:
        """Take a lease on an epoch. The caller must check *afterwards* that the epoch's manifest still exists."""
        return Lease(epoch, self._blob.hold(f"{FOLDER}/{epoch:012d}"))

    def epochs(self) -> set[int]:
        """The epochs that live readers hold; deletes the leases of dead readers. O(leases)."""
        names = (name.removeprefix(f"{FOLDER}/") for name in self._blob.present(FOLDER))
        return {int(name.partition(".")[0]) for name in names}
