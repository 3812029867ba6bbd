"""Runs a whole slice of a plan: the operators of the root scope, the rounds of its loops, and the closing of traces.

An operator step costs a fraction of a microsecond here instead of several, because nothing returns to Python between
steps. The kernels of the operators are called at their addresses (storage/kernels/separate.py), so this one is compiled
once and serves all plans. What it does not do, it does not begin or gives up: Python then runs the slice.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels import group_steps, reductions, steps
from vernier.operators.kernels.exchanging import chains, exchanged_into, route_of
from vernier.operators.kernels.inputs import emitted, of, traces_of
from vernier.operators.kernels.lanes import (
    ABORTED,
    NONE,
    PEER,
    REFUSED,
    agree,
    begin_streams,
    give_up,
    hear,
    meet,
    tell,
)
from vernier.operators.kernels.programs import (
    ACCUMULATE,
    ALONG,
    ARRANGE,
    BUCKET,
    CHOSEN,
    CONSOLIDATED,
    ENTER,
    EXTREMES,
    FLAG,
    FOLLOW,
    INPUT,
    JOIN,
    KIND,
    LEAVE,
    LINEAR,
    LOOP,
    MOST_ROWS,
    OTHER,
    REDUCE,
    SESSIONS,
    SIZE,
    SOURCE,
    TOP,
    TRACE,
    UNION,
    VARIABLE,
    VIEW,
    A,
    B,
    C,
    D,
    E,
    F,
)
from vernier.operators.kernels.runs import (
    AGREED,
    ANSWER_WORDS,
    ANSWERS,
    AT,
    BEGINS,
    BY_CALLER,
    CHAINS,
    CLOCK,
    CLOCK_KIND,
    CLOSE_BATCHES,
    ELSEWHERE,
    ENLARGED,
    FIRST,
    FREE,
    GATHERS,
    KEPT,
    KEPT_USED,
    LEADS,
    LOOP_ROUNDS,
    LOWER,
    MARK,
    MERGED,
    MERGED_LEFT,
    MOST_TAKEN,
    NANOSECONDS,
    NEXT,
    NOT_HERE,
    NOTED,
    NOW,
    OPS,
    OWNER,
    PARTS_USED,
    PROPOSED,
    REACH,
    ROOM,
    ROUNDS,
    ROWS,
    ROWS_OUT,
    SECONDS,
    SLICE_END,
    STAT_WORDS,
    STATS,
    STEPS_DONE,
    TABLE_COUNT,
    TAKEN,
    TENDS,
    TIME,
    TIMED,
    TOO_LARGE,
    TRACE_COUNT,
    UPPER,
    WIDTH,
    WORKED,
    WORKERS,
    clear,
    gather,
    note,
    outs_of,
    parts_of,
    pass_on,
    pool_words,
    rows_of,
    set_slot,
    slot,
)
from vernier.storage.kernels.cells import cell, put, word
from vernier.storage.kernels.closing import close, commit, drop_batch
from vernier.storage.kernels.held import drop, matrix, owned, store
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.pointers import copy_bytes, load
from vernier.storage.kernels.running_traces import (
    ARENA_OWNER,
    ATTENTION,
    BATCHES,
    CAPACITY,
    LINKS_OWNER,
    SLOTS_OWNER,
    begin,
    field,
    forget,
    mark_of,
)
from vernier.storage.kernels.separate import read_clock


@borrowing
def _clock(run):  # type: ignore[no-untyped-def]
    """Nanoseconds since some moment; 0 in runs that are not timed."""
    if load(run, TIMED) == 0:
        return 0
    read_clock(load(run, CLOCK), load(run, CLOCK_KIND), run + 8 * SECONDS)
    return load(run, SECONDS) * 1_000_000_000 + load(run, NANOSECONDS)


@borrowing
def _show(run, op):  # type: ignore[no-untyped-def]
    """The step of a view: its rows stay on their workers, or worker 0 gets all, with words in the order of the view's
    schema, which the slot's MARK says. Returns a status."""
    route = route_of(run, op) if load(run, GATHERS) != 0 else -1
    source, status = exchanged_into(run, route, of(run, op, INPUT), op)
    set_slot(outs_of(run), op, MARK, 1 if source == op else 0)
    if source != op and emitted(run, source) > 0:
        pass_on(run, source, op, 0)
    return status


