"""Migration: carries a running worker's state over to another plan: a changed program, or one added or removed.

Traces and queues are known by what they mean, in whatever program they occur. The migration keeps those that the new
plan also has, renames those that mean the same under another name (a view that was renamed keeps its history), drops
those that the new plan does not have, and fills the fresh ones from rows that the state holds whole.

A trace holds the rows of an operator whole if no column is left out (`Whole`). The search goes from each fresh trace
towards the sources and stops at the first operator whose rows some trace holds, whether the new plan keeps that trace
or not. These rows, the given ones, then run through the operators behind them (fill.py). From the switch on, answers
are the same as if the new program had run from the start.

Columns of sources: a trace of rows that a source had before its columns changed is as good as one of its present rows
(planning/evolution.py). It is renamed if its rows are the same, and read through an `Adapt` if they are not.

New sources: the rows that a source has had before the change are not known, so what needs them is refused. A source
that begins with a snapshot (`begins`) has had none; what follows from such sources alone is known to be empty always.

History: a given trace tells times apart from its `since` on, so a fresh view knows its history from the latest `since`
among the traces that it is filled from. A step that moves rows by some nanoseconds (`delay`, `coarsen`) needs as much
history of the traces below it. A half join (`lookup`) and a delayed variable depend on all of the past, so they cannot
be filled, only kept, or stand below rows that a trace holds. NeedsHistory names the obstacle.

Cost: of planning O(operators x fresh traces); of filling O(rows of the given traces) and what the new operators do.
Source: "Differential dataflow roadmap", constraint 2: new readers of an existing index.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from vernier.operators.engine.fill import Fill
from vernier.operators.engine.former import check_former
from vernier.operators.engine.given import Given
from vernier.operators.engine.worker import WorkerState
from vernier.operators.failures import NeedsHistory
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.adapted import Evolution
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import ArrangeOp, InputOp, UpsertOp
from vernier.operators.planning.plan import Plan, Whole, upstream
from vernier.operators.runtime.budget import Budget
from vernier.operators.runtime.exchange import Exchange
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME


@dataclass(frozen=True)
class Held:
    """What a state has. upper: it is complete up to there. since: for each trace, the data time from which on it tells
    times apart. wholes: which operator's rows a trace holds completely. key_widths: words of each trace's key. sources:
    those that the state has read, if that is known. columns: those that the sources had. begins: new sources that begin
    with a snapshot, which enters after the change."""

    upper: int
    since: Mapping[str, int]
    queues: frozenset[str] = frozenset()
    wholes: Mapping[str, Whole] = field(default_factory=dict)
    key_widths: Mapping[str, int] = field(default_factory=dict)
    sources: frozenset[str] | None = None
    columns: Mapping[str, RowType] = field(default_factory=dict)
    begins: frozenset[str] = frozenset()

    @staticmethod
    def of(state: WorkerState, begins: Collection[str] = ()) -> Held:
        """What a worker's state has. begins: see Held."""
        traces = state.traces.items()
        return Held(
            state.upper,
            {name: trace.since for name, trace in traces},
            frozenset(state.queues),
            state.wholes,
            {name: trace.key_width for name, trace in traces},
            columns=state.sources,
            begins=frozenset(begins),
        )

    @staticmethod
    def by(plan: Plan, upper: int) -> Held:
        """What a plan's state has at the frontier `upper`."""
        shapes = plan.arrangements.items()
        since = {name: shape.since(upper) for name, shape in shapes}
        widths = {name: shape.key_width for name, shape in shapes}
        return Held(upper, since, frozenset(plan.queues), plan.wholes, widths, columns=plan.sources)

    @property
    def names(self) -> set[str]:
        """All traces and queues."""
        return {*self.since, *self.queues}


@dataclass(frozen=True)
class Migration:
    """How a plan takes over a state. kept, fresh, dropped: names of traces and queues. renamed: for traces of the plan
    the trace of the state that means the same. operators: the operators that compute the fresh ones. given: for some of
    them, the trace that holds their rows. since: from which time on each fresh trace knows its history."""

    kept: tuple[str, ...]
    fresh: tuple[str, ...]
    dropped: tuple[str, ...]
    renamed: Mapping[str, str]
    operators: frozenset[int]
    given: Mapping[int, Given]
    since: Mapping[str, int]


