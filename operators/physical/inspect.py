"""Operators that do not change rows: consolidation, inspection by the program, and checks for an empty collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from vernier.operators.failures import NotEmpty, UserCodeFailed
from vernier.operators.language.expr.running_calls import Call, running
from vernier.operators.physical.arrange import exchange_updates
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import CheckOp, ConsolidateOp, InspectOp
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.updates import Ints, consolidate_rows, sort_columns

_SHOWN = 3


class Consolidate(Operator):
    """Brings equal rows to one worker and adds up their diffs at each time. O(n log n) a step."""

    def __init__(self, op: ConsolidateOp | CheckOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = scope.operator(op.input)
        self.columns = sort_columns(0, op.width, self.depth)
        self.exchanges = op.exchange and scope.exchange.workers > 1
        self.words = np.arange(op.width)

    def step(self, now: Round) -> None:
        """Emit this step's net changes."""
        data = self.input.out
        if self.exchanges:
            data = exchange_updates(self.scope, data, self.words, self.op.width + self.depth + 2, self.op.texts)
        rows = None if data is None else consolidate_rows(np.ascontiguousarray(data), self.columns)
        self.out = rows if rows is not None and len(rows) else None


class Check(Consolidate):
    """Stops the epoch when its input has a row. The input began empty, so the first net change is already an error."""

    def __init__(self, op: CheckOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.check = op

    def step(self, now: Round) -> None:
        """Raise NotEmpty if there are net changes."""
        super().step(now)
        if self.out is None:
            return
        first = self.out[np.argsort(self.out[:, self.op.width], kind="stable")[:_SHOWN]]
        rows = self.check.schema.decode_rows(np.ascontiguousarray(first[:, : self.op.width]), self.scope.heap)
        shown = zip(rows, first[:, self.op.width].tolist(), first[:, -1].tolist(), strict=True)
        sample = "; ".join(f"{row} at {time} ({diff:+d})" for row, time, diff in shown)
        raise NotEmpty(name=self.check.name, where=self.check.where, sample=sample)


class Inspect(Operator):
    """Passes each net change on its worker to a function of the program. Costs a Python call per change."""

    def __init__(self, op: InspectOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.inspect = op
        self.input = scope.operator(op.input)
        self.columns = sort_columns(0, op.width, self.depth)

    def step(self, now: Round) -> None:
        """Pass the input on, and show its net changes to the function."""
        self.out = self.input.out
        if self.out is not None:
            self._show(consolidate_rows(np.ascontiguousarray(self.out), self.columns))

    def _show(self, data: Ints) -> None:
        op, width = self.inspect, self.op.width
        rows = op.schema.decode_rows(np.ascontiguousarray(data[:, :width]), self.scope.heap)
        name = getattr(op.function, "__name__", repr(op.function))
        with running(Call(op.name, op.where, name)) as call:
            self._call(zip(rows, data[:, width:].tolist(), strict=True), name, call)

    def _call(self, changes: Iterable[tuple[Any, Any]], name: str, call: Call) -> None:
        op = self.inspect
        for row, (time, *rounds, diff) in changes:
            call.given = row
            try:
                op.function(row, (time, *rounds) if rounds else time, diff)
            except (Exception, SystemExit) as error:
                raise UserCodeFailed(
                    operator=op.name,
                    where=op.where,
                    function=name,
                    sample=f"{row} at {time} ({diff:+d})",
                    cause=f"{type(error).__name__}: {error}",
                ) from error


KINDS: dict[type[Op], Callable[..., Operator]] = {ConsolidateOp: Consolidate, CheckOp: Check, InspectOp: Inspect}
