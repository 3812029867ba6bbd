"""The steps of operators in a run: what operators/physical does in a step, for one worker and a small slice.

Each function reads the slots of an operator's inputs and fills its own, which is empty. It returns a status: 0, or why
Python must run the slice.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.exchanging import chains, exchanged_into, exchanged_keyed, route_of, travels
from vernier.operators.kernels.inputs import (
    emitted,
    has_keyed,
    is_fresh,
    keyed_rows,
    now_of,
    of,
    round_of,
    seal_output,
    traces_of,
)
from vernier.operators.kernels.programs import (
    BUCKET,
    CALL,
    DEPTH,
    FLAG,
    INPUT,
    KEYS,
    MOST_KEYS,
    MOST_ROWS,
    OF_CONSOLIDATE,
    OF_PAIR_ROWS,
    OF_RUN_PASS,
    OF_SPLIT_ROUNDS,
    OF_TOUCHED_KEYS,
    OTHER,
    SIZE,
    TAKE,
    TRACE,
    WIDE,
    A,
    B,
    C,
    D,
)
from vernier.operators.kernels.runs import (
    CONSOLIDATE,
    KEYED,
    LOWER,
    MADE_AT,
    MADE_ROWS,
    MADE_WIDTH,
    MARK,
    NOT_HERE,
    NOW,
    OPS,
    PAIR_ROWS,
    ROUNDS,
    RUN_PASS,
    SELECT_KEYS,
    SPLIT_ROUNDS,
    STAGE,
    STAGE_DONE,
    STAGE_SAID,
    TOO_LARGE,
    TOUCHED_KEYS,
    WORKED,
    clear,
    copy_output,
    copy_updates,
    dense,
    emit,
    gather,
    note,
    outs_of,
    pass_on,
    pool_rows,
    pool_words,
    put_part,
    relocated,
    rows_of,
    set_slot,
    slot,
    waits,
)
from vernier.storage.kernels.cells import cell, put, word
from vernier.storage.kernels.held import store
from vernier.storage.kernels.pointers import copy_bytes, load
from vernier.storage.kernels.running_traces import K, V, entries_of, field, mark_of, select
from vernier.storage.kernels.separate import invoke
from vernier.storage.kernels.status import OVERFLOW

_consolidate = OF_CONSOLIDATE.intrinsic()
_run_pass = OF_RUN_PASS.intrinsic()
_touched_keys = OF_TOUCHED_KEYS.intrinsic()
_split_rounds = OF_SPLIT_ROUNDS.intrinsic()
_pair_rows = OF_PAIR_ROWS.intrinsic()


@njit(cache=True)
def _called(run, number, rows):  # type: ignore[no-untyped-def]
    """Run rows through a stage of Python's: (rows, status). The memory that it leaves them in is Python's."""
    store(load(run, STAGE_SAID), 0, 0)
    invoke(load(run, STAGE), (number, rows.ctypes.data, rows.shape[0], rows.shape[1]))
    if load(load(run, STAGE_SAID), 0) != STAGE_DONE:
        return rows, NOT_HERE
    made = np.empty((load(run, MADE_ROWS), load(run, MADE_WIDTH)), np.int64)
    copy_bytes(made.ctypes.data, load(run, MADE_AT), 8 * made.size)
    return made, 0


@njit(cache=True)
def _through(run, rows, at, count):  # type: ignore[no-untyped-def]
    """Run rows through `count` stages, which begin at the constant `at`: (rows, status)."""
    for _ in range(count):
        if rows.shape[0] == 0:
            break
        head = pool_words(run, at, 6)
        tail = word(head, 1)
        if word(head, 0) == TAKE:
            words = pool_words(run, at + 3, word(head, 2))
            width, w = rows.shape[1] - tail, words.shape[0]
            taken = np.empty((rows.shape[0], w + tail), np.int64)
            for i in range(rows.shape[0]):
                for c in range(w):
                    put(taken, i, c, cell(rows, i, word(words, c)))
                for c in range(tail):
                    put(taken, i, w + c, cell(rows, i, width + c))
            rows = taken
            at += 3 + w
            continue
        if word(head, 0) == CALL:
            rows, status = _called(run, word(head, 2), rows)
            if status != 0:
                return rows, status
            at += 3
            continue
        codes, constants, w = word(head, 2), word(head, 3), word(head, 5)
        first = at + 6
        rows, status = _run_pass(load(run, RUN_PASS), (
            rows, tail, pool_rows(run, first, codes, 4), pool_words(run, first + 4 * codes, constants), word(head, 4),
            pool_words(run, first + 4 * codes + constants, w),
        ))  # fmt: skip
        if status != 0:
            return rows, NOT_HERE
        at = first + 4 * codes + constants + w
    return rows, 0


@njit(cache=True)
def linear(run, op):  # type: ignore[no-untyped-def]
    """A chain of row-wise stages."""
    source = of(run, op, INPUT)
    if emitted(run, source) == 0:
        return 0
    if of(run, op, SIZE) == 0:
        pass_on(run, source, op, 0)
        return 0
    rows, status = _through(run, dense(run, source), of(run, op, A), of(run, op, SIZE))
    emit(run, op, rows, 0, 0)
    return status


@njit(cache=True)
def union(run, op):  # type: ignore[no-untyped-def]
    """All rows of the inputs."""
    inputs = pool_words(run, of(run, op, A), of(run, op, SIZE))
    count, full, only = 0, 0, 0
    for i in range(inputs.shape[0]):
        if emitted(run, word(inputs, i)) > 0:
            count += emitted(run, word(inputs, i))
            full += 1
            only = word(inputs, i)
    if full == 1:
        pass_on(run, only, op, 0)
    if full < 2:
        return 0
    out = np.empty((count, of(run, op, WIDE) + of(run, op, DEPTH) + 2), np.int64)
    count = 0
    for i in range(inputs.shape[0]):
        source = word(inputs, i)
        if emitted(run, source) > 0:
            count = copy_output(run, source, out, count)
    emit(run, op, out, 0, 0)
    return 0


@njit(cache=True)
def enter(run, op):  # type: ignore[no-untyped-def]
    """The rows of the outer scope, in round 0."""
    source = of(run, op, INPUT)
    if emitted(run, source) > 0 and load(run, NOW) == 0:
        emit(run, op, relocated(run, source, of(run, op, WIDE), of(run, source, DEPTH), 0, 1), 0, 0)
    return 0


@njit(cache=True)
def arrange(run, op):  # type: ignore[no-untyped-def]
    """Seal the input by key."""
    source, sends = of(run, op, INPUT), travels(run, route_of(run, op))
    if emitted(run, source) == 0 and not sends:
        return 0
    store(run, WORKED, 1)
    if not sends and has_keyed(run, op, source):
        pass_on(run, source, op, of(run, op, KEYS) + 1)
    else:
        rows, status = exchanged_keyed(run, op, source) if sends else keyed_rows(run, op, source)
        if status != 0 or rows.shape[0] == 0:
            return status
        emit(run, op, rows, 1, of(run, op, KEYS) + 1)
    return seal_output(run, op, of(run, op, TRACE))


@njit(cache=True)
def _pair(run, op, mine, other, before, origin):  # type: ignore[no-untyped-def]
    """Join what one side has added with the first `before` batches and steps of the other. Returns a status."""
    if before == 0:
        return 0
    traces, tm, to = traces_of(run), of(run, mine, TRACE), of(run, other, TRACE)
    part, columns = rows_of(run, mine), of(run, op, C)
    asked, runs = _touched_keys(load(run, TOUCHED_KEYS), (part, field(traces, tm, K)))
    if asked.shape[0] > MOST_KEYS:
        return TOO_LARGE
    spans, status = select(traces, to, load(run, SELECT_KEYS), asked, load(run, LOWER) - 1, before)
    if status != 0:
        return status
    rows, status, done, _ = _pair_rows(load(run, PAIR_ROWS), (
        part, runs, field(traces, tm, K), field(traces, tm, V), of(run, mine, DEPTH), spans, entries_of(traces, to),
        field(traces, to, V), of(run, other, DEPTH), pool_words(run, origin, columns),
        pool_words(run, of(run, op, B), columns), now_of(run, op), 0, 0, MOST_ROWS,
    ))  # fmt: skip
    if status != 0 or done < asked.shape[0]:
        return OVERFLOW if status != 0 else TOO_LARGE
    rows, status = _through(run, rows, of(run, op, D), of(run, op, SIZE))
    if status != 0 or rows.shape[0] == 0:
        return status
    bucket, now = of(run, op, BUCKET), round_of(run, op)
    if of(run, op, DEPTH) == 0 or of(run, other, DEPTH) == 0:
        return put_part(run, bucket, now, rows, 0, 0)
    column, same = of(run, op, WIDE) + 1, True
    for i in range(rows.shape[0]):
        same = same and cell(rows, i, column) == now
    if same:
        return put_part(run, bucket, now, rows, 0, 0)
    grouped, offsets, rounds = _split_rounds(load(run, SPLIT_ROUNDS), (rows, column, 1))
    for group in range(rounds.shape[0]):
        at = cell(rounds, group, 0)
        status = put_part(run, bucket, at, grouped[word(offsets, group) : word(offsets, group + 1)], 0, 0)
        if status != 0:
            return status
        if at != now:
            note(run, at)
    return 0


@njit(cache=True)
def join(run, op):  # type: ignore[no-untyped-def]
    """The pairs that waited for this round and those that new rows make for it."""
    left, right, columns = of(run, op, INPUT), of(run, op, OTHER), of(run, op, C)
    outs, traces = outs_of(run), traces_of(run)
    if is_fresh(run, left, op):
        store(run, WORKED, 1)
        status = _pair(run, op, left, right, slot(outs, op, MARK), of(run, op, A))
        if status != 0:
            return status
    if is_fresh(run, right, op):
        store(run, WORKED, 1)
        before = mark_of(traces, of(run, left, TRACE))
        status = _pair(run, op, right, left, before, of(run, op, A) + columns)
        if status != 0:
            return status
    set_slot(outs, op, MARK, mark_of(traces, of(run, right, TRACE)))
    gather(run, of(run, op, BUCKET), round_of(run, op), op, chains(run, op))
    return 0


@njit(cache=True)
def consolidated(run, op):  # type: ignore[no-untyped-def]
    """The net changes of the input. FLAG: there may be none."""
    spare = load(run, OPS)
    source, status = exchanged_into(run, route_of(run, op), of(run, op, INPUT), spare)
    if status != 0 or emitted(run, source) == 0:
        return status
    columns = pool_words(run, of(run, op, A), of(run, op, SIZE))
    rows, status = _consolidate(load(run, CONSOLIDATE), (dense(run, source), columns))
    clear(run, spare)
    if status != 0:
        return OVERFLOW
    emit(run, op, rows, 0, 0)
    return NOT_HERE if of(run, op, FLAG) == 1 and rows.shape[0] > 0 else 0


@njit(cache=True)
def variable_begins(run, op):  # type: ignore[no-untyped-def]
    """Take the changes of a variable's initial value, which is operator OTHER. Returns a status."""
    spare, bucket, depth = load(run, OPS), of(run, op, BUCKET), of(run, of(run, op, OTHER), DEPTH)
    source, status = exchanged_into(run, route_of(run, op), of(run, op, OTHER), spare)
    if status != 0 or emitted(run, source) == 0:
        return status
    for at, sign in ((0, 1), (1, -1)):
        rows = relocated(run, source, of(run, op, WIDE), depth, at, sign)
        status = put_part(run, bucket, at, rows, 0, 0)
        if status != 0:
            return status
    clear(run, spare)
    note(run, 0)
    return 0


