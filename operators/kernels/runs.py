"""A run of a slice in one kernel: where everything is, the outputs of operators, and updates that wait for a round.

Everything that a run needs is behind one vector of words, `run`: addresses of arrays that Python keeps, addresses of
the kernels that are called, and a few numbers that change. Matrices that operators emit are slots, rows of words that
own their memory: the output of each operator, and parts, which are chained by the bucket and the round they wait for.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, copy_rows, put
from vernier.storage.kernels.held import drop, hold, matrix, retain, store, vector
from vernier.storage.kernels.inlining import allocating, borrowing
from vernier.storage.kernels.pointers import copy_bytes, load

# Words of a run: arrays, numbers, then addresses of kernels. TIMED: how many times the time of a step counts; 0: it is
# not measured. TENDS: whether merges have to go on. MERGED, MERGED_LEFT: updates of small batches that united, and what
# was left of them, ever.
(CODE, OPS, POOL, TRACES, TRACE_COUNT, OUTS, PARTS, PARTS_SIZE, CHAINS, KEPT, KEPT_SIZE, NOTED, STATS) = range(13)
(BEGINS, MOST_TAKEN, NOW, FREE, PARTS_USED, KEPT_USED, REACH, WORKED, SECONDS, NANOSECONDS) = range(13, 23)
(CLOCK, CLOCK_KIND, SELECT_KEYS, CLOSE_BATCHES, KEY_UPDATES, CONSOLIDATE, SORT_ORDER, RUN_PASS) = range(23, 31)
(TOUCHED_KEYS, VISITED_KEYS, SPLIT_ROUNDS, SPLIT_VISITS, PAIR_ROWS, COVER_KEYS, REDUCE_KEYS) = range(31, 38)
(ACCUMULATE_ROWS, FOLLOW_ROWS, READ_ENDS, READ_SURROUNDINGS, READ_STRETCHES, READ_RANKS) = range(38, 44)
(TOP_KEYS, CHOOSE_KEYS, FOLLOW_ORDER, FOLLOW_SESSIONS, FOLLOW_EXTREMES, OWING_KEYS) = range(44, 50)
INDEXES = 50
"""Where the rows of prefix indexes are (storage/trace/prefix_index.py)."""
(TENDS, MERGED, MERGED_LEFT) = range(51, 54)
# Several workers (kernels/lanes.py): how many, which is this one, where the mark of the attempt and the streams are;
# addresses of the functions that wait, and of what CHECK says; counts; the round that this worker proposes, and the one
# that all agree on.
(WORKERS, INDEX, LANES, STREAMS, CHECK, SYSCALL, FUTEX, LOOKS, CROWDED) = range(55, 64)
CHECK_SAID = 54
(SENT_WORDS, WAITED, PROPOSED, AGREED, SLEEP) = range(64, 69)
# What Python looks at after a run instead of at all traces and views (SLEEP has two words): for how many more batches
# and steps every trace has room; whether arrays of traces were enlarged; where small outputs of views are.
(ROOM, ENLARGED, ANSWERS) = range(70, 73)
# Stages that are Python's: the address of the function to call, and where it leaves the rows that it made.
(STAGE, MADE_AT, MADE_ROWS, MADE_WIDTH) = range(73, 77)
STAGE_SAID, STAGE_DONE = 84, 1
"""Where the address of what the function says is; and what it says if it has left rows."""
GATHERS = 77
"""Whether worker 0 gets the rows of all views."""
TABLE_COUNT = 78
"""How many rows TRACES has: those of traces, then those of caches."""
# The slice, as worker 0 may tell it to the others: its times, TIMED, and how many updates each worker has on average
# (0: the slice comes another way).
(LOWER, UPPER, TIMED, TAKEN, SLICE_END) = range(79, 84)
BY_CALLER, LEADS, FOLLOWS = range(3)
"""How a worker knows which slice it is (BEGINS): each worker's caller says it; this worker tells the others; or it
waits until worker 0 tells it, and is willing if each worker has at most MOST_TAKEN updates."""
RUN_WORDS = STAGE_SAID + 1

ANSWER_WORDS = 1 << 9
"""How many words small outputs of views have together."""

OWNER, AT, ROWS, WIDTH, FIRST, KEYED, CHAIN, NEXT, SLOT_WORDS = range(9)
"""Words of a slot: its owner, its matrix, how many columns to skip (1 for the hash of keyed rows), and, for keyed rows
that are sorted and consolidated, one more than the number of key words, else 0. If an operator's output is a chain of
parts instead of a matrix, its first part + 1, else 0. Then the next part of a chain + 1; for a join, how much of its
right side it has seen; for a view, whether its words are in the order of its schema."""
MARK = NEXT

ROUNDS = 1 << 10
"""A run has fewer rounds than this in each loop."""

STEPS_DONE, ROWS_OUT, TIME, LOOP_ROUNDS, STAT_WORDS = range(5)
"""What is counted for each operator: steps, rows that it emitted, nanoseconds; rounds of a loop."""

PARTS_FULL, TOO_LARGE, NOT_HERE, ELSEWHERE = 110, 111, 112, 116
"""Statuses: too many parts wait; a step is too large; what happens next is for Python to say; worker 0 has said that
the slice comes another way."""


@borrowing
def slot(slots, i, field):  # type: ignore[no-untyped-def]
    """A word of a slot."""
    return load(slots, i * SLOT_WORDS + field)


@borrowing
def set_slot(slots, i, field, value):  # type: ignore[no-untyped-def]
    """Write a word of a slot."""
    store(slots, i * SLOT_WORDS + field, value)


@borrowing
def outs_of(run):  # type: ignore[no-untyped-def]
    """Where the slots of all operators are, and a spare one."""
    return load(run, OUTS)


@borrowing
def parts_of(run):  # type: ignore[no-untyped-def]
    """Where the slots of parts are."""
    return load(run, PARTS)


@allocating
def pool_words(run, first, count):  # type: ignore[no-untyped-def]
    """Constants of the plan."""
    return vector(load(run, POOL) + 8 * first, count)


@allocating
def pool_rows(run, first, rows, columns):  # type: ignore[no-untyped-def]
    """Constants of the plan, as a matrix."""
    return matrix(load(run, POOL) + 8 * first, rows, columns)


@allocating
def rows_of(run, op):  # type: ignore[no-untyped-def]
    """The matrix in an operator's slot, columns to skip included; not owned."""
    return piece(outs_of(run), op)


