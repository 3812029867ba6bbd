"""Product times: worked examples of "Differential dataflow roadmap"; correctness, maximality and optimality by brute
force on small grids."""

import itertools

import numpy as np
import pytest

from vernier.storage.errors import DepthMismatch
from vernier.storage.time.lattice import TOP, Times, advance_by, join, less_equal, lower_bound, meet, minimal, reached

SEED_TIMES = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], np.int64)


def precedes(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    return all(a <= b for a, b in zip(left, right, strict=True))


def grid(side: int, coordinates: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(side), repeat=coordinates))


def antichains(points: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Every antichain of a finite order, the empty one too."""
    found: list[list[tuple[int, ...]]] = [[]]
    for point in points:
        found += [
            [*chain, point]
            for chain in found
            if not any(precedes(point, other) or precedes(other, point) for other in chain)
        ]
    return found


def table(times: list[tuple[int, ...]], coordinates: int) -> Times:
    return np.array(times, np.int64).reshape(len(times), coordinates)


@pytest.mark.parametrize(
    ("frontier", "expected"),
    [
        ([(0, 3), (1, 2), (2, 0)], [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ([(1, 2), (2, 0)], [(1, 0), (1, 1), (1, 0), (1, 1)]),
        ([(0, 3), (1, 1)], [(0, 1), (0, 1), (1, 1), (1, 1)]),
        ([(1, 1)], [(1, 1)] * 4),
    ],
)
def test_examples_of_the_seed(frontier: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    advanced = advance_by(SEED_TIMES, np.array(frontier, np.int64))
    assert [tuple(row) for row in advanced.tolist()] == expected


def test_two_changes_cancel_once_the_frontier_cannot_tell_their_times_apart() -> None:
    rows = {(0, 0): ("ab", 1), (0, 1): ("bc", 1), (1, 0): ("ac", 1), (1, 1): ("bc", -1)}
    advanced = advance_by(SEED_TIMES, np.array([(1, 2), (2, 0)], np.int64))
    total: dict[tuple[str, tuple[int, ...]], int] = {}
    for time, stand_in in zip(SEED_TIMES.tolist(), advanced.tolist(), strict=True):
        row, diff = rows[tuple(time)]
        total[row, tuple(stand_in)] = total.get((row, tuple(stand_in)), 0) + diff
    assert {key: diff for key, diff in total.items() if diff} == {("ab", (1, 0)): 1, ("ac", (1, 0)): 1}


@pytest.mark.parametrize(("side", "coordinates"), [(4, 1), (4, 2), (3, 2), (2, 3), (3, 3)])
def test_advance_by_is_correct_maximal_and_optimal(side: int, coordinates: int) -> None:
    """Against every antichain of a grid (the 3-coordinate grid of side 3: those of at most three elements).

    Frontier elements are drawn from the grid, times and readers from one that is a step wider, so that times past the
    frontier and readers past every join are among them.
    """
    times = grid(side + 1, coordinates)
    all_times = table(times, coordinates)
    before = np.all(all_times[:, None] <= all_times[None], axis=-1)
    index = {time: i for i, time in enumerate(times)}
    chains = [chain for chain in antichains(grid(side, coordinates)) if chain and (side < 3 or len(chain) <= 3)]
    assert len(chains) >= side
    for chain in chains:
        readers = [i for i, time in enumerate(times) if any(precedes(element, time) for element in chain)]
        advanced = [index[tuple(row)] for row in advance_by(all_times, table(chain, coordinates)).tolist()]
        seen_by = before[:, readers]
        # Correctness: t <= g exactly when advance(t) <= g, for all readers g.
        assert np.array_equal(seen_by, seen_by[advanced]), chain
        kinds: dict[bytes, list[int]] = {}
        for i in range(len(times)):
            kinds.setdefault(seen_by[i].tobytes(), []).append(i)
        for alike in kinds.values():
            # Optimality: times that no reader tells apart get one stand-in.
            stand_ins = {advanced[i] for i in alike}
            assert len(stand_ins) == 1, (chain, alike)
            # Maximality: every stand-in that would be correct is at or before ours.
            assert before[alike, stand_ins.pop()].all(), (chain, alike)


def test_advancing_by_an_empty_frontier_forgets_all_times() -> None:
    assert advance_by(SEED_TIMES, np.empty((0, 2), np.int64)).tolist() == [[TOP, TOP]] * 4


def test_advancing_twice_or_by_elements_that_are_not_minimal_changes_nothing() -> None:
    frontier = np.array([(0, 3), (1, 1)], np.int64)
    once = advance_by(SEED_TIMES, frontier)
    assert np.array_equal(advance_by(once, frontier), once)
    assert np.array_equal(advance_by(SEED_TIMES, np.array([(0, 3), (1, 1), (1, 3), (2, 2)], np.int64)), once)


def test_inside_a_loop_data_times_fold_to_lower_and_rounds_stay() -> None:
    times = np.array([(3, 0, 5), (7, 2, 0), (9, 1, 1)], np.int64)
    assert advance_by(times, np.array([(7, 0, 0)], np.int64)).tolist() == [[7, 0, 5], [7, 2, 0], [9, 1, 1]]


@pytest.mark.parametrize("coordinates", [1, 2, 3])
def test_join_and_meet_are_least_and_greatest_bounds(coordinates: int) -> None:
    times = grid(3, coordinates)
    for left, right in itertools.product(times, repeat=2):
        upper = tuple(join(np.array(left), np.array(right)).tolist())
        lower = tuple(meet(np.array(left), np.array(right)).tolist())
        for other in times:
            assert (precedes(left, other) and precedes(right, other)) == precedes(upper, other)
            assert (precedes(other, left) and precedes(other, right)) == precedes(other, lower)


def test_functions_take_many_times_at_once() -> None:
    left, right = SEED_TIMES, SEED_TIMES[::-1]
    expected = [precedes(tuple(a), tuple(b)) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert less_equal(left, right).tolist() == expected
    assert less_equal(np.array([0, 1]), left).tolist() == [False, True, False, True]
    assert join(left, np.array([0, 7])).tolist() == [[0, 7], [0, 7], [1, 7], [1, 7]]
    assert lower_bound(np.array([(3, 1), (2, 9)])).tolist() == [2, 1]
    assert lower_bound(np.empty((0, 2), np.int64)).tolist() == [TOP, TOP]


@pytest.mark.parametrize(("side", "coordinates"), [(3, 1), (3, 2), (2, 3)])
def test_minimal_and_reached_by_brute_force(side: int, coordinates: int) -> None:
    times = grid(side, coordinates)
    every = table(times, coordinates)
    for size in range(4):
        for some in itertools.combinations(times, size):
            chosen = table([*some, *some], coordinates)
            least = [a for a in some if not any(b != a and precedes(b, a) for b in some)]
            assert [tuple(row) for row in minimal(chosen).tolist()] == sorted(least)
            expected = [any(precedes(element, time) for element in some) for time in times]
            assert reached(every, chosen).tolist() == expected


def test_times_of_different_loops_do_not_mix() -> None:
    one, two = np.zeros((1, 1), np.int64), np.zeros((1, 2), np.int64)
    for call in (less_equal, join, meet, reached, advance_by):
        with pytest.raises(DepthMismatch, match="1 coordinates were combined with times with 2"):
            call(one, two)
