"""Migration: carries a running worker's state over to another plan: a changed program, or one added or removed.

Traces and queues with equal names have equal structure, in whatever program they occur. So the migration keeps those
that the new plan also has, drops those that it does not have, and computes the new ones once from the rows that are
kept. For each source that the new ones depend on, some kept arrangement of that source must hold all of its rows, as of
the frontier (a plan compiled with `keep_sources` has such an arrangement for each source). Those rows run through the
new operators only, as one epoch of a single data time just below the frontier. From then on the answers are the same as
if the new program had run from the start. Earlier answers are not known: the history of a new view begins there.

This is correct for everything that follows from collections. `delay`, `coarsen`, `lookup` and delayed variables also
depend on when a row arrived, which a kept arrangement does not record. And a source that no kept arrangement holds
completely cannot be recovered. In these cases the source has to be read again from its beginning, and NeedsHistory says
so. All workers migrate together: O(rows of the sources that the new operators depend on).

Source: "Differential dataflow roadmap", constraint 2: new readers of an existing index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from vernier.operators.engine.worker import Worker, WorkerState
from vernier.operators.failures import NeedsHistory
from vernier.operators.planning.ops import ArrangeOp, InputOp
from vernier.operators.planning.plan import Plan, upstream
from vernier.operators.runtime.budget import Budget
from vernier.operators.runtime.exchange import Exchange
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME, Updates


@dataclass(frozen=True)
class Migration:
    """How a plan takes over a state. kept, fresh, dropped: names of traces and queues. operators: the operators that
    compute the fresh ones. sources: for each source that they depend on, the trace that holds its rows and the position
    of each of its words there."""

    kept: tuple[str, ...]
    fresh: tuple[str, ...]
    dropped: tuple[str, ...]
    operators: frozenset[int]
    sources: Mapping[str, tuple[str, tuple[int, ...]]]


def plan_migration(plan: Plan, held: Collection[str]) -> Migration:
    """Plan the migration of a state with these traces and queues. Raises NeedsHistory, which names the obstacle."""
    wanted = [*plan.arrangements, *plan.queues]
    fresh = [name for name in wanted if name not in held]
    needed = upstream(plan, [op.id for op in plan.ops if {*op.traces, *op.queues} & set(fresh)])
    sources = {}
    for op in (plan.ops[i] for i in sorted(needed)):
        if op.depends_on_arrival:
            raise NeedsHistory(what=_shown(plan, fresh), why=f"{op.name} depends on when rows arrived")
    for source in plan.of(InputOp):
        if source.id in needed:
            found = _whole(plan, source, held)
            if found is None:
                why = f"no kept arrangement holds all rows of source {source.source}"
                raise NeedsHistory(what=_shown(plan, fresh), why=why)
            sources[source.source] = found
    kept = tuple(name for name in wanted if name in held)
    dropped = tuple(sorted(set(held) - set(wanted)))
    return Migration(kept, tuple(fresh), dropped, frozenset(needed), sources)


def migrate(
    plan: Plan, state: WorkerState, exchange: Exchange, *, slice_updates: int = 0, budget: Budget | None = None
) -> WorkerState:
    """The state for `plan`, complete up to the same frontier; `state` does not change. All workers must call it.

    Raises NeedsHistory (on all workers alike), and whatever the new operators raise on the existing rows.
    """
    migration = plan_migration(plan, {*state.traces, *state.queues})
    old = state.fork()
    fresh = WorkerState.empty(plan)
    fresh.heap = old.heap
    if migration.fresh and state.upper > MIN_TIME:
        now = state.upper - 1
        inputs = {name: _rows(old.traces[trace], words, now) for name, (trace, words) in migration.sources.items()}
        for trace, _ in migration.sources.values():
            old.heap.attach(batch.texts for batch in old.traces[trace].batches)
        worker = Worker(plan, exchange, fresh, slice_updates=slice_updates, only=migration.operators, budget=budget)
        worker.run_epoch(now, state.upper, inputs)
        for name in migration.fresh:
            if name in fresh.traces:
                fresh.traces[name].since = max(fresh.traces[name].since, now)
    return WorkerState(
        {name: old.traces.get(name, fresh.traces[name]) for name in plan.arrangements},
        state.upper,
        {name: old.queues.get(name, fresh.queues[name]) for name in plan.queues},
        old.heap,
    )


def _rows(trace: Trace, words: tuple[int, ...], time: int) -> Updates:
    """All rows of a trace in the source's word order, as updates of one time. A row may occur several times."""
    parts = [_batch_rows(batch, words) for batch in trace.batches]
    if not parts:
        return Updates.empty(len(words))
    rows = np.concatenate(parts)
    rows[:, -2] = time
    return Updates(np.ascontiguousarray(rows), len(words), 0)


def _batch_rows(batch: Batch, words: tuple[int, ...]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    data = batch.to_updates().data
    width = data.shape[1] - 2
    picked: np.ndarray[tuple[int, int], np.dtype[np.int64]] = data[:, [*words, width, width + 1]]
    return picked


def _whole(plan: Plan, source: InputOp, held: Collection[str]) -> tuple[str, tuple[int, ...]] | None:
    """A kept arrangement that has all words of the source's rows, and the position of each word in its rows."""
    for op in plan.of(ArrangeOp):
        if op.input == source.id and op.trace in held:
            places = op.places(source.width)
            if places is not None:
                return op.trace, places
    return None


def _shown(plan: Plan, names: Iterable[str]) -> str:
    labels = {name: shape.label for name, shape in plan.arrangements.items()}
    labels |= {name: shape.label for name, shape in plan.queues.items()}
    shown = [labels[name] for name in names]
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
