"""Leases: a reader says which epoch it reads, and collection leaves that epoch's files alone.

A lease is a name `leases/<epoch>.<pid>.<serial>` that its reader holds: by flock, which the kernel drops when the
reader is gone, however it went, or in an object store by a claim that runs out. A dead reader's lease so expires by
itself, and whoever looks next removes it. The process id in the name is for people.
"""

from vernier.storage.blob.blob import Blob, Held

FOLDER = "leases"


class Lease:
    """A held lease; release it, or use it as a context manager."""

    def __init__(self, epoch: int, held: Held) -> None:
        self.epoch = epoch
        self._held = held

    def release(self) -> None:
        """Give the lease back; doing so twice is fine."""
        self._held.release()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The leases in one state directory, for readers and for whoever collects."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob

    def take(self, epoch: int) -> Lease:
        """Hold an epoch. The caller must check *afterwards* that the epoch's manifest is still there."""
        return Lease(epoch, self._blob.hold(f"{FOLDER}/{epoch:012d}"))

    def epochs(self) -> set[int]:
        """The epochs that living readers hold; removes the leases of dead ones. O(leases)."""
        names = (name.removeprefix(f"{FOLDER}/") for name in self._blob.present(FOLDER))
        return {int(name.partition(".")[0]) for name in names}
