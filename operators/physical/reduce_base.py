"""Base of all reductions: which keys a step visits, what it reads, and how it emits and keeps the corrections.

A key is visited when its input changes and at the rounds that earlier visits have scheduled;
operators/physical/reduce.py has the rules. In the general form, the reduction keeps its output in a trace, arranged by
key, and looks it up. In the total form, outside loops, the earlier output follows from the key's earlier input, and in
a loop that is not nested a reduction that one val decides keeps covers of its keys while a slice runs. A trace of the
output exists then only if other operators read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import numpy as np

from vernier.operators.failures import AggregateOverflow
from vernier.operators.kernels.ends import read_ends
from vernier.operators.kernels.ranks import read_ranks
from vernier.operators.kernels.rounds import split_visits, visited_keys
from vernier.operators.kernels.stretches import FAR, read_stretches
from vernier.operators.kernels.surroundings import read_surroundings
from vernier.operators.planning.reduction_ops import Ends, Ranks, Reads, ReductionOp, Stretches, Surroundings
from vernier.operators.runtime.chunking import KEYS, parts, pieces
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Arranged, Buckets, Operator, shown_key
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.errors import DiffOverflow
from vernier.storage.trace.batch import Batch, keyed_columns
from vernier.storage.trace.prefix_index import owes, sums_of
from vernier.storage.trace.spine import Selection, Trace
from vernier.storage.updates import Ints, order_rows, together

FEW = 8
"""Groups are read whole if the slice has at least one in this many of the arrangement's updates."""


