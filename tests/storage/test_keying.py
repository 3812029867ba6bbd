"""Updates become keyed rows: those of keys whose updates come in order are placed without being sorted."""

import numpy as np
import pytest

from vernier.storage.kernels.hashing import key_rows
from vernier.storage.kernels.keying import consolidate_keyed
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.trace.batch import keyed_columns
from vernier.storage.updates import Ints, consolidate_rows


def sorted_rows(data: Ints, key: Ints, val: Ints) -> Ints:
    """The same, by sorting keyed rows."""
    return consolidate_rows(key_rows(data, key, val, 2), keyed_columns(len(key), len(val), 0))


@pytest.mark.parametrize("n", [200, 2_000, 20_000])
@pytest.mark.parametrize("keys", [1, 7, 1_000])
@pytest.mark.parametrize("width", [0, 1, 2])
@pytest.mark.parametrize("with_val", [False, True])
@pytest.mark.parametrize("order", ["distinct", "repeated", "not in order"])
def test_keyed_rows_are_those_that_sorting_gives(n: int, keys: int, width: int, with_val: bool, order: str) -> None:
    choose = np.random.default_rng([n, keys, width, with_val])
    times = np.arange(n)
    if order != "distinct":
        times = np.sort(choose.integers(0, max(1, n // 20), n))
    if order == "not in order":
        choose.shuffle(times)
    rows = np.column_stack((choose.integers(0, keys, n) * 10**9, np.full(n, 5), np.full(n, 6)))
    diffs = choose.choice([-1, 1, 1, 0], n)
    data = np.column_stack((rows, times, diffs)).astype(np.int64)
    key, val = np.arange(width), np.arange(width, 2 + with_val)
    found, status = consolidate_keyed(data, key, val, 2)
    assert status == 0
    assert found.tolist() == sorted_rows(data, key, val).tolist()


def test_sums_that_do_not_fit_are_refused() -> None:
    data = np.array([(i % 9, 7, i // 300, 2**60) for i in range(3_000)], np.int64)
    rows, status = consolidate_keyed(data, np.arange(1), np.arange(1, 2), 2)
    assert (len(rows), status) == (0, OVERFLOW)
