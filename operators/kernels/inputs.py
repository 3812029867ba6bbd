"""What the steps of a run have in common: an operator's words, its inputs, and sealing what it emits."""

from numba import njit

from vernier.operators.kernels.programs import CODE_WORDS, DEPTH, FLAG, KEYS, OF_KEY_UPDATES, VALS, A
from vernier.operators.kernels.runs import (
    CODE,
    FIRST,
    KEPT,
    KEPT_SIZE,
    KEPT_USED,
    KEY_UPDATES,
    KEYED,
    NOW,
    OWNER,
    ROWS,
    TOO_LARGE,
    TRACES,
    outs_of,
    pool_words,
    rows_of,
    slot,
)
from vernier.storage.kernels.held import hold, retain, store, vector
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.running_traces import seal
from vernier.storage.kernels.status import OVERFLOW

key_updates = OF_KEY_UPDATES.intrinsic()


@borrowing
def of(run, op, of_what):  # type: ignore[no-untyped-def]
    """A word of an operator."""
    return load(load(run, CODE), op * CODE_WORDS + of_what)


@borrowing
def traces_of(run):  # type: ignore[no-untyped-def]
    """The traces."""
    return load(run, TRACES)


@borrowing
def emitted(run, op):  # type: ignore[no-untyped-def]
    """The number of rows that an operator has emitted."""
    return slot(outs_of(run), op, ROWS)


@njit(cache=True)
def now_of(run, op):  # type: ignore[no-untyped-def]
    """The round of an operator's scope."""
    return vector(run + 8 * NOW, of(run, op, DEPTH))


@borrowing
def round_of(run, op):  # type: ignore[no-untyped-def]
    """The same as a number; 0 outside loops."""
    return load(run, NOW) if of(run, op, DEPTH) > 0 else 0


@borrowing
def is_fresh(run, source, op):  # type: ignore[no-untyped-def]
    """Whether an arrangement added rows in this step. One of an outer scope does so only at round 0."""
    if emitted(run, source) == 0 or slot(outs_of(run), source, KEYED) == 0:
        return False
    return of(run, source, DEPTH) >= of(run, op, DEPTH) or load(run, NOW) == 0


@borrowing
def _keep(run, owner):  # type: ignore[no-untyped-def]
    """Keep a sealed step's memory until the slice is closed; takes over the reference."""
    used = load(run, KEPT_USED)
    store(load(run, KEPT), used, owner)
    store(run, KEPT_USED, used + 1)


@njit(cache=True)
def seal_rows(run, trace, rows):  # type: ignore[no-untyped-def]
    """Seal a step, whose rows the run keeps from now on. Returns a status."""
    if rows.shape[0] == 0:
        return 0
    if load(run, KEPT_USED) == load(run, KEPT_SIZE):
        return TOO_LARGE
    _keep(run, hold(rows))
    return seal(traces_of(run), trace, rows)


@njit(cache=True)
def seal_output(run, op, trace):  # type: ignore[no-untyped-def]
    """Seal what an operator has emitted. Returns a status."""
    if load(run, KEPT_USED) == load(run, KEPT_SIZE):
        return TOO_LARGE
    owner = slot(outs_of(run), op, OWNER)
    retain(owner)
    _keep(run, owner)
    return seal(traces_of(run), trace, rows_of(run, op))


@borrowing
def has_keyed(run, op, source):  # type: ignore[no-untyped-def]
    """Whether `source` has emitted its rows by key as the operator wants them."""
    return of(run, op, FLAG) == 1 and slot(outs_of(run), source, KEYED) == of(run, op, KEYS) + 1


@njit(cache=True)
def keyed_rows(run, op, source):  # type: ignore[no-untyped-def]
    """The rows of `source` by key, sorted and consolidated: (keyed rows, status). The operator's constants A are the
    columns of key and val, once in rows and once in keyed rows."""
    k, v, first = of(run, op, KEYS), of(run, op, VALS), slot(outs_of(run), source, FIRST)
    at = of(run, op, A) + first * (k + v)
    rows, status = key_updates(load(run, KEY_UPDATES), (
        rows_of(run, source), pool_words(run, at, k), pool_words(run, at + k, v), of(run, op, DEPTH) + 2
    ))  # fmt: skip
    return rows, OVERFLOW if status != 0 else 0
