"""Stages: the functions that a linear operator runs for the row-wise steps of its chain.

Every stage is `(row, time, diff) → (row', time ∨ time', diff · diff')`, so a chain of stages is one, too, and running
it in one go has the same result as running it step by step. Source: "Generalizing linear operators".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from vernier.operators.failures import TimeOverflow
from vernier.operators.language.expr.evaluate import predicate, project
from vernier.operators.language.plan.tables import TooManyRows, allow
from vernier.operators.physical.stage_compiler import Pass, passes, passes_of
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import JoinOp, LinearOp
from vernier.operators.planning.stages import Compute, Expand, Keep, Move, Negated, Stage, Take
from vernier.operators.runtime.budget import DOWNSTREAM, Yield
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.diff import multiply, negate
from vernier.storage.updates import CLOSED, Ints, sort_columns, together

Run = Callable[[Ints], Ints]


_ALONE = Op(0, 0, 0, "chain")
"""The operator to name in errors for stages that run outside a plan."""


def compile_chain(stages: Sequence[Stage], width: int, tail: int, scope: ScopeRun, op: Op = _ALONE) -> Run:
    """A function of updates `[row (width) | tail columns: time, rounds, diff]` that runs all stages of the operator
    `op`.

    A run of plain steps becomes one pass of a kernel over the rows (operators/physical/stage_compiler.py). Stages are
    compiled by the first call, because an epoch whose slices run in kernels needs none of them. O(rows in and out).
    """
    parts: list[Run] = []

    def begin() -> None:
        found = passes_of(scope.plan, op, width) if isinstance(op, (LinearOp, JoinOp)) else passes(stages, width)
        parts.extend(
            _pass(part, tail, scope) if isinstance(part, Pass) else compile_stage(part, tail, scope) for part in found
        )

    def run(data: Ints, first: int = 0) -> Ints:
        place = first
        if not parts:
            begin()
        try:
            for part in parts[first:] if first else parts:
                if len(data) == 0:
                    break
                data = part(data)
                place += 1
        except TooManyRows as error:
            return split(data, place, error.rows)
        return data

    def split(data: Ints, place: int, rows: int) -> Ints:
        """A step would make too many rows of this data: run it on halves, and each half through all later steps."""
        given: list[Ints] = []
        yields: list[Yield] = []

        def go_on(data: Ints, rows: int) -> None:
            if len(data) == 1:
                keep(run(single(data, rows), place + 1), data, rows)
                return
            for half in np.array_split(data, 2):
                try:
                    keep(run(parts[place](half), place + 1), half, rows // 2)
                except TooManyRows as error:
                    go_on(half, error.rows)

        def keep(made: Ints, of: Ints, rows: int) -> None:
            if len(made) == 0:
                return
            if not yields:
                yields.append(Yield(scope.budget, sort_columns(0, made.shape[1] - tail, tail - 2), op))
            given.append(made)
            yields[0].add(made, given, sizes, of, rows)

        def single(data: Ints, rows: int) -> Ints:
            """A single row that makes more than a piece of rows: raise the limit as far as the memory budget allows."""
            while True:
                size = 8 * (data.shape[1] + 1) * rows
                scope.budget.check((1 + DOWNSTREAM) * size, op, partial(sizes, data, rows))
                try:
                    with allow(rows):
                        return parts[place](data)
                except TooManyRows as error:
                    rows = 2 * error.rows

        def sizes(data: Ints, rows: int) -> str:
            step = parts[place]
            what, shown = (step.name, step.shown(data)) if isinstance(step, _Expansion) else ("a step", "a row")
            return f"{what} makes about {rows:,} rows from {len(data):,}, for example from {shown}"

        go_on(data, rows)
        return together(given) if given else data[:0]

    return run


def _pass(one: Pass, tail: int, scope: ScopeRun) -> Run:
    steps = [compile_stage(stage, tail, scope) for stage in one.stages]

    def run(data: Ints) -> Ints:
        found = one.run(data, tail)
        if found is not None:
            return found
        for step in steps:
            if len(data):
                data = step(data)
        return data

    return run


def compile_stage(stage: Stage, tail: int, scope: ScopeRun) -> Run:
    """A function of updates `[row | tail columns: time, rounds, diff]` that runs one stage. O(rows in and out) numpy
    work."""
    return _COMPILERS[type(stage)](stage, tail, scope)


def _take(stage: Take, tail: int, scope: ScopeRun) -> Run:
    words = list(stage.words)

    def take(data: Ints) -> Ints:
        width = data.shape[1] - tail
        picked: Ints = data[:, words + list(range(width, width + tail))]
        return picked

    return take


def _keep(stage: Keep, tail: int, scope: ScopeRun) -> Run:
    test = predicate(stage.predicate, stage.schema)
    width = stage.schema.width

    def keep(data: Ints) -> Ints:
        kept: Ints = data[test(data[:, :width], scope.heap)]
        return kept

    return keep


def _compute(stage: Compute, tail: int, scope: ScopeRun) -> Run:
    compute = project(stage.exprs, stage.schema)
    width = stage.schema.width

    def build(data: Ints) -> Ints:
        return np.concatenate((compute(data[:, :width], scope.heap), data[:, width:]), axis=1)

    return build


def _negate(stage: Negated, tail: int, scope: ScopeRun) -> Run:
    def flip(data: Ints) -> Ints:
        flipped = data.copy()
        flipped[:, -1] = negate(data[:, -1])
        return flipped

    return flip


class _Expansion:
    """A step that turns each row into any number of rows. Raises TooManyRows if that would be too many at once."""

    def __init__(self, stage: Expand, tail: int, scope: ScopeRun) -> None:
        self.name, self._schema, self._width = stage.table.name, stage.schema, stage.width
        self._table, self._scope = stage.table.compile(stage.schema), scope

    def __call__(self, data: Ints) -> Ints:
        in_width, width = self._schema.width, self._width
        parent, words, factor, time, after = self._table(data[:, :in_width], self._scope.heap)
        out = np.empty((len(parent), width + data.shape[1] - in_width), np.int64)
        out[:, :width] = words
        out[:, width:] = data[parent, in_width:]
        if time is not None:
            out[:, width] = np.maximum(out[:, width], time)
        if after is not None:
            _shift(out[:, width], after, self.name)
        if factor is not None:
            out[:, -1] = multiply(out[:, -1], factor)
        return out

    def shown(self, data: Ints) -> str:
        """The first row, for display."""
        row = np.ascontiguousarray(data[:1, : self._schema.width])
        return str(self._schema.decode_rows(row, self._scope.heap)[0])


def _move(stage: Move, tail: int, scope: ScopeRun) -> Run:
    def move(data: Ints) -> Ints:
        moved = data.copy()
        times = moved[:, -tail]
        # Round up: the distance to the next multiple is the remainder of the negated time; numpy's is never negative.
        _shift(times, np.full(len(data), stage.ns) if stage.delay else (-times) % stage.ns, stage.name)
        return moved

    return move


def _shift(times: Ints, by: Ints, operator: str) -> None:
    """Make the times later, in place. Raises TimeOverflow."""
    late = times >= CLOSED - by
    if bool(late.any()):
        raise TimeOverflow(operator=operator, time=int(times[late][0]), ns=int(by[late][0]))
    times += by


_COMPILERS: dict[type[Stage], Callable[[Any, int, ScopeRun], Run]] = {
    Take: _take,
    Keep: _keep,
    Compute: _compute,
    Negated: _negate,
    Expand: _Expansion,
    Move: _move,
}