def plan_migration(plan: Plan, held: Held) -> Migration:
    """Plan the migration of a state to a plan. Raises NeedsHistory, which names the first obstacle."""
    migration, refused = try_migration(plan, held)
    if refused:
        reasons = list(dict.fromkeys(refused.values()))
        raise NeedsHistory(what=shown(plan, refused), why="; ".join(reasons[:3]))
    return migration


def try_migration(plan: Plan, held: Held) -> tuple[Migration, dict[str, str]]:
    """The migration of what can be carried over, and for each trace or queue that cannot, the reason."""
    wanted = [*plan.arrangements, *plan.queues]
    kept = tuple(name for name in wanted if name in held.names)
    evolution = plan.evolve(held.columns)
    alike = {(held.wholes[name], held.key_widths.get(name)): name for name in sorted(held.since) if name in held.wholes}
    renamed = {
        name: alike[shape.whole, shape.key_width]
        for name, shape in plan.arrangements.items()
        if name not in held.since and shape.whole is not None and (shape.whole, shape.key_width) in alike
    }
    renamed |= {name: old for name, old in evolution.same.items() if name not in held.names and old in held.names}
    fresh = tuple(name for name in wanted if name not in held.names and name not in renamed)
    found: dict[str, _Way] = {}
    refused: dict[str, str] = {}
    search = _Search(plan, held, fresh, evolution)
    for name in fresh:
        way = search.way(name)
        if isinstance(way, str):
            refused[name] = way
        else:
            found[name] = way
    # What one trace needs with its history is computed for all: a given trace that knows less would take it away.
    computed = {op for way in found.values() for op in way.operators - way.given.keys()}
    given = {op: given for way in found.values() for op, given in way.given.items() if op not in computed}
    return (
        Migration(
            kept,
            fresh,
            tuple(sorted(held.names - set(kept) - set(renamed.values()))),
            renamed,
            frozenset(op for way in found.values() for op in way.operators),
            given,
            {name: way.since for name, way in found.items()},
        ),
        refused,
    )


@dataclass(frozen=True)
class _Way:
    """How one fresh trace or queue is filled."""

    operators: frozenset[int]
    given: Mapping[int, Given]
    since: int