@njit(cache=True)
def _step(run, op):  # type: ignore[no-untyped-def]
    """One step of an operator that is not a loop. Returns a status."""
    kind = of(run, op, KIND)
    if kind == SOURCE:
        return 0
    clear(run, op)
    if kind == LINEAR:
        return steps.linear(run, op)
    if kind == JOIN:
        return steps.join(run, op)
    if kind == REDUCE:
        return reductions.reduce(run, op)
    if kind == ARRANGE:
        return steps.arrange(run, op)
    if kind == UNION:
        return steps.union(run, op)
    if kind == ENTER:
        return steps.enter(run, op)
    if kind == VARIABLE:
        gather(run, of(run, op, BUCKET), load(run, NOW), op, False)
        return 0
    if kind == LEAVE:
        gather(run, of(run, op, BUCKET), 0, op, chains(run, op))
        return 0
    if kind == VIEW:
        return _show(run, op)
    if kind == ACCUMULATE:
        return reductions.accumulate(run, op)
    if kind == FOLLOW:
        return reductions.follow(run, op)
    if kind == CONSOLIDATED:
        return steps.consolidated(run, op)
    if kind == TOP or kind == CHOSEN:
        return group_steps.choose(run, op)
    if kind == ALONG:
        return group_steps.along(run, op)
    if kind == SESSIONS or kind == EXTREMES:
        return group_steps.chain(run, op)
    return NOT_HERE


@borrowing
def _counted(run, op, status, began):  # type: ignore[no-untyped-def]
    """Count a step that ended with this status. Returns (the status, which also says that the step is too large; the
    time, which is read only if the step did something)."""
    if status != 0:
        return status, began
    if emitted(run, op) > MOST_ROWS:
        return TOO_LARGE, began
    stats = load(run, STATS) + 8 * STAT_WORDS * op
    store(stats, STEPS_DONE, load(stats, STEPS_DONE) + 1)
    rows = emitted(run, op)
    if rows == 0 and load(run, WORKED) == 0:
        return 0, began
    store(run, WORKED, 0)
    now = _clock(run)
    store(stats, ROWS_OUT, load(stats, ROWS_OUT) + rows)
    store(stats, TIME, load(stats, TIME) + (now - began) * load(run, TIMED))
    return 0, now


@njit(cache=True)
def _run_inner(run, first, stop):  # type: ignore[no-untyped-def]
    """One round of a loop: its operators are number `first` to `stop`. Returns a status."""
    time = _clock(run)
    for op in range(first, stop):
        status, time = _counted(run, op, _step(run, op), time)
        if status != 0:
            return status
    return 0


@borrowing
def _next_noted(run, now):  # type: ignore[no-untyped-def]
    """The least noted round from `now` on; NONE if there is none."""
    noted = load(run, NOTED)
    while now < load(run, REACH):
        if load(noted, now) != 0:
            return now
        now += 1
    return NONE


@njit(cache=True)
def _agreed(run, loop, guess):  # type: ignore[no-untyped-def]
    """The least round, `guess` or later, for which a worker has work: (the round, or NONE; its next operator; status).
    A loop in which rows travel begins with the round `guess`, up to the first exchange, which also carries the rounds
    that workers propose: usually it is this one. If no worker proposes it, none had anything to send, and what was done
    of it had no effect."""
    first, leader = of(run, loop, INPUT), of(run, loop, SIZE)
    store(run, NOW, guess)
    store(run, PROPOSED, _next_noted(run, guess))
    if leader < 0:
        status = meet(run)
        return agree(run), first, status
    status = _run_inner(run, first, leader + 1)
    at = load(run, AGREED)
    return at, leader + 1 if at == guess else first, status


@njit(cache=True)
def _collect(run, loop):  # type: ignore[no-untyped-def]
    """After a round of a loop: its variables and its results take what the round has made. Returns a status."""
    variables = pool_words(run, of(run, loop, A), of(run, loop, B))
    for i in range(variables.shape[0]):
        status = steps.variable_collects(run, word(variables, i), of(run, loop, E), of(run, loop, F) != 0)
        if status != 0:
            return status
    leaves = pool_words(run, of(run, loop, A) + of(run, loop, B), of(run, loop, C))
    for i in range(leaves.shape[0]):
        status = steps.leave_collects(run, word(leaves, i))
        if status != 0:
            return status
    return 0


