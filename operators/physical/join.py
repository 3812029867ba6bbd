"""Join: pairs rows with equal keys, doing work only for changes.

A join is bilinear: its change is dA ⋈ B_before plus (A_before + dA) ⋈ dB. "Before" means sealed before this step, at
any round. Old values of every round meet the new rows, and each output goes to the least upper bound of both rounds,
which is this round or a later one. A mark per side counts the batches that had been seen; it is needed because a trace
that is shared (or joined with itself) already contains this step's batch.

Sources: "High resolution, high throughput" (a join is replayed in time order); differential dataflow's join.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from vernier.operators.failures import JoinOverflow
from vernier.operators.kernels.joining import FRESH, KEY, OTHER, pair_rows
from vernier.operators.kernels.rounds import split_rounds, touched_keys
from vernier.operators.physical.stages import compile_chain
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import JoinOp
from vernier.operators.runtime.budget import COUNTED, PIECE, Yield
from vernier.operators.runtime.chunking import KEYS, Gathered, parts, pieces
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Arranged, Buckets, Operator, shown_key
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.spine import Selection
from vernier.storage.updates import Ints, sort_columns, together

_HISTORIES = 4
"""The least number of rows in a piece, as a multiple of the changes of the keys that it pairs."""


class Join(Operator):
    """Pairs two arrangements. Output rows are the plan's choice of key, left and right words, sent through its
    stages."""

    def __init__(self, op: JoinOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.key = op.key
        self.left = cast(Arranged, scope.operator(op.left))
        self.right = cast(Arranged, scope.operator(op.right))
        sides = np.array([side for side, _ in op.columns], np.int64)
        self.index = np.array([index for _, index in op.columns], np.int64)
        self.origin_left = np.select([sides == 1, sides == 2], [FRESH, OTHER], KEY).astype(np.int64)
        self.origin_right = np.select([sides == 1, sides == 2], [OTHER, FRESH], KEY).astype(np.int64)
        self.chain = compile_chain(op.stages, len(op.columns), self.depth + 2, scope, op) if op.stages else None
        self.buckets = Buckets()
        self.given: Yield = Yield(scope.budget, sort_columns(0, op.width, self.depth), op)
        self.gathered = Gathered(again=op.id in scope.plan.copied)
        self.mark_right = 0

    def begin_slice(self) -> None:
        """Mark all batches of earlier slices as seen."""
        self.mark_right = self.right.trace.mark

    def release(self) -> None:
        """Free the output buffer, too."""
        super().release()
        self.gathered.release()

    def pending(self) -> list[Round]:
        """The rounds for which output waits."""
        return list(self.buckets.rows)

    def step(self, now: Round) -> None:
        """Emit the pairs that waited for this round and those that new rows make for it; store pairs of later
        rounds."""
        self.out = None
        self.gathered.begin()
        self.given.begin()
        given = self.buckets.take(now)
        left = _fresh(self.left, now)
        right = _fresh(self.right, now)
        if left is not None:
            self._pair(left, self.left, self.right, self.mark_right, self.origin_left, now, given)
        if right is not None:
            self._pair(right, self.right, self.left, self.left.trace.mark, self.origin_right, now, given)
        self.mark_right = self.right.trace.mark
        self.out = None if not given else together(given)

    def _pair(
        self,
        fresh: Ints | Batch,
        mine: Arranged,
        other: Arranged,
        before: int,
        origin: Ints,
        now: Round,
        given: list[Ints],
    ) -> None:
        """Join the `fresh` rows of one side with the first `before` batches of the other."""
        if before == 0:
            return
        fold, at = self.scope.slice.fold, np.array(now, np.int64)
        whole = len(fresh.hashes) if isinstance(fresh, Batch) else 0
        if isinstance(fresh, Batch) and other.trace.batches:
            other.trace.reserve(fresh.key_rows(), before=before)
        for part in parts(fresh):
            keys, runs = touched_keys(part, mine.key_width)
            if len(keys) > KEYS:
                other.trace.reserve(keys, before=before)
            for first, stop in pieces(len(keys)):
                asked, own = keys[first:stop], runs[first : stop + 1]
                histories = other.trace.select(asked, fold=fold, before=before)
                # A key that is cut in the middle reads its histories again for each part, so pieces are at least this
                # large.
                most = _HISTORIES * (len(part) + len(histories.entries))
                if most < PIECE:
                    most = PIECE
                at_key = done = 0
                while at_key < stop - first:
                    rows, status, at_key, done = pair_rows(
                        part, own, mine.key_width, mine.val_width, mine.depth, histories.spans, histories.entries,
                        other.val_width, other.depth, origin, self.index, at, at_key, done, most,
                    )  # fmt: skip
                    if status != 0:
                        raise JoinOverflow(operator=self.op.name)
                    if self.chain is not None:
                        rows = self.chain(rows)
                    if len(rows):
                        self._sort_out(rows, other.depth, now, given)
                        if len(rows) >= COUNTED:
                            self.given.add(rows, given, self._sizes, mine is self.left, asked, own, histories)
                if given and max(whole, len(keys)) > stop - first:
                    self.gathered.gather(given, max(whole, len(keys)) / (stop - first))

    def _sizes(self, left: bool, keys: Ints, runs: Ints, histories: Selection) -> str:
        """For messages: the key of a piece that makes the most pairs, and how many changes both sides have for it."""
        fresh, old = np.diff(runs), np.diff(histories.spans[:, :2], axis=1)[:, 0]
        worst = int(np.argmax(fresh.astype(np.float64) * old))
        one, two = (fresh, old) if left else (old, fresh)
        named = shown_key(self.key, keys[worst : worst + 1], self.scope.heap)
        return f"the key {named} pairs {one[worst]:,} changes on the left with {two[worst]:,} on the right"

    def _sort_out(self, rows: Ints, other_depth: int, now: Round, given: list[Ints]) -> None:
        """Emit the pairs of this round; store those of later rounds."""
        if self.depth == 0 or other_depth == 0:
            # A side without rounds adds none, so all pairs belong to the round of the new rows.
            given.append(rows)
            return
        grouped, offsets, rounds = split_rounds(np.ascontiguousarray(rows), self.op.width + 1, self.depth)
        start = 0
        for stop, at in zip(offsets[1:].tolist(), map(tuple, rounds.tolist()), strict=True):
            if at == now:
                given.append(grouped[start:stop])
            else:
                self.buckets.put(at, grouped[start:stop])
                self.scope.note(at)
            start = stop


def _fresh(side: Arranged, now: Round) -> Ints | Batch | None:
    """The rows that a side added in this step. Inside a loop, an arrangement of an outer scope has new rows only at
    round 0."""
    return side.fresh if not any(now[side.depth :]) else None


KINDS: dict[type[Op], Callable[..., Operator]] = {JoinOp: Join}