class _Search:
    """Finds, for fresh traces, the operators that compute them from rows that the state holds."""

    def __init__(self, plan: Plan, held: Held, fresh: Collection[str], evolution: Evolution) -> None:
        self._plan, self._held, self._fresh, self._evolution = plan, held, set(fresh), evolution
        self._upserts = {op.input for op in plan.of(UpsertOp)}  # their rows are messages, not what the source holds
        self._holders: dict[str, list[Given]] = {}
        wholes = dict(held.wholes)
        for op in plan.of(ArrangeOp):
            # States of older releases do not say which traces are whole; the plan says it of those that it has, too.
            whole = plan.arrangements[op.trace].whole
            if whole is not None and op.trace in held.since:
                wholes.setdefault(op.trace, whole)
        for former in plan.former:
            if former.whole is not None and former.trace in held.since:
                wholes.setdefault(former.trace, former.whole)
        for name in sorted(wholes, key=lambda name: (held.since[name], name)):
            self._holders.setdefault(wholes[name].of, []).append(Given(name, wholes[name].words, held.since[name]))

    def way(self, name: str) -> _Way | str:
        """How to fill a fresh trace or queue, or why that is impossible; with history if the trace keeps that."""
        shape = self._plan.arrangements.get(name)
        if shape is not None and shape.retained:
            far = self._walk(name, past=True)
            if not isinstance(far, str):
                return far
        return self._walk(name, past=False)

    def _walk(self, name: str, *, past: bool) -> _Way | str:
        """Go from the operator that keeps `name` to the rows that are held. past: only to rows with history."""
        plan, upper = self._plan, self._held.upper
        seen: set[int] = set()
        given: dict[int, Given] = {}
        empty: set[int] = set()
        stack = [op.id for op in plan.ops if name in (*op.traces, *op.queues)]
        while stack:
            op = plan.ops[stack.pop()]
            if op.id in seen:
                continue
            seen.add(op.id)
            holder = self._holder(op, past)
            if holder is not None:
                given[op.id] = holder
            elif self._is_empty(op):
                empty.add(op.id)
                stack += (*op.inputs, *op.companions(plan.ops))
            elif op.remembers_ns is None:
                return (
                    f"{_named(op)} depends on all that the rows below it were in the past, and no arrangement of the "
                    "state holds what it made of them"
                )
            elif isinstance(op, InputOp):
                return self._not_whole(op.source)
            else:
                stack += (*op.inputs, *op.companions(plan.ops))
        now = upper - 1
        always = MIN_TIME if empty and seen == empty else now
        since = min(now, max((one.since for one in given.values()), default=always))
        slow = [plan.ops[i] for i in sorted(seen - given.keys() - empty) if plan.ops[i].remembers_ns]
        since += sum(op.remembers_ns or 0 for op in slow)
        if slow and since > now:
            return (
                f"{_named(slow[0])} depends on when rows came in the last {(slow[0].remembers_ns or 0) / 1e9:g} s, and "
                "the arrangements that hold them do not keep that"
            )
        return _Way(frozenset(seen), given, since)

    def _is_empty(self, op: Op) -> bool:
        """Whether an operator has had no row so far, because it reads only sources that have had none."""
        if not self._held.begins:
            return False
        below = upstream(self._plan, [op.id])
        read = {one.source for one in self._plan.of(InputOp) if one.id in below}
        return bool(read) and read <= self._held.begins

    def _not_whole(self, source: str) -> str:
        """Why the rows of a source cannot be given."""
        if source in self._evolution.refused:
            return self._evolution.refused[source]
        if self._held.sources is not None and source not in self._held.sources:
            return (
                f"source {source} is new, so the state has none of the rows that its topic has had so far (with "
                f"sources.{source}.snapshot it begins with the rows that you give)"
            )
        return (
            f"no arrangement of the state holds all rows of source {source} (a state that begins with "
            "state.keep_sources has one)"
        )

    def _holder(self, op: Op, past: bool) -> Given | None:
        """The trace that holds the rows of an operator, if the operator can be left out."""
        if (
            op.scope != 0
            or op.id in self._upserts
            or any(name in self._fresh for name in (*op.traces, *op.queues) if name != op.arrangement)
        ):
            return None
        found = list(self._holders.get(self._plan.prints[op.id], ()))
        own = op.arrangement
        if own is not None and own in self._held.since:
            found.append(Given(own, tuple(range(op.width)), self._held.since[own]))
        if isinstance(op, ArrangeOp) and op.former is not None and op.former[0] in self._held.since:
            found.append(Given(*op.former, self._held.since[op.former[0]]))
        found += self._adapted(op)
        # One choice for all that is filled from the operator: the trace with the longest history.
        best = min(found, key=lambda one: one.since, default=None)
        return None if best is None or (past and best.since >= self._held.upper - 1) else best

    def _adapted(self, op: Op) -> Iterator[Given]:
        """Traces that hold the rows of an operator as they were before the columns of a source changed."""
        since = self._held.since
        for kept in self._evolution.arranged.get(op.arrangement or "", ()):
            if kept.trace in since:
                yield Given(kept.trace, kept.words, since[kept.trace], kept.adapt)
        if op.id in self._evolution.prints:
            print_, adapt = self._evolution.prints[op.id]
            for one in self._holders.get(print_, ()):
                yield replace(one, adapt=adapt)