class Reduction(Operator):
    """A reduction of an arrangement. Its output is placed by the same key and, if it is kept, arranged by that key."""

    def __init__(self, op: ReductionOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = cast(Arranged, scope.operator(op.input))
        self.key = op.key
        self.key_width = self.keyed_by = op.key.width
        self.val_width = op.width - op.key.width
        self.columns = keyed_columns(self.key_width, self.val_width, self.depth)
        self.no_keys = np.empty((0, 1 + self.key_width), np.int64)
        self.total = op.total
        self.trace: Trace | None = None if op.trace is None else scope.traces[op.trace]
        self.fresh: Ints | None = None
        self.visits = Buckets()
        self.in_order = False
        """Whether corrections are produced in the sort order of their rows."""
        self.reads_output = op.looks_up
        """Whether corrections need the selection of the earlier output."""
        self.reads = op.reads
        self.ahead: Ints | None = None
        """While stretches are read: int64[stretches, 4], what comes before each."""

    def correct(self, keys: Ints, inputs: Selection, outputs: Selection, now: Ints, fold: int) -> tuple[Ints, Ints]:
        """What the output of keys `[hash | key]` lacks at round `now`: corrections `[hash | key | val | time | rounds |
        diff]`, each once, and later visits `[rounds | hash | key]`."""
        raise NotImplementedError

    def correct_parts(self, keys: Ints, inputs: Selection, now: Ints, fold: int) -> Ints:
        """The same of keys of which only a part was read, outside loops."""
        return self.correct(keys, inputs, Selection.nothing(len(keys), self.val_width + 2), now, fold)[0]

    def by_content(self, inputs: Selection, texts: Sequence[int]) -> tuple[Selection, Ints]:
        """The selection, and its entries in a form in which these words, which are texts, compare by content; the
        entries themselves if there are no texts."""
        if not texts:
            return inputs, inputs.entries
        # Only the selected entries are ordered by content, so copy them densely first.
        inputs = inputs.dense()
        return inputs, self.scope.heap.comparable(inputs.entries, texts)

    def pending(self) -> list[Round]:
        """The rounds with scheduled visits."""
        return list(self.visits.rows)

    def step(self, now: Round) -> None:
        """Visit the keys that changed and the keys scheduled for this round."""
        self.fresh = self.keyed = self.out = None
        if self.reads is not None and self._few_change():
            # What lies between the parts that are read is missing, so sums of rows that are no neighbours may not fit.
            with suppress(AggregateOverflow):
                if self._visit_parts(self.reads, np.array(now, np.int64)):
                    return
            self.ahead = None
        keys = self._keys(now)
        if keys is None:
            return
        at = np.array(now, np.int64)
        if len(keys) > KEYS:
            self.input.trace.reserve(keys)
            self.reserve(keys)
        made = [rows for first, stop in pieces(len(keys)) if len(rows := self._visit(keys[first:stop], at))]
        if made:
            self.give(together(made))

    def reserve(self, keys: Ints) -> None:
        """Reserve memory for what is kept of the output of these keys, which are visited in pieces."""
        if self.trace is not None and self.reads_output:
            self.trace.reserve(keys)

    def _visit(self, keys: Ints, now: Ints) -> Ints:
        """The corrections for a piece of the keys at round `now`; also schedules the later visits of these keys."""
        fold = self.scope.slice.fold
        inputs = self.select(keys, now, fold)
        if self.trace is None or not self.reads_output:
            outputs = Selection.nothing(len(keys), self.val_width + self.depth + 2)
        else:
            outputs = self.trace.select(keys, fold=fold)
        rows, visits = self.correct(keys, inputs, outputs, now, fold)
        if len(visits):
            self._schedule(visits)
        return rows

    def select(self, keys: Ints, now: Ints, fold: int) -> Selection:
        """What decides the output of the keys at round `now`."""
        return self.input.trace.select(keys, fold=fold)

    def _few_change(self) -> bool:
        """Whether looking up the changed rows costs less than reading the groups."""
        fresh = self.input.fresh
        return fresh is None or (not isinstance(fresh, Batch) and FEW * len(fresh) < self.input.trace.updates)

    def _visit_parts(self, reads: Reads, now: Ints) -> bool:
        """Visit the keys that changed, reading the part of each on which its output depends. Returns whether that was
        possible."""
        fresh, fold = self.input.fresh, self.scope.slice.fold
        if fresh is None:
            return True
        trace, made = self.input.trace, list[Ints]()
        sums = None
        if isinstance(reads, (Stretches, Ranks)):
            if isinstance(fresh, Batch) or owes(trace, fresh[:, 0]):
                return False
            sums = sums_of(trace, reads.summed)
        for rows in parts(fresh):
            given = trace.settled, np.ascontiguousarray(rows), self.key_width, self.input.val_width, fold
            if isinstance(reads, Ends):
                keys, spans, entries, status = read_ends(*given, reads.down, reads.whole, reads.most, reads.flag)
            elif isinstance(reads, Surroundings):
                keys, spans, entries, status = read_surroundings(*given, reads.whole, reads.reach)
            elif isinstance(reads, Ranks):
                keys, spans, entries, status = read_ranks(
                    given[0], sums, *given[1:], reads.flag, np.array(reads.shares, np.float64)
                )
            else:
                keys, spans, entries, self.ahead, status = read_stretches(
                    given[0], sums, *given[1:], reads.whole, reads.down, reads.column, reads.words, reads.flag
                )
            if status == FAR:
                return False
            if status != 0:
                raise DiffOverflow(operation=f"addition in {trace.name}")
            corrections = self.correct_parts(keys, Selection(spans, entries), now, fold)
            if len(corrections):
                made.append(corrections)
        self.ahead = None
        if made:
            self.give(together(made))
        return True

    def release(self) -> None:
        """Release the step's rows, too; the trace has them."""
        super().release()
        self.fresh = None

    def give(self, rows: Ints) -> None:
        """Emit corrections, each once, and add them to the trace if the output is kept."""
        if len(rows) == 0:
            return
        if self.trace is not None:
            if not self.in_order:
                rows = rows[order_rows(rows, self.columns)]
            slice_ = self.scope.slice
            self.trace.seal(rows, slice_.lower, slice_.upper)
        if self.trace is not None or self.in_order:
            self.fresh = self.keyed = rows
        self.out = rows[:, 1:]

    def key_of(self, keys: Ints, index: int) -> str:
        """A key of this step for display: "src=1, dst=2"."""
        return shown_key(self.key, keys[index : index + 1], self.scope.heap)

    def _keys(self, now: Round) -> Ints | None:
        """The keys to visit, `[hash | key]`, distinct and sorted; None if there are none."""
        visits = self.visits.take(now)
        fresh = self.input.fresh
        if fresh is None or any(now[self.input.depth :]):
            if not visits:
                return None
            fresh = self.no_keys
        elif isinstance(fresh, Batch):
            fresh = fresh.key_rows()
        scheduled = self.no_keys if not visits else together(visits)
        keys: Ints = visited_keys(fresh, scheduled, self.key_width)
        return keys

    def _schedule(self, visits: Ints) -> None:
        """Store visits `[rounds | hash | key]` for their rounds."""
        keys, offsets, rounds = split_visits(visits, self.depth)
        start = 0
        for stop, at in zip(offsets[1:].tolist(), map(tuple, rounds.tolist()), strict=True):
            self.visits.put(at, keys[start:stop])
            self.scope.note(at)
            start = stop
