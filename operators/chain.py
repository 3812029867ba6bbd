"""Stages: what a linear operator runs for each row-wise step of its chain.

Source: seed 002, join_function: every stage is `(row, time, diff) → (row', time ∨ time', diff · diff')`, so a chain of
them is one as well, and running it at once gives what running it step by step does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from operators.failures import TimeOverflow
from operators.language.evaluate import predicate, project
from operators.passes import Pass, passes
from operators.planning.plan import Compute, Expand, Keep, Move, Negated, Stage, Take
from operators.scope import ScopeRun
from storage.diff import multiply, negate
from storage.updates import CLOSED, Ints

Run = Callable[[Ints], Ints]


def compile_chain(stages: Sequence[Stage], width: int, tail: int, scope: ScopeRun) -> Run:
    """A function of updates `[row (width) | tail columns: time, rounds, diff]` for all stages.

    Runs of plain steps are one pass of a kernel over the rows (operators/passes.py). O(rows in and out).
    """
    parts = [
        _pass(part, tail, scope) if isinstance(part, Pass) else compile_stage(part, tail, scope)
        for part in passes(stages, width)
    ]

    def run(data: Ints) -> Ints:
        for part in parts:
            if len(data) == 0:
                break
            data = part(data)
        return data

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
    """A function of updates `[row | tail columns: time, rounds, diff]` for one stage. O(rows in and out) numpy work."""
    match stage:
        case Take():
            words = list(stage.words)

            def take(data: Ints) -> Ints:
                width = data.shape[1] - tail
                picked: Ints = data[:, words + list(range(width, width + tail))]
                return picked

            return take
        case Keep():
            test = predicate(stage.predicate, stage.schema)
            kept_width = stage.schema.width

            def keep(data: Ints) -> Ints:
                kept: Ints = data[test(data[:, :kept_width], scope.heap)]
                return kept

            return keep
        case Compute():
            compute = project(stage.exprs, stage.schema)
            in_width = stage.schema.width

            def build(data: Ints) -> Ints:
                return np.concatenate((compute(data[:, :in_width], scope.heap), data[:, in_width:]), axis=1)

            return build
        case Expand():
            return _expand(stage, scope)
        case Move():
            return _move(stage, tail)
        case Negated():

            def flip(data: Ints) -> Ints:
                flipped = data.copy()
                flipped[:, -1] = negate(data[:, -1])
                return flipped

            return flip


def _expand(stage: Expand, scope: ScopeRun) -> Run:
    table, in_width, width = stage.table.compile(stage.schema), stage.schema.width, stage.width

    def expand(data: Ints) -> Ints:
        parent, words, factor, time = table(data[:, :in_width], scope.heap)
        out = np.empty((len(parent), width + data.shape[1] - in_width), np.int64)
        out[:, :width] = words
        out[:, width:] = data[parent, in_width:]
        if time is not None:
            out[:, width] = np.maximum(out[:, width], time)
        if factor is not None:
            out[:, -1] = multiply(out[:, -1], factor)
        return out

    return expand


def _move(stage: Move, tail: int) -> Run:
    def move(data: Ints) -> Ints:
        moved = data.copy()
        times = data[:, -tail]
        # Upwards: what is missing to the next multiple is the remainder of the negated time (Python's, never negative).
        by: Ints = np.full(len(data), stage.ns) if stage.delay else (-times) % stage.ns
        late = times >= CLOSED - by
        if bool(late.any()):
            raise TimeOverflow(operator="delay" if stage.delay else "coarsen", time=int(times[late][0]), ns=stage.ns)
        moved[:, -tail] = times + by
        return moved

    return move
