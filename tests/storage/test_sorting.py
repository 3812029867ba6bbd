"""Sorting and adding up rows, in all the ways that sizes and values lead to, against numpy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from storage.kernels.sorting import sort_order
from storage.layer import keyed_columns, keyed_rows
from storage.updates import Ints, Updates, consolidate_rows

_FAR = 2**62


def _columns(kind: str, n: int, choose: np.random.Generator) -> Ints:
    """Three words a row."""
    times = choose.integers(0, max(1, n // 3), n)
    match kind:
        case "short words":
            return np.column_stack((choose.integers(0, 9, n), choose.integers(-40, 40, n), times))
        case "few first words":
            return np.column_stack((choose.choice([-_FAR, -5, 3, _FAR, 2**63 - 1], n), times, choose.integers(0, 3, n)))
        case "one crowd":
            hot = choose.random(n) < 0.5
            return np.column_stack((np.where(hot, 7, choose.integers(-_FAR, _FAR, n)), times, choose.integers(0, 3, n)))
        case "few, and wide behind":
            return np.column_stack((choose.choice([-_FAR, _FAR], n), choose.integers(-_FAR, _FAR, n), times))
        case "all alike":
            return np.zeros((n, 3), np.int64) - 4
        case _:
            return choose.integers(-_FAR, _FAR, (n, 3))


@pytest.mark.parametrize("n", [0, 1, 20, 300, 513, 5000, 70_000])
@pytest.mark.parametrize(
    "kind", ["short words", "few first words", "one crowd", "few, and wide behind", "all alike", "wide"]
)
def test_the_order_is_that_of_the_columns_and_stable(kind: str, n: int) -> None:
    words = _columns(kind, n, np.random.default_rng(n))
    columns = np.array([1, 2, 0] if n % 2 else [0, 1, 2], np.int64)
    expected = np.lexsort([words[:, column] for column in columns[::-1]])
    assert np.array_equal(sort_order(words, columns), expected)


@pytest.mark.parametrize("n", [40, 600, 5000])
@pytest.mark.parametrize("kind", ["short words", "few first words", "one crowd", "all alike"])
def test_equal_rows_are_added_up(kind: str, n: int) -> None:
    choose = np.random.default_rng(n)
    data = np.column_stack((_columns(kind, n, choose), choose.integers(-1, 3, n)))
    expected: Counter[tuple[int, ...]] = Counter()
    for *row, diff in data.tolist():
        expected[tuple(row)] += diff
    found = consolidate_rows(data, np.arange(3)).tolist()
    assert found == [[*row, diff] for row, diff in sorted(expected.items()) if diff]


@pytest.mark.parametrize("keys", [3, 5000])
def test_rows_of_few_and_of_many_keys_are_arranged(keys: int) -> None:
    choose = np.random.default_rng(keys)
    rows = np.column_stack((choose.integers(0, keys, 6000), choose.integers(0, 5, 6000)))
    updates = Updates.of(rows, choose.integers(0, 50, 6000), choose.choice([1, -1, 2], 6000))
    arranged = keyed_rows(updates, 1)
    order = np.lexsort([arranged[:, column] for column in keyed_columns(1, 1, 0)[::-1]])
    assert np.array_equal(order, np.arange(len(arranged)))
    again = Updates(np.ascontiguousarray(arranged[:, 1:]), 2, 0).consolidate()
    assert again.data.tolist() == updates.consolidate().data.tolist()
