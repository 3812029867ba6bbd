"""Loops that call a program's compiled function for group after group, without Python in between.

They are compiled together with the function that they call, so they cannot be compiled ahead of time.
"""

from numba import njit


@njit
def _each_of_one(function, a, counts, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        start, stop = offsets[i], offsets[i + 1]
        out[i] = function(a[start:stop], counts[start:stop])


@njit
def _each_of_two(function, a, b, counts, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        start, stop = offsets[i], offsets[i + 1]
        out[i] = function(a[start:stop], b[start:stop], counts[start:stop])


@njit
def _each_of_three(function, a, b, c, counts, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        start, stop = offsets[i], offsets[i + 1]
        out[i] = function(a[start:stop], b[start:stop], c[start:stop], counts[start:stop])


LOOPS = {1: _each_of_one, 2: _each_of_two, 3: _each_of_three}
"""By number of columns: `loop(function, *columns, counts, offsets, out)` fills out[g] for each group of offsets."""
