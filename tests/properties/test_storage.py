"""Updates, batches and traces against dictionaries: the same histories, however they are cut, merged and compacted."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.merging import merge_batches
from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels.hashing import key_rows, mix, owner, partition_rows, unmix
from vernier.storage.kernels.placing import split_rows
from vernier.storage.trace.batch import Batch, keyed_rows
from vernier.storage.trace.spine import SMALL_BATCHES, Trace
from vernier.storage.updates import MIN_TIME, Ints, Updates

Words = tuple[int, ...]
Entry = tuple[Words, int, Words, int]
"""Row words, time, rounds, diff."""
History = dict[tuple[Words, Words, int], int]
"""(row words, rounds, time) to diff, never 0."""

GREATEST, LEAST = 2**63 - 1, -(2**63)
words = st.one_of(st.integers(0, 3), st.sampled_from((LEAST, -1, 2**40, GREATEST)))
times = st.one_of(st.integers(0, 6), st.sampled_from((MIN_TIME, -5, 1_700_000_000_000_000_000, GREATEST - 1)))
diffs = st.integers(-3, 3)


def entries(width: int, depth: int, most: int = 30) -> st.SearchStrategy[list[Entry]]:
    """Lists of updates with few distinct rows, times and rounds, so that they meet."""
    row = st.tuples(*[words] * width)
    rounds = st.tuples(*[st.integers(0, 3)] * depth)
    return st.lists(st.tuples(row, times, rounds, diffs), max_size=most)


def matrix(some: Iterable[Entry], width: int, depth: int) -> Updates:
    """The updates as the matrix that storage works on."""
    data = [(*row, time, *rounds, diff) for row, time, rounds, diff in some]
    return Updates(np.array(data, np.int64).reshape(len(data), width + depth + 2), width, depth)


def history(some: Iterable[Entry]) -> History:
    """The updates as a dictionary."""
    total: History = {}
    for row, time, rounds, diff in some:
        total[row, rounds, time] = total.get((row, rounds, time), 0) + diff
    return {place: diff for place, diff in total.items() if diff}


def listed(updates: Updates) -> list[Entry]:
    """The matrix as updates."""
    width = updates.width
    return [(tuple(one[:width]), one[width], tuple(one[width + 1 : -1]), one[-1]) for one in updates.data.tolist()]


def as_history(updates: Updates) -> History:
    """The matrix as a dictionary; nothing may be in it twice, and nothing with a diff of 0."""
    result = {(row, rounds, time): diff for row, time, rounds, diff in listed(updates)}
    assert len(result) == len(updates)
    assert 0 not in result.values()
    return result


def keyed(keys: Iterable[Words], width: int) -> Ints:
    """Distinct keys as `[hash | key]` sorted by hash, as select wants them."""
    if width == 0:
        return np.zeros((1, 1), np.int64)
    data = np.array(sorted(set(keys)), np.int64).reshape(-1, width)
    rows = key_rows(data, np.arange(width), np.empty(0, np.int64), 0)
    return np.ascontiguousarray(rows[np.argsort(rows[:, 0], kind="stable")])


shapes = st.tuples(st.integers(0, 3), st.integers(0, 2))


@given(shapes.flatmap(lambda shape: st.tuples(st.just(shape), entries(*shape))))
def test_consolidate_sorts_sums_and_drops_zeros(case: tuple[tuple[int, int], list[Entry]]) -> None:
    (width, depth), some = case
    result = matrix(some, width, depth).consolidate()
    assert as_history(result) == history(some)
    order = [(row, rounds, time) for row, time, rounds, _ in listed(result)]
    assert order == sorted(order)


@pytest.mark.parametrize("size", [11, 12, 13, 24, 25, 33, 1000, 20_000, 65_536, 65_537])
def test_consolidate_at_the_sizes_where_it_changes_its_sort(size: int) -> None:
    choose = random.Random(size)
    some: list[Entry] = [
        (
            (choose.choice((-(2**62), 0, 1)) + choose.randrange(size // 3 + 1), choose.randrange(5)),
            choose.randrange(9),
            (choose.randrange(3),),
            choose.choice((-1, 1, 2)),
        )
        for _ in range(size)
    ]
    result = matrix(some, 2, 1).consolidate()
    assert as_history(result) == history(some)
    order = [(row, rounds, time) for row, time, rounds, _ in listed(result)]
    assert order == sorted(order)


@pytest.mark.parametrize("pair", [(GREATEST, 1), (LEAST, -1), (2**62, 2**62)])
def test_a_sum_beyond_64_bits_is_an_error(pair: tuple[int, int]) -> None:
    some: list[Entry] = [((7, 7), 1, (), diff) for diff in pair]
    with pytest.raises(DiffOverflow):
        matrix(some, 2, 0).consolidate()
    with pytest.raises(DiffOverflow):
        Batch.build(matrix(some, 2, 0), 1, 0, 10, 0)
    parts = [Batch.build(matrix([one], 2, 0), 1, 0, 10, 0) for one in some]
    with pytest.raises(DiffOverflow):
        merge_batches(parts, 0)
    trace = Trace("t", 1, 1, 0)
    for part in parts:
        trace.seal(part.keyed(), 0, 10)
    with pytest.raises(DiffOverflow):
        trace.select(keyed([(7,)], 1), fold=0)


@given(st.integers(LEAST, GREATEST), st.integers(1, 70))
def test_the_hash_of_a_word_is_a_bijection_and_owners_are_ranges(word: int, workers: int) -> None:
    hashed = int(mix(word))
    assert int(unmix(hashed)) == word
    assert 0 <= int(owner(hashed, workers)) < workers
    ends = [int(owner(edge, workers)) for edge in (LEAST, hashed, GREATEST)]
    assert ends == sorted(ends)
    assert (ends[0], ends[2]) == (0, workers - 1)


@given(entries(2, 1), st.integers(1, 5))
def test_parts_of_workers_are_all_rows_each_at_its_owner(some: list[Entry], workers: int) -> None:
    updates = matrix(some, 2, 1)
    rows = key_rows(updates.data, np.array([1]), np.array([0]), updates.depth + 2)
    parts, offsets = partition_rows(rows, workers)
    assert (offsets[0], offsets[-1]) == (0, len(rows))
    assert sorted(parts.tolist()) == sorted(rows.tolist())
    for worker in range(workers):
        part = parts[offsets[worker] : offsets[worker + 1]].tolist()
        assert all(int(owner(row[0], workers)) == worker for row in part)
        assert part == [row for row in rows.tolist() if int(owner(row[0], workers)) == worker]


@given(entries(3, 1), st.sets(st.integers(0, 2)), st.integers(1, 5), st.booleans())
def test_updates_are_split_by_the_owners_of_their_keys_with_a_note_behind_each_part(
    some: list[Entry], key: set[int], workers: int, noted: bool
) -> None:
    data = np.ascontiguousarray(matrix(some, 3, 1).data)
    words = np.array(sorted(key), np.int64)
    note = np.arange(data.shape[1] * noted) - 7
    parts, offsets = split_rows(data, words, workers, note)
    owners = [int(owner(row[0], workers)) for row in key_rows(data, words, np.empty(0, np.int64), 3).tolist()]
    assert (offsets[0], offsets[-1]) == (0, len(parts))
    for worker in range(workers):
        part = parts[offsets[worker] : offsets[worker + 1]].tolist()
        mine = [row for row, at in zip(data.tolist(), owners, strict=True) if at == worker]
        assert part == mine + [note.tolist()] * noted


tries = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3))


@given(tries.flatmap(lambda shape: st.tuples(st.just(shape), entries(shape[0] + shape[1], shape[2]))))
def test_a_batch_holds_what_it_was_built_from(case: tuple[tuple[int, int, int], list[Entry]]) -> None:
    (key_width, val_width, depth), some = case
    batch = Batch.build(matrix(some, key_width + val_width, depth), key_width, -5, 10, -5)
    expected = history(some)
    assert as_history(batch.to_updates()) == expected
    assert batch.updates == len(expected)
    assert len(batch.hashes) == len({row[:key_width] for row, _, _ in expected})
    assert batch.hashes.tolist() == sorted(batch.hashes.tolist())
    again = Batch.open(batch.meta(), {name: array.copy() for name, array in batch.arrays().items()})
    assert again.meta() == batch.meta()
    assert as_history(again.to_updates()) == expected
    assert again.nbytes == batch.nbytes


def test_constant_columns_cost_nothing() -> None:
    batch = Batch.build(matrix([((key,), 7, (0,), 1) for key in range(1000)], 1, 1), 1, 0, 10, 0)
    sizes = {name: array.size for name, array in batch.arrays().items()}
    assert sizes.pop("hashes") == 1000
    assert max(sizes.values()) <= 1


@given(
    tries.flatmap(
        lambda shape: st.tuples(
            st.just(shape),
            st.lists(entries(shape[0] + shape[1], shape[2], 12), min_size=1, max_size=5),
        )
    ),
    times,
)
def test_merging_is_adding_and_compaction_raises_times_only(
    case: tuple[tuple[int, int, int], list[list[Entry]]], since: int
) -> None:
    (key_width, val_width, depth), parts = case
    batches = [Batch.build(matrix(part, key_width + val_width, depth), key_width, 0, 10, 0) for part in parts]
    merged = merge_batches(batches, since)
    raised = [(row, max(time, since), rounds, diff) for part in parts for row, time, rounds, diff in part]
    assert as_history(merged.to_updates()) == history(raised)
    rebuilt = Batch.build(matrix(raised, key_width + val_width, depth), key_width, 0, 10, 0)
    assert {name: array.tolist() for name, array in merged.arrays().items()} == {
        name: array.tolist() for name, array in rebuilt.arrays().items()
    }


@st.composite
def colliding(draw: st.DrawFn) -> list[Entry]:
    """Updates of two-word keys that all have one hash: the second word undoes what the first did."""
    target = draw(st.integers(0, 1))
    made: list[Entry] = []
    for first, val, time, diff in draw(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3), diffs), max_size=20)
    ):
        made.append(((first, int(mix(first)) ^ target, val), time, (), diff))
    return made


@given(colliding(), colliding())
def test_keys_that_collide_stay_apart(one: list[Entry], two: list[Entry]) -> None:
    trace = Trace("t", 2, 1, 0)
    asked = keyed({(first, int(mix(first)) ^ target) for first in range(7) for target in (0, 1)}, 2)
    assert len(set(asked[:, 0].tolist())) == 2
    for some in (one, two):
        trace.seal(keyed_rows(matrix(some, 3, 0), 2), 0, 10)
        selected(trace, asked[::2], MIN_TIME, None)
    assert selected(trace, asked, MIN_TIME, None) == history([*one, *two])
    trace.close_slice(0)
    assert selected(trace, asked, 0, None) == history((row, 0, rounds, diff) for row, _, rounds, diff in [*one, *two])


def selected(trace: Trace, asked: Ints, fold: int, before: int | None) -> History:
    """What select gives for these keys, as a dictionary; checks the order inside each key."""
    result = trace.select(asked, fold=fold, before=before)
    found: History = {}
    assert result.spans.shape == (len(asked), 2)
    dense = result.dense()
    for position, key in enumerate(asked[:, 1:].tolist()):
        some = result.entries[slice(*result.spans[position])]
        assert some.shape[1] == trace.val_width + trace.depth + 2
        assert some.tolist() == dense.entries[slice(*dense.spans[position])].tolist()
        part = listed(Updates(np.ascontiguousarray(some), trace.val_width, trace.depth))
        order = [(val, rounds, time) for val, time, rounds, _ in part]
        assert order == sorted(set(order))
        for val, time, rounds, diff in part:
            assert diff != 0
            found[(*key, *val), rounds, time] = diff
    return found


@st.composite
def slices(draw: st.DrawFn) -> tuple[tuple[int, int, int], list[list[list[Entry]]]]:
    """A trace's shape and its life: slices of steps of updates; slice s has the times 10 s .. 10 s + 9."""
    key_width, val_width, depth = draw(tries)
    row = st.tuples(*[st.integers(0, 2)] * (key_width + val_width))
    rounds = st.tuples(*[st.integers(0, 2)] * depth)
    life = []
    for number in range(draw(st.integers(1, 5))):
        update = st.tuples(row, st.integers(10 * number, 10 * number + 9), rounds, diffs)
        life.append(draw(st.lists(st.lists(update, max_size=8), max_size=4)))
    return (key_width, val_width, depth), life


