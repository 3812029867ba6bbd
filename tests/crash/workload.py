"""A small service over real batches and a real state directory: what it must hold after any epoch is known.

Every epoch adds updates that depend on its number alone to a trace, persists the batches that are new, carries a held
batch for three epochs, commits and collects. So a run that was broken off and taken up again must end as an unbroken
one.
"""

import random
from collections import Counter

import numpy as np

from vernier.storage.blob.blob import Blob
from vernier.storage.blob.segment import Entry
from vernier.storage.state import rollup
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace.batch import Batch, keyed_rows
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME, Updates

EPOCHS = 6
KEEP = 2
SPAN = 10

Rows = Counter[tuple[int, int]]


def updates_of(epoch: int) -> Updates:
    """The updates of an epoch, many in the first: rows of two words, times in [SPAN * epoch, SPAN * (epoch + 1))."""
    rng = random.Random(epoch)
    rows = [(rng.randrange(40), rng.randrange(3)) for _ in range(80 if epoch == 1 else 8)]
    times = [SPAN * epoch + rng.randrange(SPAN) for _ in rows]
    return Updates.of(np.array(rows, np.int64), np.array(times, np.int64), [rng.choice((-1, 1, 1)) for _ in rows])


def rows_until(epoch: int) -> Rows:
    """What all updates up to and with an epoch add up to."""
    total: Rows = Counter()
    for number in range(1, epoch + 1):
        add_rows(total, updates_of(number))
    return Rows({row: count for row, count in total.items() if count})


def add_rows(total: Rows, updates: Updates) -> None:
    for first, second, _, diff in updates.data.tolist():
        total[first, second] += diff


class Service:
    """One process that owns the state directory. Making it takes the directory over."""

    def __init__(self, blob: Blob, attempt: str = "a") -> None:
        self.state = StateDirectory(blob.where, blob)
        self.attempt = attempt
        self.newest = self.state.acquire()
        self.trace = Trace("rows", 1, 1, 0)
        self.held: list[BatchRef] = []
        self.take_up()

    @property
    def epoch(self) -> int:
        return self.newest.epoch if self.newest else 0

    def take_up(self) -> None:
        """Begin from the newest manifest, as after a start or a failed epoch."""
        batches: list[Batch] = []
        if self.newest is not None:
            batches = [open_batch(self.state, ref) for ref in self.newest.traces["rows"].shards[0]]
            self.held = self.newest.held["source"][0]
        self.trace.since = self.newest.lower if self.newest else MIN_TIME
        self.trace.replace(batches)

    def step(self, keep: int = KEEP) -> None:
        """One epoch, whole. Raises what storage raises; the directory then is as it was, or has the epoch."""
        epoch = self.epoch + 1
        lower, upper = SPAN * epoch, SPAN * (epoch + 1)
        updates = updates_of(epoch)
        trace = self.trace.fork()
        trace.seal(keyed_rows(updates, 1), lower, upper)
        trace.close_slice(lower)
        fresh = [batch for batch in trace.batches if batch.ref is None]
        entries = [Entry(f"rows/{number}", dict(batch.meta()), batch.arrays()) for number, batch in enumerate(fresh)]
        span = {"updates": len(updates), "lower": lower, "upper": upper, "since": lower}
        entries.append(Entry("held", span, {"updates": updates.data}))
        refs = self.state.write(epoch, self.attempt, 0, entries)
        for batch, ref in zip(fresh, refs, strict=False):
            batch.ref = ref
        held = [*self.held, refs[-1]][-3:]
        new = Manifest(
            epoch=epoch,
            attempt=self.attempt,
            lower=lower,
            upper=upper,
            committed_ns=epoch,
            workers=1,
            app="workload",
            program="1",
            traces={"rows": TraceEntry(1, 1, 0, [[batch.ref for batch in trace.batches]])},
            held={"source": [held]},
        )
        self.newest, self.trace, self.held = self.state.commit(new), trace, held
        self.state.gc(keep)

    def run(self, epochs: int = EPOCHS) -> None:
        while self.epoch < epochs:
            self.step()


def open_batch(state: StateDirectory, ref: BatchRef) -> Batch:
    """A persisted batch, its checksums compared."""
    entry = state.open(ref.segment).entry(ref.label)
    batch = Batch.open(entry.meta, entry.arrays)
    batch.ref = ref
    return batch


def rows_in(state: StateDirectory, found: Manifest) -> Rows:
    """What a manifest's batches add up to, every byte verified; its held batches must be those of its last epochs."""
    total: Rows = Counter()
    for ref in found.traces["rows"].shards[0]:
        add_rows(total, open_batch(state, ref).to_updates())
    for ref, epoch in zip(found.held["source"][0], range(max(1, found.epoch - 2), found.epoch + 1), strict=True):
        held = state.open(ref.segment).entry(ref.label).arrays["updates"]
        assert np.array_equal(held, updates_of(epoch).data)
    return Rows({row: count for row, count in total.items() if count})


def shape(found: Manifest) -> list[list[object]]:
    """A manifest's references without the segments' names, which differ from attempt to attempt, and without rollups,
    whose sizes do."""
    refs = [ref for ref in found.refs() if ref.label != rollup.LABEL]
    return [[ref.label, ref.updates, ref.nbytes, ref.lower, ref.upper, ref.since] for ref in refs]


def files(state: StateDirectory) -> list[str]:
    """All files of epochs and leases."""
    return [*state.blob.list("epochs"), *state.blob.list("leases")]