@njit(cache=True)
def _fill(slots, i, rows, first, keyed):  # type: ignore[no-untyped-def]
    set_slot(slots, i, OWNER, hold(rows))
    set_slot(slots, i, AT, rows.ctypes.data)
    set_slot(slots, i, ROWS, rows.shape[0])
    set_slot(slots, i, WIDTH, rows.shape[1])
    set_slot(slots, i, FIRST, first)
    set_slot(slots, i, KEYED, keyed)
    set_slot(slots, i, CHAIN, 0)


@borrowing
def _copy_slot(slots, i, others, j):  # type: ignore[no-untyped-def]
    for c in range(NEXT):
        set_slot(others, j, c, slot(slots, i, c))


@borrowing
def _free(run, part):  # type: ignore[no-untyped-def]
    """A part whose rows have been taken can be used again. Returns the next one of its chain."""
    parts = parts_of(run)
    following = slot(parts, part - 1, NEXT)
    set_slot(parts, part - 1, NEXT, load(run, FREE))
    store(run, FREE, part)
    return following


@njit(cache=True)
def clear(run, op):  # type: ignore[no-untyped-def]
    """Empty an operator's slot."""
    outs = outs_of(run)
    part = slot(outs, op, CHAIN)
    while part != 0:
        drop(slot(parts_of(run), part - 1, OWNER))
        part = _free(run, part)
    set_slot(outs, op, CHAIN, 0)
    if slot(outs, op, OWNER) != 0:
        drop(slot(outs, op, OWNER))
        set_slot(outs, op, OWNER, 0)
    set_slot(outs, op, ROWS, 0)
    set_slot(outs, op, KEYED, 0)


@njit(cache=True)
def emit(run, op, rows, first, keyed):  # type: ignore[no-untyped-def]
    """Make rows the output of an operator whose slot is empty."""
    if rows.shape[0] > 0:
        _fill(outs_of(run), op, rows, first, keyed)


@njit(cache=True)
def pass_on(run, source, op, keyed):  # type: ignore[no-untyped-def]
    """Make the output of an operator that of another one, whose slot is empty."""
    outs = outs_of(run)
    _copy_slot(outs, source, outs, op)
    set_slot(outs, op, KEYED, keyed)
    # A chain has one reader.
    set_slot(outs, source, CHAIN, 0)
    if slot(outs, op, OWNER) != 0:
        retain(slot(outs, op, OWNER))


@njit(cache=True)
def copy_updates(at, size, width, first, rows, count):  # type: ignore[no-untyped-def]
    """Copy `size` rows of `width` words at an address, without their first columns, to rows[count:]."""
    if first == 0:
        copy_bytes(rows.ctypes.data + 8 * width * count, at, 8 * width * size)
    else:
        copy_rows(matrix(at, size, width), first, size, rows, count)


@borrowing
def first_piece(run, op):  # type: ignore[no-untyped-def]
    """Where the first matrix of an operator's output is: (slots, its number there)."""
    part = slot(outs_of(run), op, CHAIN)
    return (outs_of(run), op) if part == 0 else (parts_of(run), part - 1)