class Change:
    """A change to another plan under way on one worker: `step` beside the epochs of the old plan, then `switch`.

    All workers must make the same calls with the same states' frontiers. hold: the state goes on meanwhile. Raises
    NeedsHistory (on all workers alike); steps raise whatever the new operators raise on the existing rows.
    """

    def __init__(
        self,
        plan: Plan,
        state: WorkerState,
        exchange: Exchange,
        *,
        hold: bool = True,
        slice_updates: int = 0,
        budget: Budget | None = None,
        begins: Collection[str] = (),
    ) -> None:
        self.plan = plan
        self.migration = plan_migration(plan, Held.of(state, begins))
        self.fill: Fill | None = None
        if self.migration.fresh and state.upper > MIN_TIME:
            check_former(plan, state)
            operators, given = self.migration.operators, self.migration.given
            self.fill = Fill(plan, operators, given, exchange, slice_updates=slice_updates, budget=budget)
            self.fill.begin(state, hold=hold)

    def step(self, state: WorkerState, exchange: Exchange, rows: int | None = None) -> None:
        """Fill with up to `rows` more of the rows that `state` holds (see Fill.step)."""
        if self.fill is not None:
            self.fill.use(exchange)
            self.fill.step(state, rows)

    @property
    def steps(self) -> int:
        """How many steps it has taken."""
        return 0 if self.fill is None else self.fill.steps

    def follows(self, state: WorkerState) -> bool:
        """Whether `state` has gone on from the state with which the change began, and holds what it still needs."""
        return self.fill is None or self.fill.follows(state)

    def ready(self, state: WorkerState) -> bool:
        """Whether everything up to the frontier of `state` is filled, so that a switch costs nothing."""
        return self.fill is None or self.fill.upper >= state.upper

    def switch(self, state: WorkerState, exchange: Exchange) -> WorkerState:
        """The state for the new plan, complete up to the same frontier; `state` does not change. Fills what is left."""
        if self.fill is None:
            return carried(self.plan, self.migration, state, WorkerState.empty(self.plan))
        self.fill.use(exchange)
        return carried(self.plan, self.migration, state, self.fill.finish(state))

    def close(self) -> None:
        """Give up the change; idempotent."""
        if self.fill is not None:
            self.fill.close()


def migrate(
    plan: Plan,
    state: WorkerState,
    exchange: Exchange,
    *,
    slice_updates: int = 0,
    budget: Budget | None = None,
    begins: Collection[str] = (),
) -> WorkerState:
    """The state for `plan`, complete up to the same frontier, at once; `state` does not change. begins: new sources
    that begin with a snapshot. See Change."""
    change = Change(plan, state, exchange, hold=False, slice_updates=slice_updates, budget=budget, begins=begins)
    return change.switch(state, exchange)


def carried(plan: Plan, migration: Migration, state: WorkerState, filled: WorkerState) -> WorkerState:
    """The state for `plan`: what is kept of `state`, and the fresh traces as filled up to the same frontier."""
    old = state.fork()
    traces = {}
    for name in plan.arrangements:
        same = migration.renamed.get(name)
        if name in old.traces:
            traces[name] = old.traces[name]
        elif same is not None:
            traces[name] = _renamed(old.traces[same], name)
        else:
            traces[name] = filled.traces[name]
            traces[name].since = max(traces[name].since, migration.since.get(name, MIN_TIME))
    queues = {name: old.queues.get(migration.renamed.get(name, name), filled.queues[name]) for name in plan.queues}
    for name, queue in queues.items():
        queue.name = name
    return WorkerState(traces, state.upper, queues, old.heap, wholes=plan.wholes, sources=plan.sources)


def _renamed(trace: Trace, name: str) -> Trace:
    """A trace of another name with the same batches."""
    copy = Trace(name, trace.key_width, trace.val_width, trace.depth, trace.since)
    copy.replace(trace.batches)
    return copy


def shown(plan: Plan, names: Iterable[str]) -> str:
    """Traces and queues as people know them."""
    labels = {name: shape.label for name, shape in plan.arrangements.items()}
    labels |= {name: shape.label for name, shape in plan.queues.items()}
    found = [labels[name] for name in names]
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def _named(op: Op) -> str:
    """An operator and its line of the program."""
    return f"{op.name} at {os.path.basename(op.line)}" if op.line else op.name
