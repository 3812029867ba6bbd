"""Frontiers as values, and counted holds against a recomputed frontier."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.storage.errors import CountUnderflow, DepthMismatch
from vernier.storage.time.antichain import Antichain, MutableAntichain
from vernier.storage.time.lattice import TOP

GRID = np.array(list(itertools.product(range(4), repeat=2)), np.int64)
frontiers = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4).map(lambda t: Antichain(t, 2))


def allowed(frontier: Antichain) -> list[bool]:
    return [bool(flag) for flag in frontier.less_equal(GRID)]


def test_only_minimal_times_are_kept_in_order() -> None:
    frontier = Antichain([(2, 0), (1, 2), (0, 3), (2, 2), (1, 2)])
    assert list(frontier) == [(0, 3), (1, 2), (2, 0)]
    assert len(frontier) == 3
    assert frontier == Antichain(frontier.to_list())
    assert hash(frontier) == hash(Antichain(frontier.to_list()))
    assert repr(frontier) == "Antichain([[0, 3], [1, 2], [2, 0]])"
    assert frontier.lower_bound().tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        frontier.elements[0, 0] = 1


def test_the_empty_frontier_allows_nothing_and_is_after_all() -> None:
    empty = Antichain((), 2)
    assert not any(allowed(empty))
    assert Antichain([(0, 0)]).before(empty)
    assert not empty.before(Antichain([(3, 3)]))
    assert empty.before(empty)
    assert empty != Antichain((), 1)
    assert empty.lower_bound().tolist() == [TOP, TOP]


@given(frontiers, frontiers)
def test_frontiers_form_a_lattice(left: Antichain, right: Antichain) -> None:
    """Order, meet and join are inclusion, union and intersection of what is allowed."""
    one, two = allowed(left), allowed(right)
    assert left.before(right) == all(a or not b for a, b in zip(one, two, strict=True))
    assert allowed(left.meet(right)) == [a or b for a, b in zip(one, two, strict=True)]
    assert allowed(left.join(right)) == [a and b for a, b in zip(one, two, strict=True)]
    assert (left.before(right) and right.before(left)) == (left == right)


def test_frontiers_of_different_loops_do_not_mix() -> None:
    for call in (Antichain([(1,)]).meet, Antichain([(1,)]).join, Antichain([(1,)]).before):
        with pytest.raises(DepthMismatch):
            call(Antichain([(1, 2)]))
    with pytest.raises(DepthMismatch):
        Antichain([(1, 2)], 3)
    with pytest.raises(ValueError, match="a row for each time"):
        Antichain([1, 2])
    with pytest.raises(DepthMismatch):
        MutableAntichain(2).insert((1,))


def test_the_frontier_moves_when_the_last_holder_goes() -> None:
    holds = MutableAntichain(1)
    assert holds.insert((5,)) == [((5,), 1)]
    assert holds.insert((5,)) == []
    assert holds.insert((9,)) == []
    assert holds.remove((5,)) == []
    assert holds.remove((5,)) == [((5,), -1), ((9,), 1)]
    assert holds.insert((2,)) == [((9,), -1), ((2,), 1)]
    assert holds.update([((2,), -1), ((3,), 1)]) == [((2,), -1), ((3,), 1)]
    assert (len(holds), holds.count((3,)), holds.count((4,))) == (2, 1, 0)


def test_taking_back_more_than_is_held_is_refused_whole() -> None:
    holds = MutableAntichain(2)
    holds.insert((1, 1))
    with pytest.raises(CountUnderflow, match=r"cannot remove 2 of time \(1, 1\) from a frontier that counts 1"):
        holds.update([((0, 0), 1), ((1, 1), -2)])
    assert list(holds.frontier) == [(1, 1)]
    assert len(holds) == 1
    assert holds.update([((0, 0), -1), ((0, 0), 1)]) == []


@given(st.lists(st.lists(st.tuples(st.tuples(*[st.integers(0, 3)] * 2), st.integers(-2, 2)), max_size=4), max_size=12))
def test_counted_frontier_equals_the_recomputed_one(steps: list[list[tuple[tuple[int, int], int]]]) -> None:
    holds = MutableAntichain(2)
    counts: dict[tuple[int, int], int] = {}
    shown: set[tuple[int, ...]] = set()
    for step in steps:
        after = dict(counts)
        for time, change in step:
            after[time] = after.get(time, 0) + change
        if min(after.values(), default=0) < 0:
            with pytest.raises(CountUnderflow):
                holds.update(step)
        else:
            counts = after
            for changed, sign in holds.update(step):
                shown = shown | {changed} if sign > 0 else shown - {changed}
        expected = Antichain([time for time, count in counts.items() if count], 2)
        assert holds.frontier == expected
        assert shown == set(expected)
        assert len(holds) == sum(count != 0 for count in counts.values())
