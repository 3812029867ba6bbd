"""Fuelled merges: what a trace reads never changes by them, no close does more than its share, batches stay few."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.merging import merge_batches
from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.kernels.merging import merge_tries
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.batch import Batch, keyed_rows
from vernier.storage.trace.merge import Merge
from vernier.storage.trace.spine import FEW_UPDATES, FUEL, SMALL, Trace
from vernier.storage.updates import Updates

Fact = tuple[int, int, int]
"""Key, val, round."""


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges get nothing but what slices pay, at each close; none is done at once, and small batches do not wait."""
    monkeypatch.setattr(trace_module, "AT_ONCE", 0)
    monkeypatch.setattr(trace_module, "AT_ONCE_ALWAYS", 0)
    monkeypatch.setattr(trace_module, "FEW_UPDATES", 0)
    monkeypatch.setattr(trace_module, "LEAST", 0)
    monkeypatch.setattr(trace_module, "SMALL", 1)


def updates_of(choose: random.Random, n: int, keys: int, lower: int) -> Updates:
    rows = [(choose.randrange(keys), choose.randrange(3)) for _ in range(n)]
    times = [lower + choose.randrange(10) for _ in range(n)]
    return Updates.of(
        np.array(rows, np.int64).reshape(n, 2),
        np.array(times, np.int64),
        [choose.choice((-1, 1, 1)) for _ in range(n)],
        np.array([choose.randrange(2) for _ in range(n)], np.int64).reshape(n, 1),
    )


def read(trace: Trace, keys: int, fold: int) -> dict[Fact, int]:
    """All facts, by asking for all keys."""
    asked = key_rows(np.arange(keys).reshape(-1, 1), np.arange(1), np.empty(0, np.int64), 0)
    asked = np.ascontiguousarray(asked[np.argsort(asked[:, 0])])
    found = trace.select(asked, fold=fold)
    facts = {}
    for i, key in enumerate(asked[:, 1].tolist()):
        for val, time, round_, diff in found.entries[slice(*found.spans[i])].tolist():
            assert time == fold
            facts[key, val, round_] = diff
    return facts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("keys", [30, 100_000])
@pytest.mark.usefixtures("unhurried")
def test_what_a_trace_reads_is_the_same_whatever_is_merging(seed: int, keys: int) -> None:
    choose = random.Random(seed)
    trace = Trace("t", 1, 1, 1)
    facts: Counter[Fact] = Counter()
    inserted, seen_merging = 0, 0
    for number in range(150):
        lower = 10 * number
        n = choose.choice((0, 1, 3, 20, choose.randrange(200)))
        updates = updates_of(choose, n, keys, lower)
        for (key, val), round_, diff in zip(
            updates.rows.tolist(), updates.rounds[:, 0].tolist(), updates.diff.tolist(), strict=True
        ):
            facts[key, val, round_] += diff
        spent, levels = trace.spent, sum(batch.updates for batch in trace.batches).bit_length() + 1
        trace.seal(keyed_rows(updates, 1), lower, lower + 10)
        trace.close_slice(lower + 10)
        inserted += n
        # Merges share the fuel, which is more where slices grow; overshoot is a val's history, of at most two rounds.
        assert trace.spent - spent <= (FUEL * levels + 8) * n + 4 * levels
        seen_merging += bool(trace.merges)
        sizes = [batch.updates for batch in trace.batches]
        assert all(sizes)
        assert len(sizes) <= 2 * math.log2(inserted + 2) + 2
        busy = [any(batch in (merge.older, merge.newer) for merge in trace.merges) for batch in trace.batches]
        for (one, two), pair in zip(itertools.pairwise(sizes), itertools.pairwise(busy), strict=True):
            assert any(pair) or one >= 2 * two
        if number % 10 == 9:
            wanted = {fact: diff for fact, diff in facts.items() if diff}
            if keys < 100:
                assert read(trace, keys, lower + 10) == wanted
            whole = merge_batches(trace.batches, lower + 10).to_updates() if trace.batches else None
            found = {} if whole is None else {(r[0], r[1], r[3]): r[4] for r in whole.data.tolist()}
            assert found == wanted
    assert seen_merging > 5 or keys < 100
    assert trace.merged <= inserted * (2 + math.log(inserted, 1.5))


