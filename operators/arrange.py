"""Arrangements: a collection in a trace, by key, on the worker that owns the key's hash.

Each step seals one layer. Every operator that wants the same collection by the same key reads this trace; a reader
keeps a mark (how many layers it has seen) to tell what is new from what was there before.
Source: seed 000, constraint 2 (shared index structures).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from operators.exchange import Round, least
from operators.operator import Operator
from operators.parcels import swap_parcels
from operators.planning.plan import ArrangeOp, Op, ViewOp, Words, rows_wanted
from operators.scope import ScopeRun
from storage import trace
from storage.kernels.hashing import key_rows, partition_rows
from storage.layer import Layer, key_layer, key_updates, keyed_columns
from storage.trace import Trace
from storage.updates import Ints, consolidate_rows


def exchange_rows(scope: ScopeRun, keyed: Ints, texts: Words = ()) -> Ints:
    """Send keyed rows `[hash | …]` to the workers that own their hashes; returns what this worker owns.

    texts: at which columns a text begins; the contents travel with the rows (operators/parcels.py).
    """
    exchange = scope.exchange
    parts, offsets = partition_rows(keyed, exchange.workers)
    sent = [parts[offsets[i] : offsets[i + 1]] for i in range(exchange.workers)]
    received = swap_parcels(exchange, sent, texts, scope.heap, None, 0)[0] if texts else exchange.all_to_all(sent)
    full = [rows for rows in received if len(rows)]
    if not full:
        return keyed[:0]
    return full[0] if len(full) == 1 else np.concatenate(full)


def exchange_and_agree(scope: ScopeRun, keyed: Ints, texts: Words = ()) -> Ints:
    """Like `exchange_rows`; the messages also settle the scope's `agreed` round, the least that a worker proposes.

    Each part carries one more row, `[whether there is a round | the round]`; keyed rows are always wide enough for it.
    """
    exchange, mine, depth = scope.exchange, scope.proposed, scope.depth
    note = np.zeros((1, keyed.shape[1]), np.int64)
    if mine is not None:
        note[0, 0] = 1
        note[0, 1 : 1 + depth] = mine
    parts, offsets = partition_rows(keyed, exchange.workers)
    mine_parts = [parts[offsets[i] : offsets[i + 1]] for i in range(exchange.workers)]
    if texts:
        received, scope.agreed = swap_parcels(exchange, mine_parts, texts, scope.heap, mine, depth)
        full = [rows for rows in received if len(rows)]
    else:
        received = exchange.all_to_all([np.concatenate((part, note)) for part in mine_parts])
        scope.agreed = least([tuple(rows[-1, 1 : 1 + depth].tolist()) if rows[-1, 0] else None for rows in received])
        full = [rows[:-1] for rows in received if len(rows) > 1]
    return keyed[:0] if not full else full[0] if len(full) == 1 else np.concatenate(full)


def exchange_updates(
    scope: ScopeRun, data: Ints | None, part: Words, width: int, depth: int, texts: Words = ()
) -> Ints | None:
    """Place updates by the hash of their words `part`; None for nothing. Every worker calls it, with data or
    without. texts: at which words of a row a text begins."""
    if data is None:
        data = np.empty((0, width + depth + 2), np.int64)
    key = np.array(part, np.int64)
    everything = np.arange(width, dtype=np.int64)
    keyed = key_rows(np.ascontiguousarray(data), key, everything, depth + 2)
    received = exchange_rows(scope, keyed, tuple(1 + len(part) + at for at in texts))
    return np.ascontiguousarray(received[:, 1 + len(part) :]) if len(received) else None


class Arrange(Operator):
    """Keeps its input by key words `op.key`, carrying words `op.val`. O(n log n) a step for n fresh updates."""

    def __init__(self, op: ArrangeOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = scope.operator(op.input)
        self.key = np.array(op.key, np.int64)
        self.val = np.array(op.val, np.int64)
        self.key_width, self.val_width = len(op.key), len(op.val)
        self.columns = keyed_columns(self.key_width, self.val_width, self.depth)
        self.texts = tuple(1 + at for at in op.texts)
        self.exchanges = op.exchange and scope.exchange.workers > 1
        self.trace: Trace = scope.traces[op.trace]
        self.fresh: Ints | Layer | None = None
        self.goes_on = rows_wanted(scope.plan, op.id)
        self.keyed_by = self.key_width
        self.as_it_is = (*op.key, *op.val) == tuple(range(self.input.op.width))
        self.agrees = False

    def step(self, now: Round) -> None:
        """Seal this step's layer. When it `agrees`, its exchange also settles the scope's `agreed` round."""
        self.fresh = self.keyed = self.out = None
        if self.input.out is None and not self.exchanges:
            return
        rows = self._rows()
        slice_ = self.scope.slice
        if isinstance(rows, Layer):
            if rows.updates:
                self.trace.seal(rows, slice_.lower, slice_.upper)
                self.fresh = rows
                self.counters.updates_out += rows.updates
            return
        if len(rows) == 0:
            return
        self.trace.seal(rows, slice_.lower, slice_.upper)
        self.fresh = self.keyed = rows
        self.out = rows[:, 1:]

    def active(self) -> bool:
        """Whether the newest step has added anything; a trie has no rows to put out."""
        return self.fresh is not None

    def let_go(self) -> None:
        """Forget the step's rows, too; the trace has them."""
        super().let_go()
        self.fresh = None

    def _rows(self) -> Ints | Layer:
        """What the input gave in this step as keyed rows that this worker owns, sorted and consolidated, or, where they
        are many and nobody reads them as they are, as their trie."""
        data = self.input.out
        tail = self.depth + 2
        if data is None:
            data = np.empty((0, self.input.op.width + tail), np.int64)
        if self.exchanges:
            rows = key_rows(np.ascontiguousarray(data), self.key, self.val, tail)
            exchange = exchange_and_agree if self.agrees else exchange_rows
            rows = exchange(self.scope, rows, self.texts)
            if self._large(rows):
                key = np.arange(1, 1 + self.key_width)
                return self._layer(rows, key, np.arange(1 + self.key_width, rows.shape[1] - tail))
            return consolidate_rows(rows, self.columns)
        keyed = self.input.keyed
        if keyed is not None and self.as_it_is and self.input.keyed_by == self.key_width:
            return keyed
        if self._large(data):
            return self._layer(data, self.key, self.val)
        return key_updates(data, self.key, self.val, self.depth)

    def _large(self, data: Ints) -> bool:
        return self.trace.loads and len(data) >= trace.LARGE and not self.goes_on and self.key_width > 0

    def _layer(self, data: Ints, key: Ints, val: Ints) -> Layer:
        slice_ = self.scope.slice
        return key_layer(data, key, val, self.depth, slice_.lower, slice_.upper, self.trace.since)


class View(Operator):
    """The changes of a view, as its arrangement sealed them: rows are key words then val words."""

    def __init__(self, op: ViewOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = scope.operator(op.input)
        self.name = op.view
        self.changes: list[Ints] = []

    def step(self, now: Round) -> None:
        """Keep this slice's changes for the epoch's result."""
        self.out = self.input.out
        if self.out is not None:
            self.changes.append(self.out)


KINDS: dict[type[Op], Callable[..., Operator]] = {ArrangeOp: Arrange, ViewOp: View}