@njit(cache=True)
def variable_collects(run, op, limit, truncates):  # type: ignore[no-untyped-def]
    """Move the output of the body, operator INPUT, into the next round. C: its route. Returns a status."""
    bucket, later, spare = of(run, op, BUCKET), load(run, NOW) + 1, load(run, OPS)
    source, status = exchanged_into(run, of(run, op, C), of(run, op, INPUT), spare)
    if status != 0:
        return status
    if later >= ROUNDS:
        return TOO_LARGE
    count, known = emitted(run, source), slot(outs_of(run), source, KEYED)
    if count > 0 and known > 0 and later < limit and not waits(run, bucket, later):
        # These rows are sorted and consolidated already; only the round differs.
        rows = rows_of(run, source)
        moved = np.empty((rows.shape[0], rows.shape[1]), np.int64)
        copy_updates(rows.ctypes.data, rows.shape[0], rows.shape[1], 0, moved, 0)
        for i in range(rows.shape[0]):
            put(moved, i, rows.shape[1] - 2, later)
        note(run, later)
        return put_part(run, bucket, later, moved, 1, known)
    if count > 0:
        status = put_part(run, bucket, later, relocated(run, source, of(run, op, WIDE), 1, later, 1), 0, 0)
        if status != 0:
            return status
    clear(run, spare)
    gather(run, bucket, later, spare, False)
    if emitted(run, spare) == 0:
        return 0
    columns = pool_words(run, of(run, op, A), of(run, op, SIZE))
    rows, status = _consolidate(load(run, CONSOLIDATE), (dense(run, spare), columns))
    clear(run, spare)
    if status != 0:
        return OVERFLOW
    if rows.shape[0] == 0 or (later >= limit and truncates):
        return 0
    if later >= limit:
        return NOT_HERE
    note(run, later)
    return put_part(run, bucket, later, rows, 0, 0)


@njit(cache=True)
def leave_collects(run, op):  # type: ignore[no-untyped-def]
    """Take the body's output of a round out of the loop. Returns a status."""
    source = of(run, op, INPUT)
    if emitted(run, source) == 0:
        return 0
    return put_part(run, of(run, op, BUCKET), 0, relocated(run, source, of(run, op, WIDE), 1, -1, 1), 0, 0)
