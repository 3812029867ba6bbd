"""The lattice of product times: their partial order, least upper and greatest lower bounds, and compaction to a
frontier.

A time is a row of d int64 coordinates: the data time in nanoseconds, then one round for each enclosing loop. One time
is at or before another if every coordinate is. Two times may therefore be incomparable, but any two have a least upper
bound (join, the coordinate-wise maximum) and a greatest lower bound (meet, the minimum). All functions work on many
times at once, as int64[n, d].

Source: "Differential dataflow roadmap", section "Compaction".
"""

import numpy as np
import numpy.typing as npt

from vernier.storage.errors import DepthMismatch

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TOP = 2**63 - 1
"""The greatest coordinate: the join of everything, and the meet of nothing."""
MIN_TIME = -(2**63) + 2
"""The initial frontier; no data time is earlier."""
CLOSED = TOP
"""The frontier of a complete collection; all data times are earlier."""


def less_equal(left: Times, right: Times) -> Flags:
    """Whether each time of `left` is at or before its partner; bool[n]. Shapes [n, d] or [d], broadcast over n."""
    _check(left, right)
    found: Flags = np.all(left <= right, axis=-1)
    return found


def join(left: Times, right: Times) -> Times:
    """The earliest times at or after both partners (least upper bounds). Shapes as in `less_equal`."""
    _check(left, right)
    return np.maximum(left, right)


def meet(left: Times, right: Times) -> Times:
    """The latest times at or before both partners (greatest lower bounds). Shapes as in `less_equal`."""
    _check(left, right)
    return np.minimum(left, right)


def lower_bound(times: Times) -> Times:
    """The latest time at or before all of times[n, d]; int64[d], all `TOP` for no times."""
    bound: Times = np.min(times, axis=0, initial=TOP)
    return bound


def reached(times: Times, frontier: Times) -> Flags:
    """Whether each of times[n, d] is at or after some element of frontier[k, d]; bool[n]. O(n k d)."""
    _check(times, frontier)
    found = np.zeros(len(times), np.bool_)
    for element in frontier:
        found |= less_equal(element, times)
    return found


def minimal(times: Times) -> Times:
    """The elements of times[n, d] that no other precedes, without duplicates, in lexicographic order. O(n k d) for k
    results."""
    left = times[np.lexsort(times.T[::-1])] if times.shape[1] else times[:1]
    kept = []
    while len(left):
        # The lexicographically first time precedes each of the others or is incomparable with it.
        kept.append(left[0])
        left = left[~less_equal(left[0], left)]
    return np.array(kept, np.int64).reshape(len(kept), times.shape[1])


def advance_by(times: Times, frontier: Times) -> Times:
    """The compacted form of each time for readers that see only times at or after a frontier: the meet of its joins.

        advance(t) = meet over f in frontier of join(t, f)

    times[n, d]; frontier[k, d] (any set of times: non-minimal ones change nothing); returns int64[n, d]. O(n k d).

    It is correct: for every g at or after the frontier, t <= g exactly if advance(t) <= g. It is maximal: any other
    correct replacement is at or before this one, so times that no such g distinguishes become equal. An empty frontier
    distinguishes nothing: every time becomes `TOP` in all coordinates. Proofs:
    "Differential dataflow roadmap", section "Proving things".
    """
    _check(times, frontier)
    advanced = np.full(times.shape, TOP, np.int64)
    for element in frontier:
        np.minimum(advanced, np.maximum(times, element), out=advanced)
    return advanced


def _check(left: Times, right: Times) -> None:
    if left.shape[-1] != right.shape[-1]:
        raise DepthMismatch(left=left.shape[-1], right=right.shape[-1])
