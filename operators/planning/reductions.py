"""Plans of arrangements and of what reads one: reductions, and views."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operators.kernels.reducing import COUNT, DISTINCT, MAX, MIN, SUM
from operators.language import logical
from operators.language.expr import Expr, col
from operators.language.positive import is_positive
from operators.planning.arrangements import arrange
from operators.planning.plan import (
    ArrangementPlan,
    ReduceOp,
)
from operators.planning.sharing import identity

if TYPE_CHECKING:
    from operators.planning.planner import Planner

_KINDS = {"count": COUNT, "sum": SUM, "min": MIN, "max": MAX}


def reduce(
    planner: Planner,
    node: logical.Node,
    arranged: int,
    key_width: int,
    aggregations: tuple[tuple[int, int, int, int, int], ...],
    out_width: int,
    name: str,
) -> int:
    """The reduction of an arrangement; its output is arranged by the same key."""
    print_ = planner.hash("reduce", planner.prints[arranged], key_width, aggregations)
    scope = planner.scope(node.scope)
    op = ReduceOp(
        len(planner.ops),
        scope,
        key_width + out_width,
        name,
        arranged,
        key_width,
        aggregations,
        f"reduce-{print_[:16]}",
    )
    planner.arrangements[op.trace] = ArrangementPlan(
        op.trace, f"{name} output", key_width, out_width, planner.scopes[scope].depth, False
    )
    return planner.add(op, print_)


def build_distinct(planner: Planner, node: logical.Distinct) -> int:
    """Each present row once: a reduction whose key is the whole row."""
    width = node.schema.width
    arranged = arrange(planner, node.input, node.scope, tuple(range(width)), ())
    return reduce(planner, node, arranged, width, ((DISTINCT, -1, -1, -1, -1),), 0, "distinct")


def build_present(planner: Planner, node: logical.Present) -> int:
    """Each key of which a row is present. Without negative multiplicities the rows of a key need not be told apart;
    with them the arrangement is the one that a join by this key wants, too."""
    row = node.input.schema
    key = tuple(int(w) for w in row.index(node.keys))
    val = () if is_positive(node.input) else tuple(w for w in range(row.width) if w not in key)
    arranged = arrange(planner, node.input, node.scope, key, val)
    name = f"present {', '.join(node.keys)}"
    return reduce(planner, node, arranged, len(key), ((DISTINCT, -1, -1, -1, -1),), 0, name)


def build_aggregate(planner: Planner, node: logical.Aggregate) -> int:
    """group_by().agg(): the key words and the distinct words that the aggregates look at."""
    row = node.input.schema
    exprs = [agg.expr for _, agg in node.aggs if agg.expr is not None]
    below: logical.Node = node.input
    columns = [expr.column for expr in exprs]
    names: dict[int, str] = {i: name for i, name in enumerate(columns) if name is not None}
    if len(names) < len(exprs):
        # Computed arguments become columns of a projection first.
        kept = node.keys if is_positive(below) else row.names
        wanted: list[tuple[str, Expr]] = [(name, col(name)) for name in kept]
        for i, expr in enumerate(exprs):
            names[i] = f"argument {i}"
            wanted.append((names[i], expr))
        below = logical.Project(input=node.input, exprs=tuple(wanted), where=node.where)
        row = below.schema
        planner.uses[identity(below)] = 1
    key = tuple(int(w) for w in row.index(node.keys))
    used = [int(w) for name in names.values() for w in row.index([name])]
    # A group exists while any of its rows does. Without negative multiplicities the words looked at tell that.
    rest = [] if is_positive(below) else [w for w in range(row.width) if w not in key]
    val = tuple(dict.fromkeys([*rest, *used]))
    aggregations = []
    out = 0
    which = 0
    for name, agg in node.aggs:
        field = node.schema.field(name)
        word, flag = -1, -1
        if agg.expr is not None:
            column = names[which]
            which += 1
            nullable = row.field(column).nullable
            first = val.index(row.field(column).offset)
            flag = first if nullable else -1
            word = first + int(nullable)
        out_flag = out if field.nullable else -1
        aggregations.append((_KINDS[agg.kind], word, flag, out + int(field.nullable), out_flag))
        out += field.words
    arranged = arrange(planner, below, node.scope, key, val)
    label = f"group by {', '.join(node.keys)}"
    return reduce(planner, node, arranged, len(key), tuple(aggregations), out, label)


BUILDERS: dict[type[logical.Node], Callable[[Planner, Any], int]] = {
    logical.Distinct: build_distinct,
    logical.Present: build_present,
    logical.Aggregate: build_aggregate,
}
