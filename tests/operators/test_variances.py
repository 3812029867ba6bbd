"""Variances of groups against exact fractions, also of values that are far from 0."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vernier.operators.group_functions.variances import variances

GROUPS = st.lists(st.dictionaries(st.integers(-40, 40), st.integers(1, 5), max_size=6), min_size=1, max_size=4)


@given(groups=GROUPS, base=st.sampled_from((0.0, 1e9, -3e12, 1e15)), sample=st.booleans())
def test_they_are_the_exact_ones(groups: list[dict[int, int]], base: float, sample: bool) -> None:
    rows = [[(base + value / 4, copies) for value, copies in sorted(one.items())] for one in groups]
    flat = [row for group in rows for row in group]
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    values, copies = np.array([row[0] for row in flat], np.float64), np.array([row[1] for row in flat], np.int64)
    found = variances(values, copies, offsets, sample)
    for data, there, group in zip(found.data, found.there, rows, strict=True):
        exact = _variance(group, sample)
        assert there == (exact is not None)
        assert data == 0.0 if exact is None else abs(data - exact) <= 1e-12 * exact


def _variance(group: list[tuple[float, int]], sample: bool) -> Fraction | None:
    count = sum(copies for _, copies in group)
    if count < 1 + sample:
        return None
    mean = sum(Fraction(value) * copies for value, copies in group) / count
    return sum((Fraction(value) - mean) ** 2 * copies for value, copies in group) / (count - sample)
