"""The batches of N shards, opened as those of M shards: no update is lost or repeated, and every part is valid."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.storage.merging import merge_batches
from vernier.storage.blob.segment import Entry
from vernier.storage.kernels.hashing import owner
from vernier.storage.state.audit import audit, batch_problems
from vernier.storage.state.manifest import HIGHEST, LOWEST, BatchRef, Manifest, TraceEntry
from vernier.storage.state.reshard import BatchMismatch, hash_range, open_batch, reshard
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Updates


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7, 64, 1000])
def test_ranges_are_those_of_owners(workers: int) -> None:
    edges = [hash_range(index, workers) for index in range(workers)]
    assert (edges[0][0], edges[-1][1]) == (LOWEST, HIGHEST)
    for index, (low, high) in enumerate(edges):
        assert (owner(low, workers), owner(high, workers)) == (index, index)
        assert index == 0 or edges[index - 1][1] + 1 == low


Row = tuple[int, int, int, int]
rows = st.tuples(st.integers(0, 30), st.integers(0, 2), st.integers(0, 4), st.sampled_from([-1, 1, 1, 2]))
epochs = st.lists(st.lists(rows, max_size=40), min_size=1, max_size=5)
shapes = st.sampled_from([(1, 1, 0), (2, 0, 0), (1, 1, 1), (2, 0, 1), (0, 2, 0), (1, 0, 0)])


def updates_of(epoch: list[Row], number: int, width: int, depth: int) -> Updates:
    """An epoch's rows with data times in [10 number, 10 number + 10)."""
    words = [row[:width] for row in epoch]
    rounds = np.array([[row[2] % 2] * depth for row in epoch], np.int64).reshape(len(epoch), depth)
    times = [10 * number + row[2] for row in epoch]
    matrix = np.array(words, np.int64).reshape(len(epoch), width)
    return Updates.of(matrix, np.array(times, np.int64), np.array([row[3] for row in epoch], np.int64), rounds)


def sharded(batches: list[Batch], workers: int) -> list[list[Batch]]:
    """What workers of that number would have built themselves."""
    found: list[list[Batch]] = []
    for worker in range(workers):
        mine = []
        for batch in batches:
            keyed = batch.keyed()
            own = keyed[[owner(hashed, workers) == worker for hashed in keyed[:, 0]]]
            if len(own):
                mine.append(
                    Batch.of_rows(np.ascontiguousarray(own), batch.key_width, batch.depth, batch.lower, batch.upper, 0)
                )
        found.append(mine)
    return found


def everything(shards: list[list[Batch]]) -> list[list[int]]:
    parts = [batch.to_updates().data for shard in shards for batch in shard]
    return sorted(np.concatenate(parts).tolist()) if parts else []


class Chain:
    """A state directory whose one arrangement goes from one number of workers to the next."""

    def __init__(self, path: Path) -> None:
        self.state = StateDirectory(path)
        self.state.acquire()
        self.epoch = 0
        self.cut_at: int | None = None
        self.refs: list[list[BatchRef]] = []

    def commit(self, shards: list[list[Batch]], upper: int, shape: tuple[int, int, int]) -> None:
        """Store what has no reference yet, and commit all."""
        self.epoch += 1
        for number, batches in enumerate(shards):
            fresh = [batch for batch in batches if batch.ref is None]
            entries = [Entry(f"l{i}", dict(batch.meta()), batch.arrays()) for i, batch in enumerate(fresh)]
            for batch, ref in zip(fresh, self.state.write(self.epoch, "a", number, entries), strict=True):
                batch.ref = ref
        self.refs = [[batch.ref for batch in batches] for batches in shards]
        self.state.commit(
            Manifest(
                epoch=self.epoch,
                attempt="a",
                lower=0,
                upper=upper,
                committed_ns=self.epoch,
                workers=len(shards),
                app="recut",
                program="p",
                traces={"t": TraceEntry(*shape, self.refs)},
                cut_at=self.cut_at,
            )
        )

    def cut(self, workers: int, upper: int) -> list[list[Batch]]:
        """The shards of another number of workers."""
        self.cut_at = upper
        return [reshard(self.refs, index, workers, self.state.open) for index in range(workers)]


