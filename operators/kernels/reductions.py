"""The steps of reductions in a run: what operators/physical/reduce_base.py and its like do in a step. See steps.py."""

import numpy as np
from numba import njit

from vernier.operators.kernels.aggregating import FIELDS as RULE_WORDS
from vernier.operators.kernels.exchanging import exchanged_keyed, route_of, travels
from vernier.operators.kernels.inputs import (
    emitted,
    has_keyed,
    is_fresh,
    keyed_rows,
    now_of,
    of,
    seal_output,
    seal_rows,
    traces_of,
)
from vernier.operators.kernels.programs import (
    BUCKET,
    COVERS,
    DEPTH,
    FLAG,
    IN_ORDER,
    INPUT,
    KEYS,
    MOST_KEYS,
    OF_ACCUMULATE_ROWS,
    OF_COVER_KEYS,
    OF_FOLLOW_ROWS,
    OF_REDUCE_KEYS,
    OF_SORT_ORDER,
    OF_SPLIT_VISITS,
    OF_VISITED_KEYS,
    OTHER,
    READS,
    SIZE,
    STATE,
    TOTAL,
    TRACE,
    VALS,
    B,
    C,
    D,
    E,
    F,
)
from vernier.operators.kernels.reading import read_part
from vernier.operators.kernels.runs import (
    ACCUMULATE_ROWS,
    COVER_KEYS,
    FOLLOW_ROWS,
    LOWER,
    NOW,
    REDUCE_KEYS,
    SELECT_KEYS,
    SORT_ORDER,
    SPLIT_VISITS,
    TOO_LARGE,
    VISITED_KEYS,
    WORKED,
    clear,
    emit,
    gather,
    note,
    pool_rows,
    pool_words,
    put_part,
    rows_of,
)
from vernier.storage.kernels.cells import cell, put, word
from vernier.storage.kernels.held import matrix, store, vector
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.running_traces import (
    V,
    entries_of,
    field,
    index_of,
    keep_arena,
    mark_of,
    reserve,
    select,
    settled,
)
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import FIELDS

_sort_order = OF_SORT_ORDER.intrinsic()
_visited_keys = OF_VISITED_KEYS.intrinsic()
_split_visits = OF_SPLIT_VISITS.intrinsic()
_cover_keys = OF_COVER_KEYS.intrinsic()
_reduce_keys = OF_REDUCE_KEYS.intrinsic()
_accumulate_rows = OF_ACCUMULATE_ROWS.intrinsic()
_follow_rows = OF_FOLLOW_ROWS.intrinsic()


@njit(cache=True)
def _schedule(run, op, visits):  # type: ignore[no-untyped-def]
    """Let keys wait for the rounds in which they are visited. Returns a status."""
    if visits.shape[0] == 0:
        return 0
    keys, offsets, rounds = _split_visits(load(run, SPLIT_VISITS), (visits, 1))
    for group in range(rounds.shape[0]):
        at, some = cell(rounds, group, 0), keys[word(offsets, group) : word(offsets, group + 1)]
        status = put_part(run, of(run, op, BUCKET), at, some, 0, 0)
        if status != 0:
            return status
        note(run, at)
    return 0


@njit(cache=True)
def give(run, op, rows):  # type: ignore[no-untyped-def]
    """Emit corrections, and add them to the trace if the output is kept. Constants B, SIZE: the columns that sort them.
    Returns a status."""
    if rows.shape[0] == 0:
        return 0
    in_order = of(run, op, FLAG) & IN_ORDER != 0
    if of(run, op, TRACE) < 0:
        emit(run, op, rows, 1, of(run, op, KEYS) + 1 if in_order else 0)
        return 0
    if not in_order and rows.shape[0] > 1:
        order = _sort_order(load(run, SORT_ORDER), (rows, pool_words(run, of(run, op, B), of(run, op, SIZE))))
        ordered = np.empty(rows.shape, np.int64)
        for i in range(rows.shape[0]):
            for c in range(rows.shape[1]):
                put(ordered, i, c, cell(rows, word(order, i), c))
        rows = ordered
    emit(run, op, rows, 1, of(run, op, KEYS) + 1)
    return seal_output(run, op, of(run, op, TRACE))


@njit(cache=True)
def visited(run, op, source):  # type: ignore[no-untyped-def]
    """The keys that a reduction visits in this step: those that its input has changed and those that wait."""
    fresh, k, none = is_fresh(run, source, op), of(run, op, KEYS), matrix(0, 0, 1 + of(run, op, KEYS))
    if of(run, op, DEPTH) > 0:
        gather(run, of(run, op, BUCKET), load(run, NOW), op, False)
    if not fresh and emitted(run, op) == 0:
        return none
    given = rows_of(run, source) if fresh else none
    waiting = rows_of(run, op) if emitted(run, op) > 0 else none
    keys = _visited_keys(load(run, VISITED_KEYS), (given, waiting, k))
    clear(run, op)
    return keys


