"""How slices are sized: epochs are cut the same way on all workers, whatever each of them wants."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.operators.runtime import slice_sizing
from vernier.operators.runtime.exchange import Single, Threads
from vernier.operators.runtime.slice_sizing import FIRST, LEAST, LEAST_ROWS, MOST, MOST_ROWS, SliceSizing
from vernier.operators.runtime.slices import Interval, cut_by_count


def updates(times: list[int]) -> dict[str, np.ndarray]:
    """A source's matrix [word | time | diff] of these times."""
    sorted_times = np.sort(np.array(times, np.int64))
    return {"rows": np.column_stack((np.zeros_like(sorted_times), sorted_times, np.ones_like(sorted_times)))}


def cut(
    times: list[list[int]], upper: int, sizings: list[SliceSizing], learned: list[list[int]]
) -> list[list[Interval]]:
    """What each worker cuts; after each of its slices its sizing is another."""

    def one(exchange: Single | Threads, own: list[int], its: SliceSizing, later: list[int]) -> list[Interval]:
        slices = []
        for i, interval in enumerate(cut_by_count(exchange, updates(own), 0, upper, its)):
            slices.append(interval)
            if not its.fixed:
                its.updates = later[i % len(later)]
        return slices

    exchanges = Threads.connected(len(times)) if len(times) > 1 else [Single()]
    with ThreadPoolExecutor(len(times)) as pool:
        return list(pool.map(one, exchanges, times, sizings, learned))


@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(st.integers(0, 40), max_size=60), min_size=n, max_size=n)),
    st.one_of(st.just(0), st.integers(1, 9)),
    st.data(),
)
def test_cuts_are_the_same_on_all_workers_and_cover_the_epoch(
    times: list[list[int]], fixed: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_sizing, "LEAST", 4)
        sizings = [SliceSizing(fixed) for _ in times]
        wanted = st.lists(st.integers(1, 5).map(lambda n: 4 * n), min_size=1, max_size=4)
        for one in sizings:
            one.updates = one.fixed or 8
        found = cut(times, 50, sizings, [data.draw(wanted) for _ in times])
    assert all(slices == found[0] for slices in found)
    together = sorted(time for own in times for time in own)
    if not together:
        assert found[0] in ([], [(0, 50)])
        return
    assert [lower for lower, _ in found[0]] + [50] == [0] + [upper for _, upper in found[0]]
    # No more than was wanted, but for one time's updates, which are not cut, and what a worker has behind its last cut.
    most = (fixed or 20) * len(times)
    for lower, upper in found[0]:
        inside = [time for time in together if lower <= time < upper]
        largest = max((inside.count(time) for time in inside), default=0)
        assert len(inside) <= most + (fixed or 4) * len(times) + largest, (lower, upper)


def test_slices_of_an_epoch_are_about_equal() -> None:
    its = SliceSizing()
    slices = list(cut_by_count(Single(), updates(list(range(5 * LEAST))), 0, 5 * LEAST, its))
    assert FIRST == 2 * LEAST
    assert [upper - lower for lower, upper in slices] == [2 * LEAST, 2 * LEAST, LEAST]


def test_a_slice_should_seal_as_many_rows_as_the_state_has() -> None:
    its = SliceSizing()
    for _ in range(10):
        its.learn(its.updates, 100 * its.updates, MOST_ROWS // 2)
    assert its.updates == pytest.approx(MOST_ROWS // 200, abs=LEAST)


def test_a_slice_seals_less_where_memory_is_little() -> None:
    its = SliceSizing()
    its.keep_to(1 << 28)
    for _ in range(10):
        its.learn(its.updates, 10 * its.updates, MOST_ROWS)
    assert its.updates == pytest.approx((1 << 19) // 10, abs=LEAST)


@pytest.mark.parametrize(("wanted", "given"), [(30_000, 14), (40_000, 16), (60_000, 16), (70_000, 34)])
def test_a_slice_leaves_its_kernel_only_to_be_much_longer(wanted: int, given: int) -> None:
    its = SliceSizing()
    its.kernel = 16 * LEAST
    for _ in range(8):
        its.learn(LEAST, LEAST * LEAST_ROWS // wanted, 0)
    assert its.updates == given * LEAST


def test_slices_grow_step_by_step_and_shrink_at_once() -> None:
    its, seen = SliceSizing(), []
    for _ in range(6):
        its.learn(its.updates, its.updates, MOST_ROWS)
        seen.append(its.updates)
    assert seen == [FIRST << 2, FIRST << 4, FIRST << 6, FIRST << 8, MOST, MOST]
    its.learn(its.updates, its.updates * LEAST_ROWS, 0)
    assert its.updates == LEAST


def test_what_is_fixed_or_says_nothing_is_not_learned_from() -> None:
    assert not SliceSizing(9).wants(9)
    its = SliceSizing()
    assert its.updates == FIRST
    assert [its.wants(taken) for taken in (1, FIRST // 2, FIRST, 3 * FIRST)] == [False, True, True, False]


def test_a_worker_that_reads_nothing_wants_what_its_peers_want() -> None:
    """Once it had nothing to learn from, and all slices were as short as its first."""
    workers = [SliceSizing(), SliceSizing()]

    def run(exchange: Threads, own: list[int], its: SliceSizing) -> list[int]:
        lengths = []
        for lower, upper in cut_by_count(exchange, updates(own), 0, 1 << 16, its):
            lengths.append(upper - lower)
            taken = sum(lower <= time < upper for time in own)
            if its.wants(taken):
                its.learn(taken, upper - lower, MOST_ROWS)
        return lengths

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(run, Threads.connected(2), [list(range(1 << 16)), []], workers)
    assert one == other
    assert len(one) < 5
    assert [its.updates for its in workers] == [workers[0].updates] * 2
    assert workers[0].updates > FIRST


def test_small_epochs_of_several_workers_say_nothing() -> None:
    workers = [SliceSizing(), SliceSizing()]

    def run(exchange: Threads, own: list[int], its: SliceSizing) -> bool:
        its.updates = LEAST
        return any(its.wants(len(own)) for _ in cut_by_count(exchange, updates(own), 0, 100, its))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, Threads.connected(2), [list(range(50)), list(range(60))], workers)) == [False, False]
