"""The join kernel beside sums over all pairs of changes, whatever the histories are and wherever it stops."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vernier.operators.kernels.joining import FRESH, KEY, OTHER, pair_rows
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.updates import Ints

NOW = 3
ORIGIN = np.array([KEY, FRESH, OTHER]), np.array([0, 0, 0])
Changes = dict[tuple[int, int, int], int]
"""Diffs by val, round and time."""


def changes(rounds: st.SearchStrategy[int]) -> st.SearchStrategy[Changes]:
    """What one side has of a key."""
    diffs = st.sampled_from([1, 1, 1, -1, -1, 2, -3])
    return st.dictionaries(st.tuples(st.integers(0, 2), rounds, st.integers(0, 12)), diffs, max_size=14)


def paired(fresh: list[Changes], others: list[Changes], most: int) -> Counter[tuple[int, ...]]:
    """What the kernel says, in as many calls as it takes."""
    rows = [[key, key, v, t, r, d] for key, one in enumerate(fresh) for (v, r, t), d in sorted(one.items())]
    entries = [[v, t, r, d] for one in others for (v, r, t), d in sorted(one.items())]
    runs, ends = (np.cumsum([0, *map(len, side)]) for side in (fresh, others))
    given_, held = (np.array(side, np.int64).reshape(-1, w) for side, w in ((rows, 6), (entries, 4)))
    spans = np.ascontiguousarray(np.column_stack((ends[:-1], ends[1:])))
    key, done, found = 0, 0, Counter[tuple[int, ...]]()
    while key < len(fresh):
        out, status, key, done = pair_rows(
            given_, runs, 1, 1, 1, spans, held, 1, 1, *ORIGIN, np.array([NOW]), key, done, most
        )
        assert status == 0
        for *row, diff in out.tolist():
            found[tuple(row)] += diff
    return _without_zeros(found)


def _without_zeros(found: Counter[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
    return Counter({row: diff for row, diff in found.items() if diff != 0})


@given(
    st.lists(st.tuples(changes(st.just(NOW)), changes(st.integers(0, 5))), max_size=3),
    st.sampled_from([1, 3, 20, 1 << 17]),
)
def test_pairs_are_those_of_all_changes(keys: list[tuple[Changes, Changes]], most: int) -> None:
    wanted = Counter[tuple[int, ...]]()
    for key, (fresh, others) in enumerate(keys):
        for (v, _, t), d in fresh.items():
            for (other, r, s), e in others.items():
                wanted[key, v, other, max(t, s), max(NOW, r)] += d * e
    fresh, others = [one for one, _ in keys], [other for _, other in keys]
    assert paired(fresh, others, most) == _without_zeros(wanted)


def rows_of(changes: list[tuple[int, int]], width: int) -> Ints:
    """Times and diffs of one fact, as rows that end with time, round and diff."""
    return np.array([[*[7] * width, time, NOW, diff] for time, diff in changes], np.int64)


def test_sums_before_both_sides_are_there_may_overflow() -> None:
    big = 2**62
    early, late = [(1, big), (2, big), (3, -big), (9, 1)], [(5, 1), (8, -1)]
    for one, other in ((early, late), (late, early)):
        fresh, entries = rows_of(one, 3), rows_of(other, 1)
        runs, spans = np.array([0, len(one)]), np.array([[0, len(other)]])
        _, status, key, _ = pair_rows(
            fresh, runs, 1, 1, 1, spans, entries, 1, 1, *ORIGIN, np.array([NOW]), 0, 0, 1 << 17
        )
        assert status == OVERFLOW
        assert key == 0
