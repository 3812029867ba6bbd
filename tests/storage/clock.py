"""A clock that stands still until a test moves it, blobs that go by it, and the patience that a lock of a silent owner
takes."""

from vernier.storage.blob.blob import Blob, HeldLock
from vernier.storage.blob.leases import BEATS, LOCK_MS
from vernier.storage.blob.object_store import ObjectBlob, Store
from vernier.storage.errors import StateInUse
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory


class Clock:
    """Milliseconds."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms

    def taken(self, blob: Blob, silence_ms: int = LOCK_MS) -> HeldLock | None:
        """Take a lock, looking at it for as long as its holder may be silent."""
        for _ in range(BEATS):
            if held := blob.lock("LOCK"):
                return held
            self.ms += silence_ms // BEATS
        return blob.lock("LOCK")

    def acquired(self, state: StateDirectory) -> Manifest | None:
        """Acquire a directory whose owner is silent."""
        for _ in range(BEATS):
            try:
                return state.acquire()
            except StateInUse:
                self.ms += LOCK_MS // BEATS
        return state.acquire()


def blob_of(store: Store, clock: Clock) -> ObjectBlob:
    """Another process's view of a store."""
    return ObjectBlob("sim://state", store, clock, beating=False)
