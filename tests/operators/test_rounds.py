"""Which keys a round visits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vernier.operators.kernels.rounds import visited_keys
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.updates import Ints

Key = tuple[int, int]
keys = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), max_size=12)


def hashed(some: list[Key], k: int) -> Ints:
    """[hash | key words] of keys of k words, in their order."""
    words = np.array([key[:k] for key in some], np.int64).reshape(-1, k)
    return key_rows(words, np.arange(k), np.empty(0, np.int64), 0)


@given(keys, st.lists(st.tuples(keys, st.booleans()), max_size=6), st.sampled_from([1, 2]))
def test_what_changed_and_what_is_scheduled_is_visited_once_in_order(
    changed: list[Key], steps: list[tuple[list[Key], bool]], k: int
) -> None:
    def in_order(rows: Ints) -> Ints:
        return rows[np.lexsort(rows.T[::-1])]

    fresh = in_order(hashed(changed, k))
    # Most steps schedule in order; any order is right.
    scheduled = [in_order(rows) if ordered else rows for own, ordered in steps for rows in [hashed(own, k)]]
    parts = np.concatenate([np.empty((0, 1 + k), np.int64), *scheduled])
    rows = np.column_stack((fresh, np.ones((len(fresh), 2), np.int64)))
    found = visited_keys(np.ascontiguousarray(rows), np.ascontiguousarray(parts), k)
    everything = {tuple(row) for row in [*fresh.tolist(), *parts.tolist()]}
    assert [tuple(row) for row in found.tolist()] == sorted(everything)