@given(slices(), st.data())
def test_a_trace_reads_as_all_its_updates(
    case: tuple[tuple[int, int, int], list[list[list[Entry]]]], data: st.DataObject
) -> None:
    """Earlier slices read at the slice's lower, this slice's steps at their own times, only those before the mark."""
    (key_width, val_width, depth), life = case
    trace = Trace("t", key_width, val_width, depth)
    old: list[Entry] = []
    universe = {row[:key_width] for part in life for step in part for row, _, _, _ in step} | {(9,) * key_width}

    def check(trace: Trace, marks: list[int], steps: list[list[Entry]], seen: int | None) -> None:
        """Select some keys, before the mark that follows the first `seen` steps of the last slice."""
        asked_keys = data.draw(st.sets(st.sampled_from(sorted(universe)))) if key_width else universe
        expected = [(row, lower, rounds, diff) for row, _, rounds, diff in old]
        expected += [entry for step in steps[: len(marks) - 1][:seen] for entry in step]
        wanted = history(entry for entry in expected if entry[0][:key_width] in asked_keys)
        mark = None if seen is None else marks[seen]
        assert selected(trace, keyed(asked_keys, key_width), lower, mark) == wanted

    for number, steps in enumerate(life):
        lower = 10 * number
        kept, before_this = trace.fork(), list(old)
        marks = [trace.mark]
        for step in steps:
            updates = matrix(step, key_width + val_width, depth)
            trace.seal(keyed_rows(updates, key_width), lower, lower + 10)
            marks.append(trace.mark)
            # Histories are taken up where an earlier selection left them, for whatever keys and marks come.
            for _ in range(data.draw(st.integers(0, 2))):
                check(trace, marks, steps, data.draw(st.integers(0, len(marks) - 1)))
        for seen in range(len(marks)):
            check(trace, marks, steps, seen)
        check(trace, marks, steps, None)
        old += [entry for step in steps for entry in step]
        trace.close_slice(lower + 10)
        whole = history((row, lower + 10, rounds, diff) for row, _, rounds, diff in old)
        inside = [entry for batch in trace.batches for entry in listed(batch.to_updates())]
        assert history((row, lower + 10, rounds, diff) for row, _, rounds, diff in inside) == whole
        sizes = [batch.updates for batch in trace.batches]
        assert all(size > 0 for size in sizes)
        assert len(sizes) <= SMALL_BATCHES
        unmoved = history((row, lower, rounds, diff) for row, _, rounds, diff in before_this)
        everything = keyed(universe, key_width)
        assert selected(kept, everything, lower, None) == unmoved
