"""Consolidate few rows: by insertion, into the array that is returned.

Sorting many rows needs arrays for their words, their groups and their order. For a handful, as an epoch of a single
update has, allocating these takes longer than the work.
"""

from vernier.storage.kernels.cells import cell, put, word
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.sorting import add_checked

FEW = 16
"""Up to this number of rows, they are inserted one by one."""


@borrowing
def _insert(out, count, place):  # type: ignore[no-untyped-def]
    """Move the last row of `out` to `place`, and the `count` rows there are, from this one on, down by one."""
    last = out.shape[0] - 1
    for i in range(count, place, -1):
        for c in range(out.shape[1]):
            put(out, i, c, cell(out, i - 1, c))
    if place < last:
        for c in range(out.shape[1]):
            put(out, place, c, cell(out, last, c))


@borrowing
def _compare(out, i, columns):  # type: ignore[no-untyped-def]
    """Compares the last row of `out` with row i, by these columns."""
    last = out.shape[0] - 1
    for at in range(columns.shape[0]):
        c = word(columns, at)
        if cell(out, last, c) != cell(out, i, c):
            return -1 if cell(out, last, c) < cell(out, i, c) else 1
    return 0


@borrowing
def _add(out, i):  # type: ignore[no-untyped-def]
    """Add the diff of the last row of `out` to that of row i; whether the sum has left int64."""
    diff = out.shape[1] - 1
    total, wrapped = add_checked(cell(out, i, diff), cell(out, out.shape[0] - 1, diff))
    put(out, i, diff, total)
    return wrapped


@borrowing
def _drop_zeros(out, count):  # type: ignore[no-untyped-def]
    """Drop those of the first `count` rows whose diff is zero; returns how many are left."""
    left = 0
    for i in range(count):
        if cell(out, i, out.shape[1] - 1) != 0:
            if left < i:
                for c in range(out.shape[1]):
                    put(out, left, c, cell(out, i, c))
            left += 1
    return left


@borrowing
def consolidate_few(data, columns, out):  # type: ignore[no-untyped-def]
    """What `consolidating.consolidate` returns, in the first rows of `out`, which has one row more than `data`: (how
    many there are, whether a sum has left int64). O(n²)."""
    n, count, wrapped = data.shape[0], 0, False
    for i in range(n):
        for c in range(data.shape[1]):
            put(out, n, c, cell(data, i, c))
        place, order = count, 1
        while place > 0:
            order = _compare(out, place - 1, columns)
            if order >= 0:
                break
            place -= 1
        if place > 0 and order == 0:
            wrapped |= _add(out, place - 1)
        else:
            _insert(out, count, place)
            count += 1
    return _drop_zeros(out, count), wrapped
