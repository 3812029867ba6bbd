"""Few rows are consolidated by insertion; the result is that of counting rows in a dictionary, and of many rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vernier.storage.kernels.consolidating import consolidate
from vernier.storage.kernels.few import FEW
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.kernels.keying import consolidate_keyed
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.updates import Ints

WORDS = st.one_of(st.integers(-2, 2), st.sampled_from([-(2**63), 2**63 - 1, 2**62]))


@st.composite
def updates(draw: st.DrawFn) -> tuple[Ints, int, int, int]:
    """Updates of up to FEW rows: (data, key words, val words, rounds)."""
    k, v, d = draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    row = st.tuples(*[WORDS] * (k + v), st.integers(0, 3), *[st.integers(0, 2)] * d, st.sampled_from([-2, -1, 1, 1]))
    rows = draw(st.lists(row, max_size=FEW))
    return np.array(rows, np.int64).reshape(len(rows), k + v + d + 2), k, v, d


@given(updates())
def test_few_rows_are_keyed_as_many(case: tuple[Ints, int, int, int]) -> None:
    data, k, v, d = case
    key, val, tail = np.arange(k)[::-1].copy(), np.arange(k, k + v)[::-1].copy(), d + 2
    counted: Counter[tuple[int, ...]] = Counter()
    for row in key_rows(data, key, val, tail).tolist():
        counted[tuple(row[:-1])] += row[-1]
    at_time = 1 + k + v

    def order(row: tuple[int, ...]) -> tuple[int, ...]:
        return (*row[:at_time], *row[at_time + 1 :], row[at_time])

    wanted = [[*row, counted[row]] for row in sorted(counted, key=order) if counted[row]]
    found, status = consolidate_keyed(data, key, val, tail)
    assert status == 0
    assert found.tolist() == wanted
    # Copies that cancel make them many.
    many = np.concatenate((data, *[np.concatenate((data, np.c_[data[:, :-1], -data[:, -1]]))] * FEW))
    assert consolidate_keyed(many, key, val, tail)[0].tolist() == wanted


@given(updates())
def test_few_rows_are_consolidated_by_some_columns(case: tuple[Ints, int, int, int]) -> None:
    data = case[0]
    columns = np.arange(data.shape[1] - 1)[::-1].copy()
    counted: Counter[tuple[int, ...]] = Counter()
    for row in data.tolist():
        counted[tuple(row[:-1])] += row[-1]
    wanted = [[*row, counted[row]] for row in sorted(counted, key=lambda row: row[::-1]) if counted[row]]
    found, status = consolidate(data, columns)
    assert status == 0
    assert found.tolist() == wanted


def test_of_rows_that_are_equal_in_the_columns_the_first_stays() -> None:
    data = np.array([[5, 7, 1], [4, 9, 1], [5, 8, 1], [4, 9, -1]], np.int64)
    assert consolidate(data, np.array([0]))[0].tolist() == [[5, 7, 2]]


def test_a_sum_that_leaves_int64_is_found() -> None:
    data = np.array([[1, 0, 2**62], [0, 0, 1], [1, 0, 2**62]], np.int64)
    assert consolidate(data, np.array([0, 1]))[1] == OVERFLOW
    assert len(consolidate(data, np.array([0, 1]))[0]) == 0
    found, status = consolidate_keyed(data, np.array([0]), np.empty(0, np.int64), 2)
    assert (len(found), status) == (0, OVERFLOW)
