"""HeldUpdates batches: immutable, few, and none of them longer than what still waits, or nearly."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vernier.service.ingest.stash import HeldUpdates, retain
from vernier.storage.updates import Updates


def held(times: list[int], mark: int = 0) -> HeldUpdates:
    column = np.array(times, np.int64)
    updates = Updates.of(np.full((len(times), 1), mark), column, 1)
    return HeldUpdates.sort(updates, column + 1_000, np.column_stack((column, column + 7)))


def test_a_batch_that_waits_on_is_the_same_object() -> None:
    old = held([1, 5, 9, 9, 9, 9])
    assert retain([old], None, 6) == [old]
    assert retain([old], None, 6)[0] is old
    assert retain([old], None, 10) == []
    assert old.between(2, 9) == slice(1, 2)
    assert (old.count_from(5), old.count_from(6)) == (5, 4)


def test_merging_leaves_released_updates_behind() -> None:
    (merged,) = retain([held([1, 2, 8]), held([3, 7])], held([6]), 4)
    assert merged.time.tolist() == [6, 7, 8]
    assert merged.received_ms.tolist() == [1_006, 1_007, 1_008]
    assert merged.origin.tolist() == [[6, 13], [7, 14], [8, 15]]
    assert merged.ref is None


def test_dropping_nothing_keeps_the_stored_batch() -> None:
    batch = held([1, 2, 3])
    assert batch.drop(np.zeros(3, np.bool_)) is batch
    assert batch.drop(np.array([False, True, False])).time.tolist() == [1, 3]


@given(st.lists(st.tuples(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 5)), max_size=30))
def test_everything_is_released_once(epochs: list[tuple[list[int], int]]) -> None:
    """Batches stay few, and intervals that follow one another release every update at its time."""
    batches: list[HeldUpdates] = []
    lower, released, given = 0, [], []
    for number, (times, step) in enumerate([*epochs, ([], 100)]):
        upper = lower + step
        for batch in batches:
            part = batch.updates.take(batch.between(lower, upper))
            released += list(zip(part.rows[:, 0].tolist(), part.time.tolist()))
        waits = [lower + 5 + time for time in times]
        given += [(number, time) for time in waits]
        batches = retain(batches, held(waits, number), upper)
        lower = upper
        assert len(batches) <= 1 + np.log2(1 + sum(batch.count_from(upper) for batch in batches))
    assert sorted(released) == sorted(entry for entry in given if entry[1] < lower)