@pytest.mark.parametrize(("rows", "nodes"), [(200, 10**9), (200, 3_000), (1_500, 10**9)])
def test_closes_of_slices_that_are_alike_are_alike(rows: int, nodes: int) -> None:
    choose = np.random.default_rng(rows)
    trace = Trace("t", 1, 1, 0)
    spent, batches = [], []
    for number in range(900):
        keys = choose.integers(0, nodes, (rows, 2))
        trace.seal(keyed_rows(Updates.of(keys, np.full(rows, number), 1), 1), number, number + 1)
        before = trace.spent
        trace.close_slice(number + 1)
        spent.append(trace.spent - before)
        batches.append(len(trace.batches))
    levels = (trace.updates // SMALL).bit_length()
    # What an update goes through is paid for as evenly as merges of all sizes allow, by every close or, if these add
    # few updates, by one of several.
    turns = 1 + FEW_UPDATES // rows
    paid = np.add.reduceat(spent[300:], range(0, 600, turns))
    assert max(spent[300:]) <= 1.5 * FUEL * levels * rows * turns + trace_module.LEAST
    assert max(paid) <= 4 * np.mean(paid)
    assert max(batches) <= 2 * levels + trace_module.SMALL_BATCHES + 2


def test_small_batches_wait_for_each_other() -> None:
    choose = random.Random(7)
    trace = Trace("t", 1, 1, 1)
    facts: Counter[Fact] = Counter()
    most = united = 0
    for number in range(200):
        lower = 10 * number
        updates = updates_of(choose, choose.choice((1, 3, 40)), 300, lower)
        for (key, val), round_, diff in zip(
            updates.rows.tolist(), updates.rounds[:, 0].tolist(), updates.diff.tolist(), strict=True
        ):
            facts[key, val, round_] += diff
        before, merged = len(trace.batches), trace.merged
        trace.seal(keyed_rows(updates, 1), lower, lower + 10)
        trace.close_slice(lower + 10)
        most = max(most, len(trace.batches))
        united += len(trace.batches) < before
        assert (trace.merged > merged) == (len(trace.batches) <= before)
        assert read(trace, 300, lower + 10) == {fact: diff for fact, diff in facts.items() if diff}
    # Nine become one, over and over; what they make merges as all batches do.
    assert united > 15
    assert trace_module.SMALL_BATCHES <= most <= trace_module.SMALL_BATCHES + 4


@pytest.mark.usefixtures("unhurried")
def test_a_fork_goes_its_own_way_and_shares_the_work() -> None:
    choose = random.Random(1)
    trace = Trace("t", 1, 1, 1)
    number = 0
    while not trace.merges:
        trace.seal(keyed_rows(updates_of(choose, 100, 10_000, 10 * number), 1), 10 * number, 10 * number + 10)
        trace.close_slice(10 * number + 10)
        number += 1
    batches, merges = list(trace.batches), list(trace.merges)
    fork = trace.fork()
    while fork.merges:
        fork.seal(keyed_rows(updates_of(choose, 1, 10_000, 10 * number), 1), 10 * number, 10 * number + 10)
        fork.close_slice(10 * number + 10)
    assert (trace.batches, trace.merges) == (batches, merges)
    other = trace.fork()
    other.seal(keyed_rows(updates_of(choose, 1, 10_000, 10 * number), 1), 10 * number, 10 * number + 10)
    other.close_slice(10 * number + 10)
    merged = merges[0].finish()
    assert any(np.shares_memory(merged.hashes, batch.hashes) for batch in other.batches)
    assert any(np.shares_memory(merged.hashes, batch.hashes) for batch in fork.batches)
    assert all(batch not in fork.batches for batch in (merged, *other.batches) if batch not in batches)


shapes = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[int, int, int, list[Updates]]:
    k, v, d = draw(shapes)
    made = []
    for _ in range(2):
        update = st.tuples(
            st.lists(st.integers(0, 2), min_size=k + v, max_size=k + v),
            st.integers(0, 4),
            st.lists(st.integers(0, 2), min_size=d, max_size=d),
            st.sampled_from((-1, 1, 2)),
        )
        some = draw(st.lists(update, max_size=25))
        data = np.array([[*row, time, *rounds, diff] for row, time, rounds, diff in some], np.int64)
        made.append(Updates(data.reshape(len(some), k + v + d + 2), k + v, d))
    return k, v, d, made


@given(pairs(), st.integers(-1, 6), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_merge_is_the_same_in_pieces_of_any_size(
    case: tuple[int, int, int, list[Updates]], since: int, fuels: list[int]
) -> None:
    k, v, d, (one, two) = case
    older, newer = Batch.build(one, k, 0, 5, 0), Batch.build(two, k, 5, 10, 5)
    merge = Merge(older, newer, since)
    for fuel in itertools.cycle(fuels):
        if merge.work(fuel):
            break
    data = np.concatenate((one.data, two.data))
    data[:, k + v] = np.maximum(data[:, k + v], since)
    wanted = Batch.build(Updates(data, k + v, d), k, 0, 10, 5)
    merged = merge.finish()
    assert {name: array.tolist() for name, array in merged.arrays().items()} == {
        name: array.tolist() for name, array in wanted.arrays().items()
    }
    assert (merged.lower, merged.upper, merged.updates) == (0, 10, wanted.updates)
    (together, address), updates, status = merge_tries(older.address, newer.address, k, v, d, since)
    whole = Batch(k, v, d, updates, 0, 10, 5, together, address)
    assert status == 0
    assert {name: array.tolist() for name, array in whole.arrays().items()} == {
        name: array.tolist() for name, array in wanted.arrays().items()
    }


@given(pairs(), st.integers(-1, 6))
def test_a_step_closes_as_its_rows_do(case: tuple[int, int, int, list[Updates]], since: int) -> None:
    k, v, d, (one, _) = case
    trace = Trace("t", k, v, d, -1)
    trace.seal(keyed_rows(one, k), 0, 5)
    trace.close_slice(since)
    data = one.data.copy()
    data[:, k + v] = np.maximum(data[:, k + v], since)
    wanted = Batch.build(Updates(data, k + v, d), k, 0, 5, since)
    assert [batch.arrays().keys() for batch in trace.batches] == [wanted.arrays().keys()] * (wanted.updates > 0)
    for batch in trace.batches:
        assert {name: array.tolist() for name, array in batch.arrays().items()} == {
            name: array.tolist() for name, array in wanted.arrays().items()
        }


counts = st.dictionaries(st.integers(0, 30), st.sampled_from((-2, -1, 1, 2, 2**62)), max_size=25)


def _counted(counts: dict[int, int], time: int) -> Batch:
    keys, diffs = np.array([*counts], np.int64).reshape(-1, 1), np.array([*counts.values()], np.int64)
    return Batch.build(Updates.of(keys, time, diffs), 1, time, time + 1, time + 1)


@given(counts, counts, st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_keys_of_one_time_add_up_in_pieces_of_any_size(
    one: dict[int, int], two: dict[int, int], fuels: list[int]
) -> None:
    sums = {key: one.get(key, 0) + two.get(key, 0) for key in one.keys() | two.keys()}
    merge = Merge(_counted(one, 0), _counted(two, 1), 2)
    try:
        for fuel in itertools.cycle(fuels):
            if merge.work(fuel):
                break
    except DiffOverflow:
        assert max(sums.values()) == 2**63
        return
    assert max(sums.values(), default=0) < 2**63
    assert merge.spent == len(one) + len(two)
    wanted = _counted({key: count for key, count in sums.items() if count}, 2)
    assert {name: array.tolist() for name, array in merge.finish().arrays().items()} == {
        name: array.tolist() for name, array in wanted.arrays().items()
    }
