"""Closing a slice of many rows, which goes by pieces of the keys, gives the batch that one sort gives."""

import numpy as np
import pytest

from vernier.storage.errors import DiffOverflow
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.batch import COLUMNS, Batch, key_batch, keyed_rows
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Updates

ROWS = 60_000
"""Of each of the steps: together more than go by pieces."""


def _step(rng: np.random.Generator, at: int, width: int, keys: int, depth: int, alike: bool) -> Updates:
    rows = rng.integers(0, 40, (ROWS, width))
    rows[:, 0] = rng.integers(0, keys, ROWS)
    diffs = np.ones(ROWS, np.int64) if alike else rng.integers(-2, 3, ROWS)
    return Updates.of(rows, at, diffs, np.full((ROWS, depth), 0 if alike else at))


@pytest.mark.parametrize(("key_width", "keys"), [(1, 20_000), (2, 20_000), (1, 2), (1, 1)])
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("since", [0, 2, 9])
@pytest.mark.parametrize("large", [1 << 17, 1 << 15, 1])
def test_many_rows_close_as_few_do(
    key_width: int, keys: int, depth: int, alike: bool, since: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As matrices; the large ones, or all, as tries.
    monkeypatch.setattr(trace_module, "LARGE", large)
    rng = np.random.default_rng(keys + depth)
    steps = [_step(rng, at, key_width + 1, keys, depth, alike) for at in range(4)]
    # One more that takes back all of the first, and a small one.
    steps.append(Updates(np.concatenate((steps[0].data[:, :-1], -steps[0].data[:, -1:]), axis=1), key_width + 1, depth))
    steps.append(steps[1].take(slice(0, 10)))
    trace = Trace("t", key_width, 1, depth)
    trace.loads = True
    for step in steps:
        trace.seal(keyed_rows(step, key_width), 0, 9)
    # The fold of all at once is what many rows of one time have, too: only pieces are asked for here.
    trace.close_slice(since)
    (batch,) = trace.batches
    data = np.concatenate([step.data for step in steps])
    data[:, key_width + 1] = np.maximum(data[:, key_width + 1], since)
    expected = Batch.build(Updates(data, key_width + 1, depth), key_width, 0, 9, since)
    assert batch.updates == expected.updates
    for name in COLUMNS:
        assert np.array_equal(getattr(batch, name), getattr(expected, name)), name


def test_many_rows_that_cancel_leave_no_batch() -> None:
    step = _step(np.random.default_rng(1), 0, 2, 20_000, 1, True)
    trace = Trace("t", 1, 1, 1)
    rows = keyed_rows(step, 1)
    back = rows.copy()
    back[:, -1] *= -1
    for sealed in (rows, back, rows, back):
        trace.seal(sealed, 0, 9)
    trace.close_slice(0)
    assert trace.batches == []


def test_many_rows_that_overflow_are_refused() -> None:
    step = keyed_rows(_step(np.random.default_rng(1), 0, 2, 20_000, 1, True), 1)
    great = step.copy()
    great[-1, -1] = 2**63 - 1
    trace = Trace("t", 1, 1, 1)
    for sealed in (step, great, step):
        trace.seal(sealed, 0, 9)
    with pytest.raises(DiffOverflow):
        trace.close_slice(0)


@pytest.mark.parametrize("alike", [True, False])
def test_a_large_step_alone_closes_as_it_is(alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "LARGE", 1)
    step = _step(np.random.default_rng(3), 0, 2, 20_000, 1, True)
    if not alike:
        step.data[:, 2] = np.arange(ROWS) % 3
    trace = Trace("t", 1, 1, 1)
    trace.loads = True
    trace.seal(keyed_rows(step, 1), -4, 9)
    trace.close_slice(2)
    (batch,) = trace.batches
    assert (batch.lower, batch.upper, batch.since) == (-4, 9, 2)
    assert batch.times.tolist() == [2]
    step.data[:, 2] = 2
    expected = Batch.build(step, 1, -4, 9, 2)
    for name in COLUMNS:
        assert np.array_equal(getattr(batch, name), getattr(expected, name)), name


@pytest.mark.parametrize("rows", [1, 2, 1000, 60_000])
@pytest.mark.parametrize("keys", [1, 3, 50_000])
@pytest.mark.parametrize("key_width", [1, 2])
@pytest.mark.parametrize("kind", ["alike", "times", "rounds", "vals", "all"])
def test_a_load_goes_into_the_trie_that_its_rows_make(rows: int, keys: int, key_width: int, kind: str) -> None:
    rng = np.random.default_rng(rows + keys)
    data = np.zeros((rows, 6), np.int64)
    data[:, 2] = rng.integers(0, keys, rows)
    data[:, 0] = np.arange(rows)
    data[:, -1] = 1
    if kind in ("times", "all"):
        data[:, 3] = rng.integers(-2, 2, rows)
    if kind in ("rounds", "all"):
        data[:, 4] = rng.integers(0, 2, rows)
    if kind in ("vals", "all"):
        data[:, 0] = rng.integers(0, 20, rows)
    if kind == "all":
        data[:, -1] = rng.integers(-1, 2, rows)
    key, val = np.array([2, 1][:key_width]), np.array([0])
    batch = key_batch(data, key, val, 1, 0, 9, 0)
    shuffled = Updates(np.ascontiguousarray(data[:, [*key, *val, 3, 4, 5]]), key_width + 1, 1)
    expected = Batch.build(shuffled, key_width, 0, 9, 0)
    assert batch.updates == expected.updates
    for name in COLUMNS:
        assert np.array_equal(getattr(batch, name), getattr(expected, name)), name
    assert np.array_equal(batch.key_rows(), np.unique(batch.keyed()[:, : 1 + key_width], axis=0))
    pieces = list(batch.keyed_pieces(7))
    assert np.array_equal(np.concatenate(pieces) if pieces else batch.keyed(), expected.keyed())


def test_a_load_that_overflows_is_refused() -> None:
    data = np.zeros((2000, 3), np.int64)
    data[:, -1] = 2**62
    with pytest.raises(DiffOverflow):
        key_batch(data, np.array([0]), np.empty(0, np.int64), 0, 0, 9, 0)
