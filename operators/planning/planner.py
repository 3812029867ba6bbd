"""The planner: compiles a program's logical nodes (language/plan) into the physical plan (plan.py).

- Chains of row-wise steps fuse into one `LinearOp`. A projection of plain columns on a join or below an arrangement
  costs nothing: it only picks words.
- Equal structure is built once. The planner finds operators by the fingerprint of what they compute, so all joins and
  reductions that need the same collection by the same key share one arrangement, inside loops and outside.
- Rows move between workers only where they must. Each operator knows which words' hash places its rows, and an
  arrangement whose input is already placed by its key needs no exchange. A loop's variable takes the placement of its
  feedback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import xxhash

from vernier.operators.failures import TraceNamedTwice
from vernier.operators.language.collection.app import App
from vernier.operators.language.collection.structure import Probe
from vernier.operators.language.collection.variable import delayed_below
from vernier.operators.language.plan import logical
from vernier.operators.language.plan.node import ROOT, Node, Scope, planning
from vernier.operators.language.plan.titles import name_of
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning import constants, delayed, joins, linear, loops, reductions, structure
from vernier.operators.planning.adapted import Evolution
from vernier.operators.planning.arrangements import arrange, build_view, keep_history
from vernier.operators.planning.evolution import evolve
from vernier.operators.planning.loop_ops import EnterOp
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import ArrangeOp, UpsertOp
from vernier.operators.planning.placement import capture, place
from vernier.operators.planning.plan import (
    ArrangementPlan,
    FormerTrace,
    Plan,
    QueuePlan,
    ScopePlan,
    ViewPlan,
    Whole,
)
from vernier.operators.planning.sharing import count_uses, identity
from vernier.operators.planning.stages import Words
from vernier.operators.planning.upserts import build_source

_PRINT = 16
"""Digits of an operator's fingerprint in the plan and in manifests."""

FORMAT = 1
"""Version of the meaning of traces. It is part of every fingerprint, so that state in an old format is not read as
new."""


def compile_app(
    app: App,
    *,
    keep_sources: bool = False,
    upserts: Mapping[str, Sequence[str]] | None = None,
    push: bool = True,
    keep_views: bool = True,
) -> Plan:
    """The plan of a program. Deterministic: the same program gives the same ids, names and fingerprints everywhere.

    keep_sources: arrange every source with all its columns, so that a later program can be built from the state
    (operators/engine/migrate.py). upserts: the key columns of each source whose updates are upserts. push: move
    temporal filters and table functions below joins (pushing.py); without it the state has the form that earlier
    releases gave it. keep_views: arrange each view by its key, with its history; without it workers only say how views
    change, and the state cannot go on with another program.
    """
    planner = Planner(app, keep_sources=keep_sources, upserts=upserts, push=push, keep_views=keep_views)
    with planning():
        return planner.compile()