@borrowing
def next_piece(run, slots, i):  # type: ignore[no-untyped-def]
    """The number of the next matrix; -1 if there is none."""
    return slot(slots, i, NEXT) - 1 if slots == parts_of(run) else -1


@allocating
def piece(slots, i):  # type: ignore[no-untyped-def]
    """The matrix of a slot; not owned."""
    return matrix(slot(slots, i, AT), slot(slots, i, ROWS), slot(slots, i, WIDTH))


@njit(cache=True)
def copy_output(run, op, rows, count):  # type: ignore[no-untyped-def]
    """Copy the updates that an operator has emitted to rows[count:]. Returns where they end."""
    slots, i = first_piece(run, op)
    while i >= 0:
        size = slot(slots, i, ROWS)
        copy_updates(slot(slots, i, AT), size, slot(slots, i, WIDTH), slot(slots, i, FIRST), rows, count)
        count += size
        i = next_piece(run, slots, i)
    return count


@njit(cache=True)
def dense(run, op):  # type: ignore[no-untyped-def]
    """The updates that an operator has emitted, as a contiguous matrix. Not owned, or a copy."""
    rows, first = rows_of(run, op), slot(outs_of(run), op, FIRST)
    if first == 0:
        return rows
    copy = np.empty((rows.shape[0], rows.shape[1] - first), np.int64)
    copy_updates(rows.ctypes.data, rows.shape[0], rows.shape[1], first, copy, 0)
    return copy


@njit(cache=True)
def relocated(run, op, width, depth, round_, sign):  # type: ignore[no-untyped-def]
    """Like kernels.rounds.relocate: an operator's updates, without rounds if `round_` is negative."""
    rows, first = rows_of(run, op), slot(outs_of(run), op, FIRST)
    more = 1 if round_ >= 0 else 0
    moved = np.empty((rows.shape[0], width + more + 2), np.int64)
    for i in range(rows.shape[0]):
        for c in range(width + 1):
            put(moved, i, c, cell(rows, i, first + c))
        if more:
            put(moved, i, width + 1, round_)
        put(moved, i, width + 1 + more, cell(rows, i, first + width + 1 + depth) * sign)
    return moved


@borrowing
def note(run, round_):  # type: ignore[no-untyped-def]
    """Record that a round of the running loop has work."""
    store(load(run, NOTED), round_, 1)
    store(run, REACH, max(load(run, REACH), round_ + 1))


@borrowing
def waits(run, bucket, at):  # type: ignore[no-untyped-def]
    """Whether parts wait in a bucket for a round."""
    return load(load(run, CHAINS), 2 * (bucket * ROUNDS + at)) != 0


@njit(cache=True)
def put_part(run, bucket, at, rows, first, keyed):  # type: ignore[no-untyped-def]
    """Let rows wait for a round. Returns a status."""
    if at >= ROUNDS:
        return TOO_LARGE
    parts, made = parts_of(run), load(run, FREE)
    if made > 0:
        store(run, FREE, slot(parts, made - 1, NEXT))
    else:
        made = load(run, PARTS_USED) + 1
        if made > load(run, PARTS_SIZE):
            return PARTS_FULL
        store(run, PARTS_USED, made)
    _fill(parts, made - 1, rows, first, keyed)
    set_slot(parts, made - 1, NEXT, 0)
    chains, place = load(run, CHAINS), 2 * (bucket * ROUNDS + at)
    if load(chains, place) == 0:
        store(chains, place, made)
    else:
        set_slot(parts, load(chains, place + 1) - 1, NEXT, made)
    store(chains, place + 1, made)
    return 0


@njit(cache=True)
def gather(run, bucket, at, op, chains_them):  # type: ignore[no-untyped-def]
    """Move the parts that wait in a bucket for a round into an operator's slot, which is empty, as one matrix or, with
    `chains_them`, as the chain that they are."""
    chains, place = load(run, CHAINS), 2 * (bucket * ROUNDS + at)
    part, parts = load(chains, place), parts_of(run)
    if part == 0:
        return
    store(chains, place, 0)
    if slot(parts, part - 1, NEXT) == 0:
        _copy_slot(parts, part - 1, outs_of(run), op)
        _free(run, part)
        return
    count, one = 0, part
    while one != 0:
        count += slot(parts, one - 1, ROWS)
        one = slot(parts, one - 1, NEXT)
    set_slot(outs_of(run), op, ROWS, count)
    set_slot(outs_of(run), op, CHAIN, part)
    if chains_them:
        return
    rows = np.empty((count, slot(parts, part - 1, WIDTH) - slot(parts, part - 1, FIRST)), np.int64)
    copy_output(run, op, rows, 0)
    clear(run, op)
    emit(run, op, rows, 0, 0)