@njit(cache=True)
def _run_loop(run, loop):  # type: ignore[no-untyped-def]
    """Run every round of a loop that has work, in ascending order. Returns a status."""
    variables = pool_words(run, of(run, loop, A), of(run, loop, B))
    noted = load(run, NOTED)
    store(run, REACH, 0)
    store(run, NOW, 0)
    for i in range(variables.shape[0]):
        status = steps.variable_begins(run, word(variables, i))
        if status != 0:
            return status
    captures = pool_words(run, of(run, loop, A) + of(run, loop, B) + of(run, loop, C), of(run, loop, D))
    for i in range(captures.shape[0]):
        if emitted(run, word(captures, i)) > 0:
            note(run, 0)
    now, first, status = 0, of(run, loop, INPUT), 0
    while now < ROUNDS:
        if of(run, loop, FLAG) == 1 and load(run, WORKERS) > 1:
            now, first, status = _agreed(run, loop, now)
        else:
            now = _next_noted(run, now)
        if status != 0 or now == NONE:
            break
        store(run, NOW, now)
        status = _run_inner(run, first, of(run, loop, OTHER))
        if status == 0:
            status = _collect(run, loop)
        if status != 0:
            break
        store(noted, now, 0)
        stats = load(run, STATS) + 8 * STAT_WORDS * loop
        store(stats, LOOP_ROUNDS, load(stats, LOOP_ROUNDS) + 1)
        now += 1
    store(run, NOW, 0)
    return status


@njit(cache=True)
def _run_root(run, first, stop):  # type: ignore[no-untyped-def]
    """One step of the root scope, with all rounds of its loops. Returns a status."""
    time = _clock(run)
    for op in range(first, stop):
        if of(run, op, KIND) == LOOP:
            status = _run_loop(run, op)
            store(run, WORKED, 1)
        else:
            status, time = _counted(run, op, _step(run, op), time)
        if status != 0:
            return status
    return 0


@njit(cache=True)
def _end(run):  # type: ignore[no-untyped-def]
    """Free what the run has held, except outputs of views and batches. Returns whether some rows still waited."""
    traces, chains, noted = traces_of(run), load(run, CHAINS), load(run, NOTED)
    for t in range(load(run, TABLE_COUNT)):
        forget(traces, t)
    kept = load(run, KEPT)
    for i in range(load(run, KEPT_USED)):
        drop(load(kept, i))
    for op in range(load(run, OPS) + 1):
        if op == load(run, OPS) or of(run, op, KIND) != VIEW:
            clear(run, op)
    buckets = 0
    for op in range(load(run, OPS)):
        buckets = max(buckets, of(run, op, BUCKET) + 1)
    left, parts = False, parts_of(run)
    free, listed = load(run, FREE), 0
    while free != 0:
        listed += 1
        free = slot(parts, free - 1, NEXT)
    if listed < load(run, PARTS_USED):
        left = True
        for place in range(0, 2 * ROUNDS * buckets, 2):
            part = load(chains, place)
            while part != 0:
                drop(slot(parts, part - 1, OWNER))
                part = slot(parts, part - 1, NEXT)
            store(chains, place, 0)
    for now in range(load(run, REACH)):
        store(noted, now, 0)
    store(run, FREE, 0)
    store(run, PARTS_USED, 0)
    store(run, KEPT_USED, 0)
    return left


@njit(cache=True)
def _commit(run):  # type: ignore[no-untyped-def]
    """End the slice of all traces."""
    traces, room = traces_of(run), 2**62
    for t in range(load(run, TRACE_COUNT)):
        read, kept = commit(traces, t, load(run, CLOSE_BATCHES), load(run, LOWER), load(run, UPPER))
        store(run, MERGED, load(run, MERGED) + read)
        store(run, MERGED_LEFT, load(run, MERGED_LEFT) + kept)
        if field(traces, t, ATTENTION) != 0:
            store(run, TENDS, 1)
        room = min(room, field(traces, t, CAPACITY) - field(traces, t, BATCHES))
    store(run, ROOM, room)


@borrowing
def _enlarged(run):  # type: ignore[no-untyped-def]
    """Whether arrays of a trace were replaced by larger ones, which Python has to take."""
    traces, owners = traces_of(run), 0
    for t in range(load(run, TABLE_COUNT)):
        owners |= field(traces, t, ARENA_OWNER) | field(traces, t, SLOTS_OWNER) | field(traces, t, LINKS_OWNER)
    return owners != 0


@borrowing
def _copy_output(run, op, to):  # type: ignore[no-untyped-def]
    """Write the updates that a view has emitted to address `to`, with words in the order of its schema."""
    rows, first = rows_of(run, op), slot(outs_of(run), op, FIRST)
    if slot(outs_of(run), op, MARK) != 0:
        copy_bytes(to, rows.ctypes.data, 8 * rows.shape[0] * rows.shape[1])
        return
    columns = pool_words(run, of(run, op, A), of(run, op, SIZE))
    taken = matrix(to, rows.shape[0], columns.shape[0])
    for i in range(taken.shape[0]):
        for c in range(taken.shape[1]):
            put(taken, i, c, cell(rows, i, first + word(columns, c)))


