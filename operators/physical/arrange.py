"""Arrangements: a collection in a trace, by key, on the worker that owns the key's hash.

Each step seals one batch. All operators that need the same collection by the same key read the same trace. A reader
keeps a mark, the number of batches it has seen, to distinguish new batches from old ones.
Source: "Differential dataflow roadmap", constraint 2 (shared index structures).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from vernier.operators.physical.combine import Combiner
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import ArrangeOp, ViewOp
from vernier.operators.planning.stages import Words
from vernier.operators.runtime.exchange import Round, least
from vernier.operators.runtime.key_sample import KeySample
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.operators.runtime.string_exchange import swap_parcels
from vernier.storage.kernels.placing import split_rows
from vernier.storage.trace import spine
from vernier.storage.trace.batch import Batch, advance_updates, key_batch, key_updates, keyed_columns
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints, together

_NO_NOTE = np.empty(0, np.int64)
_MANY = 1 << 9
"""From this number of updates on, times that the trace will not tell apart are advanced before updates are sorted."""


def exchange_updates(
    scope: ScopeRun,
    data: Ints | None,
    key: Ints,
    columns: int,
    texts: Words = (),
    agrees: bool = False,
    sample: KeySample | None = None,
    combiner: Combiner | None = None,
) -> Ints:
    """Send updates of `columns` columns to the workers that own the hash of their words `key`. Returns the updates that
    this worker owns. Every worker must call it, with data or without.

    texts: the words of a row at which a text begins; the contents travel with the rows
    (operators/runtime/string_exchange.py). If `agrees` is set, the messages also settle the scope's `agreed` round, the
    least round that any worker proposes: each message then ends with a row `[whether there is a round | the round]`. An
    update is always wide enough for that row. combiner: what may be added up before it is sent; sample: counts the keys
    that are sent.
    """
    exchange, mine, depth = scope.exchange, scope.proposed, scope.depth
    note = _NO_NOTE
    if agrees and not texts:
        note = np.zeros(columns, np.int64)
        if mine is not None:
            note[: 1 + depth] = (1, *mine)
    data = np.empty((0, columns), np.int64) if data is None else np.ascontiguousarray(data)
    if combiner is not None:
        data = combiner.combine(data)
    if sample is not None:
        sample.see(data, key)
    parts, offsets = split_rows(data, key, exchange.workers, note)
    sent = [parts[a:b] for a, b in pairwise(offsets.tolist())]
    if texts:
        said = (mine, depth) if agrees else (None, 0)
        received, agreed = swap_parcels(exchange, sent, texts, scope.heap, *said)
        if agrees:
            scope.agreed = agreed
    else:
        received = exchange.all_to_all(sent)
        if agrees:
            notes = [rows[-1, : 1 + depth].tolist() for rows in received]
            scope.agreed = least([tuple(at) if has else None for has, *at in notes])
            received = [rows[:-1] for rows in received]
    full = [rows for rows in received if len(rows)]
    return data[:0] if not full else together(full)


class Arrange(Operator):
    """Keeps its input by key words `op.key`, with val words `op.val`. O(n log n) a step for n new updates."""

    def __init__(self, op: ArrangeOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = self.read(op, scope)
        self.key = np.array(op.key, np.int64)
        self.val = np.array(op.val, np.int64)
        self.key_width, self.val_width = len(op.key), len(op.val)
        self.columns = keyed_columns(self.key_width, self.val_width, self.depth)
        words = (*op.key, *op.val)
        self.texts = tuple(words[at] for at in op.texts)
        self.exchanges = op.exchange and scope.exchange.workers > 1
        self.sample = scope.sample(op.trace, self.key_width) if self.exchanges else None
        self.trace: Trace = scope.traces[op.trace]
        self.fresh: Ints | Batch | None = None
        self.rows_wanted = op.id in scope.plan.rows_read
        self.keyed_by = self.key_width
        self.in_order = words == tuple(range(self.input.op.width))
        self.agrees = False
        self.advances = (
            self.depth == 0
            and self.input.op.consolidates
            and sorted(words) == list(range(self.input.op.width))
            and all(isinstance(other, ViewOp) for other in scope.plan.readers[op.trace])
        )
        """Whether the trace is read after slices alone, and rows need not be consolidated to be emitted."""
        self.combiner: Combiner | None = None
        self.sent: list[int] | None = None
        if self.exchanges and op.sums_first:
            # Only the key travels, and its copies are added up first.
            self.combiner = Combiner(self.key_width)
            if not self.in_order:
                width = self.input.op.width
                self.sent = [*op.key, *range(width, width + self.depth + 2)]
                self.key, self.texts = np.arange(self.key_width), op.texts

    @property
    def can_agree(self) -> bool:
        """An exchange of rows can also carry each worker's next round."""
        return self.exchanges

    def read(self, op: ArrangeOp, scope: ScopeRun) -> Operator:
        """The operator whose output it arranges."""
        return scope.operator(op.input)

    def step(self, now: Round) -> None:
        """Seal this step's batch. If `agrees` is set, the exchange also settles the scope's `agreed` round."""
        self.fresh = self.keyed = self.out = None
        if self.input.out is None and not self.exchanges:
            return
        data = self._data()
        if self.advances and len(data) >= _MANY and self._advanced(data):
            return
        rows = self._rows(data)
        slice_ = self.scope.slice
        if isinstance(rows, Batch):
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

    def _advanced(self, data: Ints) -> bool:
        """Seal updates with the times that the trace will tell apart after the slice, and emit them with their own.
        Returns False, and does nothing, if the trace will tell all of their times apart. O(n) if few rows are
        distinct."""
        slice_ = self.scope.slice
        since = self.trace.reaches(self.scope.plan.arrangements[self.trace.name].since(slice_.upper))
        if since <= slice_.lower:
            return False
        rows = key_updates(advance_updates(data, since), self.key, self.val, 0)
        self.trace.seal(rows, slice_.lower, slice_.upper)
        self.fresh = rows if len(rows) else None
        self.out = data if self.in_order else data[:, [*self.key, *self.val, -2, -1]]
        return True

    def active(self) -> bool:
        """Whether the newest step added anything. `out` does not tell: a trie has no rows to emit."""
        return self.fresh is not None

    def release(self) -> None:
        """Release the step's rows, too; the trace has them."""
        super().release()
        self.fresh = None

    def _data(self) -> Ints:
        """The input's output in this step that this worker owns."""
        if self.exchanges:
            return self._exchanged()
        given = self.input.out
        return np.empty((0, self.input.op.width + self.depth + 2), np.int64) if given is None else given

    def _rows(self, data: Ints) -> Ints | Batch:
        """These updates as keyed rows, sorted and consolidated. Large loads whose rows no operator reads become a trie
        instead."""
        if not self.exchanges and self.in_order and self.input.keyed_by == self.key_width:
            keyed = self.input.keyed
            if self.input.out is not None and keyed is not None:
                return keyed
        if self.trace.loads and len(data) >= spine.LARGE and not self.rows_wanted and self.key_width > 0:
            slice_ = self.scope.slice
            return key_batch(data, self.key, self.val, self.depth, slice_.lower, slice_.upper, self.trace.since)
        return key_updates(data, self.key, self.val, self.depth)

    def _exchanged(self) -> Ints:
        """The updates of all workers' inputs in this step that this worker owns, in any order."""
        out, columns = self.input.out, self.input.op.width + self.depth + 2
        if self.sent is not None:
            out, columns = None if out is None else out[:, self.sent], len(self.sent)
        return exchange_updates(self.scope, out, self.key, columns, self.texts, self.agrees, self.sample, self.combiner)


class View(Operator):
    """The changes of a view. Its arrangement seals key words, then val words; the view has them in the order of its
    schema."""

    def __init__(self, op: ViewOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = scope.operator(op.input)
        self.name = op.view
        words, width = scope.plan.views[op.view].words, op.width
        self.columns = None if words == tuple(range(width)) else np.array([*words, width, width + 1])
        self.changes: list[Ints] = []
        self.emitted = 0

    def begin_epoch(self) -> None:
        """Discard the changes of the previous epoch."""
        self.changes.clear()
        self.emitted = 0

    def step(self, now: Round) -> None:
        """Collect this slice's changes for the epoch's result."""
        self.out = self.input.out
        if self.out is not None:
            self.add(self.out if self.columns is None else self.out[:, self.columns])

    def add(self, rows: Ints) -> None:
        """Collect changes, whose words are in the order of the view's schema."""
        self.changes.append(rows)
        self.emitted += len(rows)

    def taken(self) -> Ints:
        """The epoch's changes, consolidated within each slice."""
        if not self.changes:
            return np.empty((0, self.op.width + 2), np.int64)
        return together(self.changes, contiguous=True)


KINDS: dict[type[Op], Callable[..., Operator]] = {ArrangeOp: Arrange, ViewOp: View}
