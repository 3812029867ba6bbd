"""Sorting and adding up rows, in all the ways that sizes and values lead to, against numpy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from vernier.storage.kernels.consolidating import consolidate, sort_order
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.trace.batch import key_updates, keyed_columns, keyed_rows
from vernier.storage.updates import Ints, Updates, consolidate_rows

_FAR = 2**62


def _columns(kind: str, n: int, choose: np.random.Generator) -> Ints:
    """Three words a row."""
    times = choose.integers(0, max(1, n // 3), n)
    match kind:
        case "short words":
            return np.column_stack((choose.integers(0, 9, n), choose.integers(-40, 40, n), times))
        case "few first words":
            return np.column_stack((choose.choice([-_FAR, -5, 3, _FAR, 2**63 - 1], n), times, choose.integers(0, 3, n)))
        case "few, in the order of time":
            return np.column_stack(
                (choose.choice([-_FAR, -5, 3, _FAR], n), choose.integers(0, 2, n) * 0, np.sort(times))
            )
        case "few, each once":
            return np.column_stack((choose.integers(-3, 4, n), choose.integers(0, 9, n), np.arange(n)))
        case "runs":
            return np.column_stack(
                (np.sort(choose.integers(0, 5, n)), np.repeat(choose.integers(0, 4, n), 3)[:n], np.arange(n))
            )
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
    "kind",
    [
        "short words", "few first words", "few, in the order of time", "few, each once", "one crowd",
        "few, and wide behind", "all alike", "wide",
    ],
)  # fmt: skip
def test_the_order_is_that_of_the_columns_and_stable(kind: str, n: int) -> None:
    words = _columns(kind, n, np.random.default_rng(n))
    columns = np.array([1, 2, 0] if n % 2 else [0, 1, 2], np.int64)
    expected = np.lexsort([words[:, column] for column in columns[::-1]])
    assert np.array_equal(sort_order(words, columns), expected)


@pytest.mark.parametrize("n", [40, 600, 5000])
@pytest.mark.parametrize(
    "kind",
    ["short words", "few first words", "few, in the order of time", "few, each once", "one crowd", "all alike"],
)
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


@pytest.mark.parametrize("n", [30, 200, 3000])
@pytest.mark.parametrize("key", [(0,), (1, 0), (0, 1), ()])
@pytest.mark.parametrize("kind", ["few, in the order of time", "few, each once", "runs", "runs with nothing", "wide"])
def test_keyed_rows_are_those_of_rows_keyed_first(n: int, key: tuple[int, ...], kind: str) -> None:
    choose = np.random.default_rng(n)
    words = _columns(kind.split(" with")[0], n, choose)
    diffs = choose.choice([1, -1, 0] if kind == "runs with nothing" else [1, -1], n)
    data = np.column_stack((words, diffs))
    val = np.array([word for word in (0, 1) if word not in key], np.int64)
    columns = keyed_columns(len(key), len(val), 0)
    expected = consolidate_rows(key_rows(data, np.array(key, np.int64), val, 2), columns)
    assert np.array_equal(key_updates(data, np.array(key, np.int64), val, 0), expected)
    # As the columns of a wider matrix, which they are read from where they lie.
    wider = np.column_stack((np.full(n, 9), data))
    assert np.array_equal(key_updates(wider[:, 1:], np.array(key, np.int64), val, 0), expected)
    # Others of its columns, or rows, are copied.
    wider = np.column_stack((data, np.full(n, 9)))
    assert np.array_equal(key_updates(wider[:, :-1], np.array(key, np.int64), val, 0), expected)
    twice = np.repeat(data, 2, axis=0)
    assert np.array_equal(key_updates(twice[::2], np.array(key, np.int64), val, 0), expected)
    assert np.array_equal(key_updates(np.concatenate((data, data))[:n], np.array(key, np.int64), val, 0), expected)


@pytest.mark.parametrize(
    ("n", "depth", "key"),
    [(600, 0, (0,)), (600, 2, (0,)), (600, 1, (1, 0)), (600, 2, (0, 1, 2)), (9_000, 2, (0,)), (9_000, 0, (1, 0))],
)
@pytest.mark.parametrize("diffs", [(1, -1), (0, 3, -3), (2**39, -(2**41)), (1,)])
def test_keys_of_many_rows_in_any_order_are_added_up(
    n: int, depth: int, key: tuple[int, ...], diffs: tuple[int, ...]
) -> None:
    choose = np.random.default_rng(n + depth)
    few = n // 40
    words = np.column_stack((choose.integers(-few, few, n) * 7919, choose.integers(0, 3, n), choose.integers(-2, 2, n)))
    rounds = choose.integers(0, 4, (n, depth))
    data = np.column_stack((words, choose.integers(10**15, 10**15 + 900, n), rounds, choose.choice(diffs, n)))
    val = np.array([word for word in (0, 1, 2) if word not in key], np.int64)
    keyed = key_rows(data, np.array(key, np.int64), val, depth + 2)
    expected: Counter[tuple[int, ...]] = Counter()
    for *row, diff in keyed.tolist():
        expected[tuple(row)] += diff
    columns = keyed_columns(len(key), len(val), depth)
    rows = np.array([[*row, diff] for row, diff in expected.items() if diff], np.int64)
    rows = rows[np.lexsort([rows[:, column] for column in columns[::-1]])]
    assert np.array_equal(key_updates(data, np.array(key, np.int64), val, depth), rows)


def test_large_results_are_consolidated_alike() -> None:
    choose = np.random.default_rng(0)
    data = np.column_stack((choose.integers(0, 40, 600_000), choose.integers(0, 9, 600_000), np.arange(600_000) // 3))
    data = np.column_stack((data, choose.choice([1, -1], 600_000)))
    columns = np.array([0, 1, 2], np.int64)
    expected, status = consolidate(data, columns)
    assert status == 0
    assert np.array_equal(consolidate_rows(data, columns), expected)
