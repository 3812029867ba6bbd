"""Plans arrangements: a collection indexed by a key, kept once for all its readers. Views are arrangements, too, unless
only their changes are wanted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vernier.operators.failures import TraceNamedTwice
from vernier.operators.language.collection.app import ViewDecl
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.plan.logical import SourceNode
from vernier.operators.language.plan.node import Node, Scope
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.chains import chain
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import ArrangeOp, ConsolidateOp, ViewOp
from vernier.operators.planning.plan import ArrangementPlan, ViewPlan
from vernier.operators.planning.reduction_ops import ReductionOp
from vernier.operators.planning.sharing import identity
from vernier.operators.planning.stages import Keep, Words, texts_among

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def arrange(
    planner: Planner,
    node: Node,
    scope: Scope,
    key: Words,
    val: Words,
    conditions: Sequence[Expr] = (),
) -> int:
    """The arrangement of `node` by words `key`, carrying words `val`, in the node's own scope.

    conditions: predicates that select the wanted rows; given only if the node has no other reader.
    """
    columns = names_of(node.schema, key)
    below = planner.build(node)
    if conditions:
        stages = [Keep(condition, node.schema) for condition in conditions]
        meaning = planner.hash("where", planner.meaning(node), [condition.key() for condition in conditions])
        below = chain(planner, below, stages, node.schema.width, planner.scope(node.scope), meaning, alone=True)
        planner.ops[below].texts = node.schema.text_words
    below, key, val = picked(planner, node, below, key, val)
    return arrange_words(planner, below, key, val, columns)


def arrange_words(planner: Planner, below: int, key: Words, val: Words, columns: Sequence[str] = ()) -> int:
    """The arrangement of operator `below` by words `key` of its rows, carrying words `val`. columns: the key's
    names."""
    base = planner.ops[below]
    if base.arranged_by(key, val):
        # A reduction's output is ordered by its key, so it only has to be kept in a trace.
        if isinstance(base, ReductionOp) and base.trace is None:
            keep(planner, base)
        return below
    memo = ("arrange", below, key, val)
    if memo not in planner.memo:
        print_ = arranged_print(planner, below, key, val)
        source = planner.ops[below]
        label = f"{_title(source)} by {', '.join(columns)}" if key else f"{_title(source)} (all)"
        scope_id = source.scope
        op = ArrangeOp(len(planner.ops), scope_id, len(key) + len(val), label, below, key, val, arranged_trace(print_))
        op.texts = texts_among((*key, *val), source.texts)
        planner.arrangements[op.trace] = ArrangementPlan(
            op.trace, label, len(key), len(val), planner.scopes[scope_id].depth
        )
        planner.memo[memo] = planner.add(op, print_)
    return planner.memo[memo]


def picked(planner: Planner, node: Node, below: int, key: Words, val: Words) -> tuple[int, Words, Words]:
    """The operator below all projections of plain columns on operator `below`, which supplies `node`, and the same
    words of its rows."""
    newest = True
    while (picks := planner.ops[below].picks) is not None:
        base = planner.ops[below]
        below, key, val = base.inputs[0], tuple(picks[w] for w in key), tuple(picks[w] for w in val)
        if newest and planner.uses[identity(node)] == 1:
            planner.drop(base)
        newest = False
    return below, key, val


def arranged_print(planner: Planner, below: int, key: Words, val: Words) -> str:
    """The fingerprint of the arrangement of an operator's rows."""
    return planner.hash("arrange", planner.prints[below], key, val)


def arranged_trace(print_: str) -> str:
    """The name of the trace of an arrangement with this fingerprint."""
    return f"arrange-{print_[:16]}"


def reduced_trace(print_: str) -> str:
    """The name of the trace of the output of a reduction with this fingerprint."""
    return f"reduce-{print_[:16]}"


def keep(planner: Planner, op: ReductionOp) -> None:
    """Keep the output of a reduction in a trace, arranged by its key."""
    op.trace = reduced_trace(planner.prints[op.id])
    if op.trace in planner.arrangements:
        raise TraceNamedTwice(trace=op.trace, operator=op.name)
    planner.arrangements[op.trace] = ArrangementPlan(
        op.trace, f"{_title(op)} output", op.key_width, op.width - op.key_width, planner.scopes[op.scope].depth
    )


def keep_history(planner: Planner, source: SourceNode, retain_ns: int) -> None:
    """Arrange a source with all its columns and keep that much history, for programs that join later."""
    key = tuple(range(source.schema.width))
    below = planner.build(source)
    print_ = planner.hash("history", arranged_print(planner, below, key, ()))
    name, trace = f"history of source {source.name}", f"source-{source.name}-{print_[:8]}"
    op = ArrangeOp(len(planner.ops), 0, source.schema.width, name, below, key, (), trace)
    op.texts = planner.ops[below].texts
    planner.arrangements[trace] = ArrangementPlan(trace, name, len(key), 0, 0, retain_ns)
    planner.add(op, print_)


def build_view(planner: Planner, name: str, view: ViewDecl) -> ViewPlan:
    """A named view: an arrangement by the view's key that retains history, and the operator that publishes its
    changes."""
    row = view.node.schema
    key = tuple(int(w) for w in row.index(view.key))
    val = tuple(w for w in range(row.width) if w not in key)
    below = planner.build(view.node)
    if planner.keep_views:
        print_, order = planner.hash("view", name, planner.prints[below], key), (*key, *val)
        trace = f"view-{name}-{print_[:8]}"
        op = ArrangeOp(len(planner.ops), 0, row.width, f"view {name}", below, key, val, trace)
        op.texts = texts_among(order, planner.ops[below].texts)
        retain_ns = planner.app.retain_ns
        planner.arrangements[trace] = ArrangementPlan(trace, f"view {name}", len(key), len(val), 0, retain_ns)
        below = planner.add(op, print_)
    else:
        trace, order, below = "", tuple(range(row.width)), _consolidated(planner, below)
        print_ = planner.hash("view", name, planner.prints[below], key)
    planner.add(ViewOp(len(planner.ops), 0, row.width, name, below, name, trace), print_)
    return ViewPlan(name, row, tuple(view.key), trace, tuple(order.index(w) for w in range(row.width)))


def _consolidated(planner: Planner, below: int) -> int:
    """The operator that emits the rows of operator `below` consolidated: itself if it does."""
    base, memo = planner.ops[below], ("consolidate", below)
    if base.consolidates:
        return below
    if memo not in planner.memo:
        op = ConsolidateOp(len(planner.ops), base.scope, base.width, "consolidate", below)
        op.texts = base.texts
        planner.memo[memo] = planner.add(op, planner.hash("consolidate", planner.prints[below]))
    return planner.memo[memo]


def _title(op: Op) -> str:
    """An operator's name, followed by its program line if the name says only what kind of operator it is."""
    plain = op.named_by_kind and op.line and not op.titled
    return f"{op.name} at {os.path.basename(op.line)}" if plain else op.name


def names_of(row: RowType, words: Words) -> list[str]:
    """The names of the columns that these words belong to, each once, in the order of the words."""
    return list(dict.fromkeys(f.name for w in words for f in row.fields if f.offset <= w < f.offset + f.words))
