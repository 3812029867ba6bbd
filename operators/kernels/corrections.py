"""Corrections: the rows `[hash | key | out val | time | now | diff]` by which a reduction changes its output."""

from vernier.storage.kernels.cells import cell, put, word
from vernier.storage.kernels.inlining import inlined


@inlined
def same_val(rows, i, others, j, width):  # type: ignore[no-untyped-def]
    """Whether row i and row j of `others` begin with the same `width` words."""
    for c in range(width):
        if cell(rows, i, c) != cell(others, j, c):
            return False
    return True


@inlined
def write_correction(  # type: ignore[no-untyped-def]
    out, count, keyed, key, k, rows, row, first, w, time, now, diff
):
    """Write correction number `count` of a key, with the w words in rows[row, first:] as its val; the caller has made
    sure that it fits."""
    for c in range(1 + k):
        put(out, count, c, cell(keyed, key, c))
    for c in range(w):
        put(out, count, 1 + k + c, cell(rows, row, first + c))
    put(out, count, 1 + k + w, time)
    for c in range(now.shape[0]):
        put(out, count, 2 + k + w + c, word(now, c))
    put(out, count, 2 + k + w + now.shape[0], diff)
