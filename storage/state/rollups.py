"""The rollups of a state directory: which are in memory, and when its owner begins the next one."""

import msgspec

from vernier.storage.blob.blob import Blob
from vernier.storage.blob.segment import open_segment, write_segment
from vernier.storage.state import rollup
from vernier.storage.state.manifest import EPOCH_DIGITS, NO_EPOCH, BatchRef, Manifest, Written
from vernier.storage.state.rollup import Rollup

ROLL_UP_EVERY = 32
"""The least number of epochs from one rollup to the next."""

_MOST = 3
"""How many rollups are kept in memory: the newest, and those of epochs that readers are at."""


class Rollups:
    """The rollups of one state directory, for its owner and for readers."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._rollups: dict[BatchRef, Rollup] = {}
        self._deltas = 0

    def written(self, new: Manifest, newest: Manifest | None) -> tuple[Written, int]:
        """What to write for a manifest, and the bytes of that which a rollup would have saved. Begins a rollup if that
        costs less than what the manifests since the last one have repeated."""
        base = None if newest is None or newest.rollup is None else self.find(newest.rollup)
        begun = NO_EPOCH if base is None else int(base.ref.segment[:EPOCH_DIGITS])
        if new.epoch - begun >= ROLL_UP_EVERY and (base is None or self._deltas >= base.nbytes):
            base = self._roll_up(new)
        if base is None:
            return rollup.written(new, None), 0
        delta = base.delta(new)
        return rollup.written(msgspec.structs.replace(new, rollup=base.ref), delta), len(msgspec.json.encode(delta))

    def committed(self, new: Manifest, newest: Manifest | None, delta_bytes: int) -> None:
        """Count what a committed manifest repeats of the one before it, which `written` returned with it."""
        again = newest is not None and newest.rollup == new.rollup
        self._deltas = (self._deltas if again else 0) + delta_bytes

    def find(self, ref: BatchRef) -> Rollup:
        """A rollup, from memory if it is there."""
        found = self._rollups.get(ref)
        if found is None:
            found = Rollup.open(ref, open_segment(self._blob, ref.segment).entry(ref.label))
            self._cache(found)
        return found

    def _roll_up(self, new: Manifest) -> Rollup:
        name = f"{new.epoch:0{EPOCH_DIGITS}d}-{new.attempt}-{rollup.LABEL}"
        entry = Rollup.entry(new)
        ref = BatchRef.of(name, entry)
        if ref not in self._rollups:  # otherwise this commit is repeated
            write_segment(self._blob, name, [entry])
            self._cache(Rollup.open(ref, entry))
        return self._rollups[ref]

    def _cache(self, found: Rollup) -> None:
        # Replaced as a whole, because threads of readers may look at it.
        newest = sorted({**self._rollups, found.ref: found}.items(), key=lambda item: item[0].segment)[-_MOST:]
        self._rollups = dict(newest)
