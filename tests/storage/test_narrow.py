"""Columns that take as few bytes as their numbers need say the same as those of eight bytes each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.storage.merging import merge_batches
from vernier.storage.kernels import growing
from vernier.storage.kernels.growing import append_rows, begin_trie, finish_trie
from vernier.storage.trace import batch as batch_module
from vernier.storage.trace.batch import COLUMNS, Batch, keyed_rows
from vernier.storage.updates import Ints, Updates

_LIMITS = [0, *(sign * 2**bits + more for bits in (7, 15, 31) for sign in (-1, 1) for more in (-1, 0, 1)), 2**63 - 1]
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from(_LIMITS))


@st.composite
def updates(draw: st.DrawFn) -> tuple[Updates, int]:
    """Updates, and how many of their words are the key."""
    depth, key_width, val_width = draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
    width, count = key_width + val_width, draw(st.integers(0, 30))
    few = draw(st.lists(NUMBERS, min_size=1, max_size=4))
    words = st.lists(st.sampled_from(few), min_size=width, max_size=width)
    rows = draw(st.lists(words, min_size=count, max_size=count))
    diffs = draw(st.lists(st.sampled_from([n for n in (*few, 1, -1) if n]), min_size=count, max_size=count))
    rounds = draw(st.lists(st.sampled_from([0, 1, *map(abs, few)]), min_size=depth * count, max_size=depth * count))
    times = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    # As many diffs of a row as there are here must add up in int64.
    data = Updates.of(
        np.array(rows, np.int64).reshape(count, width),
        np.array(times, np.int64),
        np.array([diff // 64 or diff for diff in diffs], np.int64),
        np.array(rounds, np.int64).reshape(count, depth),
    )
    return data, key_width


def _both(rows: Ints, key_width: int, depth: int) -> tuple[Batch, Batch]:
    """The rows in columns of eight bytes, and in narrow ones."""
    with pytest.MonkeyPatch.context() as patch:
        wide = Batch.of_rows(rows, key_width, depth, 0, 9, 0)
        patch.setattr(batch_module, "_MANY", 0)
        return wide, Batch.of_rows(rows, key_width, depth, 0, 9, 0)


def _same(narrow: Batch, wide: Batch) -> None:
    assert narrow.updates == wide.updates
    for name, column in narrow.arrays().items():
        assert column.dtype == np.int64
        assert np.array_equal(column, getattr(wide, name)), name
        assert column.shape == getattr(wide, name).shape, name
    assert np.array_equal(narrow.keyed(), wide.keyed())


@examples(300)
@given(updates())
def test_batches_are_the_same(drawn: tuple[Updates, int]) -> None:
    data, key_width = drawn
    wide, narrow = _both(keyed_rows(data, key_width), key_width, data.depth)
    _same(narrow, wide)
    assert narrow.nbytes <= wide.nbytes
    later = narrow.compacted(5)
    assert (later is None) == (len(narrow.times) > 1)
    if later is not None and later.updates:
        assert np.array_equal(later.keyed(), wide.compacted(5).keyed())  # type: ignore[union-attr]


@examples(200)
@given(updates(), st.integers(1, 5))
def test_pieces_of_keys_give_what_all_at_once_do(drawn: tuple[Updates, int], size: int) -> None:
    data, key_width = drawn
    rows = keyed_rows(data, key_width)
    shape = key_width, rows.shape[1] - 3 - key_width - data.depth, data.depth
    counts, trie = begin_trie(len(rows) + 3, *shape)
    at = 0
    while at < len(rows):
        end = min(at + size, len(rows))
        while end < len(rows) and np.array_equal(rows[end, : 1 + key_width], rows[end - 1, : 1 + key_width]):
            end += 1
        trie = append_rows(rows[at:end].copy(), *shape, counts, trie)
        at = end
    grown = Batch.of_columns(finish_trie(counts, trie), shape, len(rows), 0, 9, 0)
    assert int(counts[growing.N]) == len(rows)
    _same(grown, _both(rows, key_width, data.depth)[0])


@examples(200)
@given(updates(), updates(), st.integers(0, 3))
def test_merges_are_the_same(first: tuple[Updates, int], second: tuple[Updates, int], since: int) -> None:
    (one, key_width), (two, _) = first, second
    if two.width != one.width or two.depth != one.depth:
        two = one
    older, newer = (_both(keyed_rows(part, key_width), key_width, part.depth) for part in (one, two))
    expected = merge_batches((older[0], newer[0]), since)
    for sides in ((older[1], newer[1]), (older[0], newer[1]), (older[1], newer[0])):
        _same(merge_batches(sides, since), expected)


@pytest.mark.parametrize(
    ("number", "size"), [(127, 1), (128, 2), (-129, 2), (1 << 15, 4), (1 << 31, 8), (-(1 << 31), 4)]
)
def test_the_largest_number_decides(number: int, size: int) -> None:
    count = batch_module._MANY
    i = np.arange(count, dtype=np.int64)
    data = Updates.of(np.column_stack((i // 4, i % 2)), 0, np.where(i == 9, number, 1), (i // 2 % 2).reshape(-1, 1))
    batch = Batch.build(data, 1, 0, 9, 0)
    assert batch.diffs.dtype.itemsize == size
    assert batch.vals.dtype.itemsize == batch.rounds.dtype.itemsize == 1
    assert batch.key_offsets.dtype.itemsize == batch.val_offsets.dtype.itemsize == 4
    assert {name: getattr(batch, name).dtype.kind for name in COLUMNS} == dict.fromkeys(COLUMNS, "i")
    # 16 bytes of hashes and offsets a key, 5 of two vals, 2 of an update; 8 bytes each would be 24 + 2 x 16 + 4 x 16.
    assert size > 1 or batch.nbytes < 40 * count / 4