@given(epochs, shapes, st.lists(st.integers(1, 5), min_size=2, max_size=4), st.data())
@examples(25)
def test_nothing_is_lost_and_every_part_is_sound(
    tmp_path_factory: pytest.TempPathFactory,
    epochs: list[list[Row]],
    shape: tuple[int, int, int],
    counts: list[int],
    data: st.DataObject,
) -> None:
    key_width, val_width, depth = shape
    width = key_width + val_width
    batches = []
    for number, epoch in enumerate(epochs):
        built = Batch.build(updates_of(epoch, number, width, depth), key_width, 10 * number, 10 * number + 10, 0)
        if built.updates:
            batches.append(built)
    whole, upper = everything([batches]), 10 * len(epochs)
    chain = Chain(tmp_path_factory.mktemp("state"))
    shards = sharded(batches, counts[0])
    chain.commit(shards, upper, shape)
    for workers in counts[1:]:
        shards = chain.cut(workers, upper)
        assert everything(shards) == whole
        for index, mine in enumerate(shards):
            low, high = hash_range(index, workers)
            for batch in mine:
                assert batch_problems(batch) == []
                assert low <= batch.hashes[0] <= batch.hashes[-1] <= high
                assert batch.nbytes == batch.ref.nbytes
                again = open_batch(chain.state.open(batch.ref.segment), batch.ref)
                assert again.to_updates().data.tolist() == batch.to_updates().data.tolist()
            for first in range(len(mine)):
                # Any run of neighbours may merge, and then covers what it holds.
                last = data.draw(st.integers(first + 1, len(mine)))
                assert batch_problems(merge_batches(mine[first:last], 0)) == []
        if data.draw(st.booleans()):
            shards = [[merge_batches(mine, 0)] if len(mine) == 2 else mine for mine in shards]
            shards = [[batch for batch in mine if batch.updates] for mine in shards]
            whole = everything(shards)
        chain.commit(shards, upper, shape)
        problems = audit(chain.state).problems
        assert problems == []
    chain.state.release()


def test_a_trace_over_cut_batches_selects_what_is_there(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    batches = []
    for number in range(3):
        words = np.column_stack((rng.integers(0, 200, 400), rng.integers(0, 3, 400)))
        batches.append(
            Batch.build(
                Updates.of(words, 10 * number + rng.integers(0, 9, 400), 1), 1, 10 * number, 10 * number + 10, 0
            )
        )
    chain = Chain(tmp_path)
    chain.commit(sharded(batches, 3), 30, (1, 1, 0))
    reference = Trace("t", 1, 1, 0)
    reference.replace(batches)
    keyed = batches[0].keyed()[:, :2]
    keyed = np.ascontiguousarray(keyed[np.concatenate(([True], np.diff(keyed[:, 0]) != 0))])
    wanted = reference.select(keyed, fold=0)
    for workers in (2, 5, 1):
        found: list[Any] = []
        for mine in chain.cut(workers, 30):
            trace = Trace("t", 1, 1, 0)
            trace.replace(mine)
            part = trace.select(keyed, fold=0)
            found.append(np.diff(part.spans))
        assert np.array_equal(np.sum(found, axis=0), np.diff(wanted.spans))
    chain.state.release()


def test_a_reference_that_counts_wrongly_is_refused(tmp_path: Path) -> None:
    batch = Batch.build(Updates.of([[n] for n in range(50)], 0, 1), 1, 0, 1, 0)
    chain = Chain(tmp_path)
    chain.commit([[batch]], 1, (1, 0, 0))
    low, high = hash_range(1, 2)
    wrong = msgspec.structs.replace(batch.ref, low=low, high=high, updates=3)
    with pytest.raises(BatchMismatch, match=r"l0 has \d+ updates between its hashes 0 and \d+, expected 3"):
        open_batch(chain.state.open(wrong.segment), wrong)
    chain.state.release()