@njit(cache=True)
def _answer(run):  # type: ignore[no-untyped-def]
    """Move small outputs of views to ANSWERS. Their slots have no address then: FIRST is the word at which they are."""
    at, outs = 0, outs_of(run)
    for op in range(load(run, OPS)):
        if of(run, op, KIND) == VIEW and emitted(run, op) > 0:
            count, size = emitted(run, op), emitted(run, op) * of(run, op, SIZE)
            if at + size <= ANSWER_WORDS:
                _copy_output(run, op, load(run, ANSWERS) + 8 * at)
                clear(run, op)
                set_slot(outs, op, ROWS, count)
                set_slot(outs, op, AT, 0)
                set_slot(outs, op, FIRST, at)
                at += size


@njit(cache=True)
def _clear_all(run):  # type: ignore[no-untyped-def]
    """Empty the slots of all operators, also those of sources, whose updates Python may free."""
    for op in range(load(run, OPS)):
        clear(run, op)


@njit(cache=True)
def _concluded(run, status):  # type: ignore[no-untyped-def]
    """Tell the other workers with which status this one has ended; the status that they give the slice."""
    if load(run, WORKERS) == 1 or status in (PEER, ABORTED):
        return status
    return meet(run) if status == 0 else give_up(run, status)


@njit(cache=True)
def _begun(run):  # type: ignore[no-untyped-def]
    """Tell the other workers which slice it is, or wait until worker 0 tells this one. Returns a status; REFUSED if the
    slice is too long for this worker."""
    at, words = run + 8 * LOWER, SLICE_END - LOWER
    if load(run, BEGINS) == LEADS:
        return tell(run, at, words)
    status = hear(run, 0, at, words)
    if status == 0 and load(run, TAKEN) == 0:
        return ELSEWHERE
    return REFUSED if status == 0 and load(run, TAKEN) > load(run, MOST_TAKEN) else status


@njit(cache=True, nogil=True)
def lead_elsewhere(words):  # type: ignore[no-untyped-def]
    """Tell the other workers that the next slice comes another way. Returns a status."""
    run = words.ctypes.data
    begin_streams(run)
    store(run, TAKEN, 0)
    return tell(run, run + 8 * LOWER, SLICE_END - LOWER)


@njit(cache=True, nogil=True)
def run_slice(words, root, source, rows):  # type: ignore[no-untyped-def]
    """Run a slice: `words` is the run (kernels/runs.py), the first `root` operators those of the root scope; 0 if this
    worker cannot run it here. rows: what operator `source` emits; those of other sources are in their slots. Returns a
    status; if it is not 0, nothing remains of the run."""
    run = words.ctypes.data
    if load(run, WORKERS) > 1:
        begin_streams(run)
        if load(run, BEGINS) != BY_CALLER:
            status = _begun(run)
            if status == REFUSED:
                root = 0
            elif status != 0:
                _clear_all(run)
                return status
    if root == 0:
        _clear_all(run)
        return _concluded(run, REFUSED)
    traces, outs = traces_of(run), outs_of(run)
    set_slot(outs, source, AT, rows.ctypes.data)
    set_slot(outs, source, ROWS, rows.shape[0])
    set_slot(outs, source, WIDTH, rows.shape[1])
    begin(traces, load(run, TABLE_COUNT))
    for op in range(load(run, OPS)):
        if of(run, op, KIND) == JOIN:
            set_slot(outs, op, MARK, mark_of(traces, of(run, of(run, op, OTHER), TRACE)))
    status = _run_root(run, 0, root)
    if status == 0:
        for t in range(load(run, TRACE_COUNT)):
            status = close(traces, t, load(run, CLOSE_BATCHES), load(run, UPPER))
            if status != 0:
                break
    left = _end(run)
    if left and status == 0:
        status = NOT_HERE
    status = _concluded(run, status)
    store(run, ENLARGED, 1 if _enlarged(run) else 0)
    if status == 0:
        _commit(run)
        _answer(run)
    else:
        for t in range(load(run, TRACE_COUNT)):
            drop_batch(traces, t)
        _clear_all(run)
    return status


@njit(cache=True)
def take_output(words, op):  # type: ignore[no-untyped-def]
    """The updates that a view has emitted, with words in the order of its schema. Those that have travelled are not
    copied."""
    run = words.ctypes.data
    outs = outs_of(run)
    if slot(outs, op, MARK) != 0:
        taken = owned(slot(outs, op, OWNER), slot(outs, op, AT), emitted(run, op), of(run, op, SIZE))
    else:
        taken = np.empty((emitted(run, op), of(run, op, SIZE)), np.int64)
        _copy_output(run, op, taken.ctypes.data)
    clear(run, op)
    return taken