class Planner:
    """Builds a program's plan, each structure once. `uses` counts the users of each structure; `prints` holds the
    fingerprint of what each operator computes; `line` is the program line of the node that is being built."""

    def __init__(
        self,
        app: App,
        *,
        keep_sources: bool = False,
        upserts: Mapping[str, Sequence[str]] | None = None,
        push: bool = True,
        keep_views: bool = True,
    ) -> None:
        self.app, self.keep_sources, self.upserts, self.push = app, keep_sources, upserts or {}, push
        self.keep_views = keep_views
        self.ops: list[Op] = []
        self.scopes: list[ScopePlan] = [ScopePlan(0, None, 0)]
        self.scope_of: dict[Scope, int] = {}
        self.memo: dict[tuple[object, ...], int] = {}
        self.loops: dict[str, int] = {}
        self.scope_prints: list[str] = [""]
        self.variables: dict[tuple[Scope, int], int] = {}
        self.prints: dict[int, str] = {}
        self.arrangements: dict[str, ArrangementPlan] = {}
        self.queues: dict[str, QueuePlan] = {}
        self.probes: list[Probe] = []
        self.former: list[FormerTrace] = []
        self.line = ""
        self.made: list[tuple[Node, Op]] = []
        """Nodes, and the operators that were built for them; later ones may have taken their places."""
        self.pushes = False
        roots = [*(view.node for view in app.views.values()), *app.required]
        self.delayed = app.variables
        self.uses = count_uses([*roots, *(node.body for node in self.delayed)])

    def compile(self) -> Plan:
        views: dict[str, ViewPlan] = {}
        for name in self.app.sources:
            self.build(self.app.sources[name])
        for name, view in self.app.views.items():
            views[name] = build_view(self, name, view)
        for node in self.app.required:
            self.build(node)
        delayed.feed(self)
        for name, retain_ns in self.app.kept_sources.items():
            keep_history(self, self.app.sources[name], retain_ns)
        for source in self.app.sources.values() if self.keep_sources else ():
            self._keep_whole(source)
        place(self.ops)
        capture(self.ops, self.scopes)
        self.queues = self._queues()
        parts = [(op.arrangement, op.width) for op in self.ops if op.arrangement is not None]
        waits = [(name, shape.width) for name, shape in self.queues.items()]
        described = repr((FORMAT, sorted(views), sorted(self.app.sources), parts, *waits))
        return Plan(
            app=self.app.name,
            fingerprint=xxhash.xxh3_128_hexdigest(described.encode()),
            sources={name: source.schema for name, source in self.app.sources.items()},
            views=views,
            ops=self.ops,
            scopes=self.scopes,
            arrangements=self._arrangements(),
            probes=self.probes,
            queues=delayed.mark_cycles(self.ops, self.queues),
            prints=[self.prints[op.id][:_PRINT] for op in self.ops],
            former=self.former,
            pushes=self.pushes,
            evolve=self._evolve,
        )

    def _evolve(self, former: Mapping[str, RowType]) -> Evolution:
        """See Plan.evolve."""
        with planning():
            return evolve(self, former)

    def remember(self, trace: str, lanes: str, of: int, key: Words, val: Words, flags: Words) -> None:
        """Record the traces in which earlier versions kept rows of operator `of`, its words `key` and `val`, and the
        numbers of its groups; `flags` are the null flags of summed columns."""
        order, width = (*key, *val), self.ops[of].width
        places = tuple(map(order.index, range(width))) if set(order) == set(range(width)) else None
        whole = None if places is None else Whole(self.prints[of][:_PRINT], places)
        self.former.append(FormerTrace(trace, lanes, whole, len(key), tuple(map(order.index, flags))))

    def _keep_whole(self, source: logical.SourceNode) -> None:
        """Arrange a source with all its columns unless an arrangement has them already."""
        width = source.schema.width
        below = self.build(source)
        kept = (op for op in self.ops if isinstance(op, ArrangeOp) and op.input == below)
        if all(op.places(width) is None for op in kept):
            arrange(self, source, ROOT, tuple(range(width)), ())

    def scope(self, scope: Scope) -> int:
        return 0 if scope.depth == 0 else self.scope_of[scope]

    def add(self, op: Op, print_: str) -> int:
        trace = op.arrangement
        if trace is not None and any(other.arrangement == trace for other in self.ops):
            raise TraceNamedTwice(trace=trace, operator=op.name)
        op.line = op.line or self.line
        self.ops.append(op)
        self.scopes[op.scope].ops.append(op.id)
        self.prints[op.id] = print_
        return op.id

    def _arrangements(self) -> dict[str, ArrangementPlan]:
        """The shapes of the traces, with the positions of texts filled in."""
        texts = {trace: words for op in self.ops for trace, words in op.trace_texts.items()}
        wholes = {op.trace: self._whole(op) for op in self.ops if isinstance(op, ArrangeOp) and op.scope == 0}
        return {
            name: replace(shape, texts=texts.get(name, ()), whole=wholes.get(name))
            for name, shape in self.arrangements.items()
        }

    def _whole(self, op: ArrangeOp) -> Whole | None:
        """The rows that an arrangement has completely: those of its input, unless columns are left out."""
        if isinstance(op, UpsertOp):  # its input's rows are upserts, of which it keeps the newest
            return None
        places = op.places(self.ops[op.input].width)
        return None if places is None else Whole(self.prints[op.input][:_PRINT], places)

    def _queues(self) -> dict[str, QueuePlan]:
        """The shapes of the queues, with the positions of texts filled in."""
        texts = {queue: op.texts for op in self.ops for queue in op.queues}
        return {name: replace(shape, texts=texts[name]) for name, shape in self.queues.items()}

    def hash(self, *parts: object) -> str:
        return xxhash.xxh3_128_hexdigest(repr((FORMAT, *parts)).encode())

    def meaning(self, node: Node) -> str:
        """The fingerprint of what a node computes in its scope, however it is fused: equal in every program with that
        node."""
        scope = node.scope
        around = tuple(one for one in reversed(scope.chain()) if one.depth > 0)
        return self.hash("node", node.digest(around), self.scope_prints[self.scope(scope)], *self.definitions([node]))

    def definitions(self, nodes: Sequence[Node]) -> tuple[tuple[str, str], ...]:
        """The meanings of the delayed variables below these nodes, which the nodes' own digests do not include."""
        below = delayed_below(nodes) if self.delayed else []
        return tuple(sorted((variable.name, variable.body.fingerprint) for variable in below))

    def build(self, node: Node) -> int:
        """The operator that supplies the rows of `node`, in the node's own scope."""
        key = ("node", *identity(node))
        if key not in self.memo:
            above, self.line = self.line, str(node.where)
            self.memo[key] = self._make(node)
            self.line = above
            self.ops[self.memo[key]].texts = node.schema.text_words
            self.made.append((node, self.ops[self.memo[key]]))
        op, name = self.ops[self.memo[key]], name_of(node)
        if name is not None and op.takes_names:
            op.name, op.titled = name, True
        return self.memo[key]

    def _make(self, node: Node) -> int:
        builder = BUILDERS.get(type(node))
        if builder is None:
            raise TypeError(f"no operator for {type(node).__name__}")
        return builder(self, node)

    def into(self, node: Node, scope: Scope) -> int:
        """The operator that supplies the rows of `node` in an inner `scope`. Each collection enters a loop once."""
        if node.scope is scope:
            return self.build(node)
        assert scope.parent is not None
        outer = self.into(node, scope.parent)
        key = ("enter", outer, scope)
        if key not in self.memo:
            op = EnterOp(len(self.ops), self.scope(scope), self.ops[outer].width, "enter", input=outer)
            op.texts = self.ops[outer].texts
            self.memo[key] = self.add(op, self.hash("enter", self.prints[outer]))
        return self.memo[key]

    def drop(self, op: Op) -> None:
        """Remove the newest operator, because its only user has absorbed it. Another one takes its number, and a node
        that is made later may be equal to one that it was built for."""
        if self.ops[-1] is op:
            self.ops.pop()
            self.scopes[op.scope].ops.pop()
            for memo in [memo for memo, number in self.memo.items() if number == op.id]:
                del self.memo[memo]


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {
    logical.SourceNode: build_source,
    **constants.BUILDERS,
    **linear.BUILDERS,
    **delayed.BUILDERS,
    **reductions.BUILDERS,
    **joins.BUILDERS,
    **structure.BUILDERS,
    **loops.BUILDERS,
}
"""The builder of each kind of node. Each family of nodes has its own file."""
