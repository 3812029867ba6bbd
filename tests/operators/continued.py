"""Compares a worker that continues with the state of an earlier plan of its program with one that never stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import vernier as vn
from vernier.operators.engine.migrate import Held, migrate, plan_migration
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime.exchange import Single
from vernier.storage.updates import MIN_TIME, Updates

Row = tuple[tuple[Any, ...], int, int]
"""An update: row, time, diff."""


def updates(program: vn.App, given: Mapping[str, Sequence[Row]], heap: object) -> dict[str, Updates]:
    """The updates of each source."""
    found = {}
    for name, source in program.sources.items():
        rows = given[name]
        words = source.schema.encode_rows((row for row, _, _ in rows), heap)
        found[name] = Updates.of(words.reshape(-1, source.schema.width), [r[1] for r in rows], [r[2] for r in rows])
    return found


def run_epoch(
    program: vn.App, worker: Worker, given: Mapping[str, Sequence[Row]], lower: int, upper: int
) -> list[object]:
    """Run an epoch. Returns the changes of all views, in an order that depends on them alone."""
    result = worker.run_epoch(lower, upper, updates(program, given, worker.state.heap))
    found: list[object] = []
    for name, changes in sorted(result.changes.items()):
        rows = program.views[name].node.schema.decode_rows(changes.rows, worker.state.heap)
        found += sorted(zip([name] * len(rows), changes.time.tolist(), map(repr, rows), changes.diff.tolist()))
    return found


def check_continued(program: vn.App, before: Plan, event: Callable[[], tuple[Any, ...]]) -> None:
    """Run rows of the program's one source by an earlier plan, `before`; then more rows, and the leaving of most of
    them, by the program's present plan with that state. No view may lose its trace. event: makes a row."""
    plan = compile_app(program)
    (source,) = program.sources
    log = [(event(), at, 1) for at in range(150)]
    old, whole = Worker(before), Worker(plan)
    for worker in (old, whole):
        run_epoch(program, worker, {source: log[:100]}, MIN_TIME, 100)
    assert {view.trace for view in plan.views.values()} <= set(plan_migration(plan, Held.of(old.state)).kept)
    state = migrate(plan, old.state, Single())
    assert state.traces.keys() == plan.arrangements.keys()
    later = [*log[100:], *((row, 160 + at % 7, -1) for row, at, _ in log[:120])]
    wanted = run_epoch(program, whole, {source: later}, 100, 200)
    assert run_epoch(program, Worker(plan, state=state), {source: later}, 100, 200) == wanted
    assert wanted
