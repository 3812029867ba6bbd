"""Lanes: the numbers of a key, kept in a trace `[key | lane]`, where the multiplicity of a lane is the number."""

from numba import njit

from vernier.storage.kernels.cells import cell, put_word, word
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.tries import DIFF_STRIDE, DIFFS, KEY_OFFSETS, VAL_OFFSETS, VAL_STRIDE, VALS, offset

LANES = 160
"""Lanes of an aggregation. Lane 0, before all of them, counts the key's rows that exist (for PRESENT: are present)."""
EMPTY, MORE, DIGITS = 0, 1, 2
"""Positions among an aggregation's lanes. EMPTY: rows that exist and have no value. MORE: values beyond one for each
other row that exists. DIGITS: the first digit of the sum."""


@njit(cache=True)
def read_lanes(state, places, q, key, acc):  # type: ignore[no-untyped-def]
    """Add up the lanes of key number `key` of q, which is at places[layer * q + key]. Returns whether a lane overflowed
    int64."""
    for layer in range(state.shape[0]):
        at = word(places, layer * q + key)
        if at < 0:
            continue
        first = offset(cell(state, layer, KEY_OFFSETS), at)
        end = offset(cell(state, layer, KEY_OFFSETS), at + 1)
        val_offsets = cell(state, layer, VAL_OFFSETS)
        for val in range(first, end):
            lane = load(cell(state, layer, VALS), val * cell(state, layer, VAL_STRIDE))
            start = offset(val_offsets, val)
            stop = offset(val_offsets, val + 1)
            for e in range(start, stop):
                number = load(cell(state, layer, DIFFS), e * cell(state, layer, DIFF_STRIDE))
                total, wrapped = add_checked(word(acc, lane), number)
                if wrapped:
                    return True
                put_word(acc, lane, total)
    return False
