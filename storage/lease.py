"""Leases: a reader says which epoch it reads, and collection leaves that epoch's files alone.

A lease is a file `leases/<epoch>.<pid>.<serial>` on which the reader holds an flock. The kernel drops the lock when the
reader is gone, however it went, so a dead reader's lease expires by itself: whoever then gets the lock removes the
file. The process id in the name is for people; in other containers it may be another's, and the lock still tells them
apart.
"""

import itertools
import os

from storage.blob import Blob, Held

FOLDER = "leases"


class Lease:
    """A held lease; release it, or use it as a context manager."""

    def __init__(self, blob: Blob, name: str, epoch: int, held: Held) -> None:
        self.epoch = epoch
        self._blob, self._name = blob, name
        self._held: Held | None = held

    def release(self) -> None:
        """Give the lease back; doing so twice is fine."""
        held, self._held = self._held, None
        if held is not None:
            # The name goes first: after the unlock, another lease could have been made under it.
            self._blob.delete(self._name)
            held.release()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The leases in one state directory, for readers and for whoever collects."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._serial = itertools.count()

    def take(self, epoch: int) -> Lease:
        """Hold an epoch. The caller must check *afterwards* that the epoch's manifest is still there."""
        while True:
            name = f"{FOLDER}/{epoch:012d}.{os.getpid()}.{next(self._serial)}"
            held = self._blob.lock(name, exclusive=True)
            # Refused where another reader has this name, or a collector is just removing the file of a dead one.
            if held is not None:
                return Lease(self._blob, name, epoch, held)

    def epochs(self) -> set[int]:
        """The epochs that living readers hold; removes the leases of dead ones. O(leases)."""
        living = set()
        for name in self._blob.list(FOLDER):
            held = self._blob.lock(name, exclusive=True)
            if held is None:
                epoch, _, _ = name.removeprefix(f"{FOLDER}/").partition(".")
                living.add(int(epoch))
            else:
                self._blob.delete(name)
                held.release()
        return living