@njit(cache=True)
def _cover(run, op, keys, in_spans, inputs, v):  # type: ignore[no-untyped-def]
    """Correct the output where one val decides. STATE: the cache of its covers, if it keeps any. Returns a status."""
    traces, cache, w = traces_of(run), of(run, op, STATE), of(run, op, VALS)
    arena, heads, slots, index = matrix(0, 0, w + 3), matrix(0, 0, 2), matrix(0, 0, 1), vector(0, 0)
    if cache >= 0:
        status = reserve(traces, cache, keys)
        if status != 0:
            return status
        heads, slots, index = index_of(traces, cache)
        arena = entries_of(traces, cache)
    source = of(run, op, INPUT)
    fresh = rows_of(run, source) if is_fresh(run, source, op) else matrix(0, 0, 1)
    rows, visits, arena, status, _ = _cover_keys(load(run, COVER_KEYS), (
        keys, of(run, op, KEYS), fresh, in_spans, inputs, v, in_spans, arena, w, now_of(run, op), load(run, LOWER) - 1,
        pool_words(run, of(run, op, C), RULE_WORDS), heads, slots, index, 0,
    ))  # fmt: skip
    if cache >= 0:
        keep_arena(traces, cache, arena)
    if status != 0:
        return OVERFLOW
    status = _schedule(run, op, visits)
    return status if status != 0 else give(run, op, rows)


@njit(cache=True)
def reduce(run, op):  # type: ignore[no-untyped-def]
    """Correct the output of the keys that changed and of those scheduled for this round."""
    traces, source, depth = traces_of(run), of(run, op, INPUT), of(run, op, DEPTH)
    k, w, fold, trace = of(run, op, KEYS), of(run, op, VALS), load(run, LOWER) - 1, of(run, op, TRACE)
    ti, total = of(run, source, TRACE), of(run, op, FLAG) & TOTAL != 0
    v, reads = field(traces, ti, V), of(run, op, READS) >= 0
    if reads:
        if not is_fresh(run, source, op):
            return 0
        store(run, WORKED, 1)
        keys, in_spans, inputs, _, status = read_part(run, op, source)
        q = keys.shape[0]
    else:
        keys = visited(run, op, source)
        q = keys.shape[0]
        if q == 0 or q > MOST_KEYS:
            return 0 if q == 0 else TOO_LARGE
        store(run, WORKED, 1)
        in_spans, status = select(traces, ti, load(run, SELECT_KEYS), keys, fold, mark_of(traces, ti))
        inputs = entries_of(traces, ti)
    if status != 0:
        return status
    rules = of(run, op, C)
    if of(run, op, FLAG) & COVERS != 0:
        return _cover(run, op, keys, in_spans, inputs, v)
    out_spans, outputs = matrix(0, 0, 2), matrix(0, 0, w + depth + 2)
    if trace >= 0 and not total:
        out_spans, status = select(traces, trace, load(run, SELECT_KEYS), keys, fold, mark_of(traces, trace))
        if status != 0:
            return status
        outputs = entries_of(traces, trace)
    else:
        out_spans = np.zeros((q, 2), np.int64)
    rows, visits, status, _ = _reduce_keys(load(run, REDUCE_KEYS), (
        keys, k, in_spans, inputs, inputs, False, v, out_spans, outputs, w, now_of(run, op), fold,
        pool_rows(run, rules, of(run, op, D), RULE_WORDS), total,
    ))  # fmt: skip
    if status != 0:
        return OVERFLOW
    status = _schedule(run, op, visits)
    return status if status != 0 else give(run, op, rows)


@njit(cache=True)
def accumulate(run, op):  # type: ignore[no-untyped-def]
    """Add the input to the vectors of its keys."""
    source, sends = of(run, op, INPUT), travels(run, route_of(run, op))
    if emitted(run, source) == 0 and not sends:
        return 0
    store(run, WORKED, 1)
    rows = rows_of(run, source)
    if sends or not has_keyed(run, op, source):
        rows, status = exchanged_keyed(run, op, source) if sends else keyed_rows(run, op, source)
        if status != 0 or rows.shape[0] == 0:
            return status
    state = of(run, op, STATE)
    made, changes, status, _ = _accumulate_rows(load(run, ACCUMULATE_ROWS), (
        settled(traces_of(run), state), rows, of(run, op, KEYS), of(run, op, VALS), of(run, op, OTHER),
        pool_rows(run, of(run, op, C), of(run, op, D), RULE_WORDS),
        pool_words(run, of(run, op, E) + 2, of(run, op, F)), word(pool_words(run, of(run, op, E), 2), 0),
        word(pool_words(run, of(run, op, E), 2), 1),
    ))  # fmt: skip
    if status == 0:
        status = seal_rows(run, state, changes)
    return status if status != 0 else give(run, op, made)


@njit(cache=True)
def follow(run, op):  # type: ignore[no-untyped-def]
    """Copies of rows, and keys that have a row."""
    source, traces, state = of(run, op, INPUT), traces_of(run), of(run, op, STATE)
    if not is_fresh(run, source, op):
        return 0
    store(run, WORKED, 1)
    numbers = settled(traces, state) if state >= 0 else matrix(0, 0, FIELDS)
    given = of(run, source, TRACE)
    made, changes, status, _ = _follow_rows(load(run, FOLLOW_ROWS), (
        numbers, settled(traces, given), rows_of(run, source), of(run, op, KEYS), field(traces, given, V),
        of(run, op, VALS), pool_rows(run, of(run, op, C), of(run, op, D), RULE_WORDS),
    ))  # fmt: skip
    if status == 0 and state >= 0:
        status = seal_rows(run, state, changes)
    return status if status != 0 else give(run, op, made)
