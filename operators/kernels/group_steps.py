"""The steps of reductions that choose from groups, lay columns along them, or follow them, in a run. See steps.py.

What operators/physical does in reduce_top.py, reduce_chosen.py, reduce_in_order.py, reduce_sessions.py and
reduce_extremes.py, for rows whose words are their order.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.inputs import is_fresh, of, seal_rows, traces_of
from vernier.operators.kernels.programs import (
    INPUT,
    KEYS,
    KIND,
    MOST_KEYS,
    OF_CHOOSE_KEYS,
    OF_FOLLOW_EXTREMES,
    OF_FOLLOW_ORDER,
    OF_FOLLOW_SESSIONS,
    OF_TOP_KEYS,
    READS,
    SESSIONS,
    STATE,
    TOP,
    TRACE,
    VALS,
    C,
)
from vernier.operators.kernels.reading import read_part
from vernier.operators.kernels.reductions import give, visited
from vernier.operators.kernels.runs import (
    CHOOSE_KEYS,
    FOLLOW_EXTREMES,
    FOLLOW_ORDER,
    FOLLOW_SESSIONS,
    LOWER,
    NOT_HERE,
    SELECT_KEYS,
    TOO_LARGE,
    TOP_KEYS,
    WORKED,
    pool_rows,
    pool_words,
    rows_of,
)
from vernier.storage.kernels.cells import word
from vernier.storage.kernels.held import matrix, store
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.prefix_sums import SUMS
from vernier.storage.kernels.running_traces import V, entries_of, field, mark_of, select, settled

_top_keys, _choose_keys = OF_TOP_KEYS.intrinsic(), OF_CHOOSE_KEYS.intrinsic()
_follow_order = OF_FOLLOW_ORDER.intrinsic()
_follow_sessions, _follow_extremes = OF_FOLLOW_SESSIONS.intrinsic(), OF_FOLLOW_EXTREMES.intrinsic()


@njit(cache=True)
def _groups(run, op, source):  # type: ignore[no-untyped-def]
    """What a reduction reads of each group that its input has changed: a part, or all of it. As `read_part`."""
    if of(run, op, READS) >= 0:
        return read_part(run, op, source)
    traces, ti = traces_of(run), of(run, source, TRACE)
    keys = visited(run, op, source)
    if keys.shape[0] > MOST_KEYS:
        return keys, matrix(0, 0, 2), matrix(0, 0, 1), matrix(0, 0, SUMS), TOO_LARGE
    spans, status = select(traces, ti, load(run, SELECT_KEYS), keys, load(run, LOWER) - 1, mark_of(traces, ti))
    return keys, spans, entries_of(traces, ti), matrix(0, 0, SUMS), status


@njit(cache=True)
def choose(run, op):  # type: ignore[no-untyped-def]
    """The first copies of groups, or what ranks choose from them. C: for TOP most, words of the order, of the output,
    then `by`, `flips` and `words`; for CHOSEN the numbers of columns and items, then these."""
    source = of(run, op, INPUT)
    if not is_fresh(run, source, op):
        return 0
    store(run, WORKED, 1)
    keys, spans, entries, _, status = _groups(run, op, source)
    if status != 0:
        return NOT_HERE
    k, v, fold = of(run, op, KEYS), field(traces_of(run), of(run, source, TRACE), V), load(run, LOWER) - 1
    at, head = of(run, op, C), pool_words(run, of(run, op, C), 3)
    if of(run, op, KIND) == TOP:
        b, at = word(head, 1), at + 3
        rows, status, _ = _top_keys(load(run, TOP_KEYS), (
            keys, k, spans, entries, entries, v, pool_words(run, at, b), pool_words(run, at + b, b), word(head, 0),
            pool_words(run, at + 2 * b, word(head, 2)), fold,
        ))  # fmt: skip
    else:
        m, a = word(head, 0), word(head, 1)
        rows, status, _ = _choose_keys(load(run, CHOOSE_KEYS), (
            keys, k, spans, entries, entries, False, v, pool_rows(run, at + 2, m, 4),
            pool_rows(run, at + 2 + 4 * m, a, 6), of(run, op, VALS), fold,
        ))  # fmt: skip
    return NOT_HERE if status != 0 else give(run, op, rows)


@njit(cache=True)
def along(run, op):  # type: ignore[no-untyped-def]
    """A column along ordered rows. C: kind, first, last; the numbers of words of the order, of equal places, of
    columns, limits, words of a copy that is not there, and of the output; then these, as `follow_order` takes them."""
    source = of(run, op, INPUT)
    if not is_fresh(run, source, op):
        return 0
    store(run, WORKED, 1)
    keys, spans, entries, ahead, status = read_part(run, op, source)
    if status != 0:
        return NOT_HERE
    if ahead.shape[0] == 0:
        ahead = np.zeros((keys.shape[0], SUMS), np.int64)
    k, v, fold = of(run, op, KEYS), field(traces_of(run), of(run, source, TRACE), V), load(run, LOWER) - 1
    head, at = pool_words(run, of(run, op, C), 9), of(run, op, C) + 9
    by, equal, columns, limits, none = word(head, 3), word(head, 4), word(head, 5), word(head, 6), word(head, 7)
    at_columns = at + 2 * by + equal
    at_none = at_columns + 4 * (columns + limits)
    rows, status, _ = _follow_order(load(run, FOLLOW_ORDER), (
        keys, k, spans, entries, entries, v, pool_words(run, at, by), pool_words(run, at + by, by),
        pool_words(run, at + 2 * by, equal), fold, ahead, word(head, 0), word(head, 1), word(head, 2),
        pool_rows(run, at_columns, columns, 4), pool_rows(run, at_columns + 4 * columns, limits, 4),
        pool_words(run, at_none, none), pool_words(run, at_none + none, word(head, 8)),
    ))  # fmt: skip
    # Sums of rows that are no neighbours may not fit, because what is between the parts is missing.
    return NOT_HERE if status != 0 else give(run, op, rows)


@njit(cache=True)
def chain(run, op):  # type: ignore[no-untyped-def]
    """Rows with the starts of their sessions, or with running extremes, which a trace of starts or records tells. C:
    what `follow_sessions` or `follow_extremes` takes, words last, after their number."""
    source, traces, state = of(run, op, INPUT), traces_of(run), of(run, op, STATE)
    if not is_fresh(run, source, op):
        return 0
    store(run, WORKED, 1)
    ti, k, c = of(run, source, TRACE), of(run, op, KEYS), of(run, op, C)
    head, v, rows = pool_words(run, c, 6), field(traces, ti, V), rows_of(run, source)
    if of(run, op, KIND) == SESSIONS:
        made, changes, status, _ = _follow_sessions(load(run, FOLLOW_SESSIONS), (
            settled(traces, state), settled(traces, ti), rows, k, v, word(head, 0), word(head, 1), word(head, 2),
            pool_words(run, c + 4, word(head, 3)),
        ))  # fmt: skip
    else:
        made, changes, status = _follow_extremes(load(run, FOLLOW_EXTREMES), (
            settled(traces, state), settled(traces, ti), rows, k, v, word(head, 0), word(head, 1), word(head, 2),
            word(head, 3), word(head, 4), pool_words(run, c + 6, word(head, 5)),
        ))  # fmt: skip
    if status == 0:
        status = seal_rows(run, state, changes)
    return NOT_HERE if status != 0 else give(run, op, made)
