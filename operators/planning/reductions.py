"""Plans of arrangements and of what reads one: reductions, and views."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operators.kernels.reducing import COUNT, MAX, MIN, PRESENT, SUM
from operators.language import logical
from operators.language.expr import Expr, col
from operators.language.positive import is_positive
from operators.language.schema import RowType
from operators.planning.arrangements import arrange
from operators.planning.plan import (
    ArrangementPlan,
    ReduceOp,
    Words,
)
from operators.planning.sharing import identity

if TYPE_CHECKING:
    from operators.planning.planner import Planner

_KINDS = {"count": COUNT, "sum": SUM, "min": MIN, "max": MAX}


def keep_output(
    planner: Planner, label: str, key: RowType, width: int, scope: int, print_: str, *, steady: bool = True
) -> str | None:
    """The trace for what a reduction of `width` words has said: None outside loops, where time is total and what it has
    said can be told from its input, unless it is not `steady`."""
    depth = planner.scopes[scope].depth
    if depth == 0 and steady:
        return None
    trace = f"reduce-{print_[:16]}"
    planner.arrangements[trace] = ArrangementPlan(trace, f"{label} output", key.width, width - key.width, depth, False)
    return trace


def reduce(
    planner: Planner,
    node: logical.Node,
    arranged: int,
    key: RowType,
    aggregations: tuple[Words, ...],
    name: str,
) -> int:
    """The reduction of an arrangement by `key`; its rows are the node's."""
    print_ = planner.hash("reduce", planner.prints[arranged], key.to_json(), aggregations)
    scope, width = planner.scope(node.scope), node.schema.width
    trace = keep_output(planner, name, key, width, scope, print_)
    op = ReduceOp(len(planner.ops), scope, width, name, input=arranged, key=key, trace=trace, aggregations=aggregations)
    return planner.add(op, print_)


def build_distinct(planner: Planner, node: logical.Distinct) -> int:
    """Each present row once: a reduction whose key is the whole row."""
    arranged = arrange(planner, node.input, node.scope, tuple(range(node.schema.width)), ())
    return reduce(planner, node, arranged, node.schema, (_row(PRESENT, limit=1),), "distinct")


def build_present(planner: Planner, node: logical.Present) -> int:
    """Each key of which a row is present. Without negative multiplicities the rows of a key need not be told apart;
    with them the arrangement is the one that a join by this key wants, too."""
    row = node.input.schema
    key = tuple(int(w) for w in row.index(node.keys))
    val = () if is_positive(node.input) else tuple(w for w in range(row.width) if w not in key)
    arranged = arrange(planner, node.input, node.scope, key, val)
    name = f"present {', '.join(node.keys)}"
    return reduce(planner, node, arranged, node.schema, (_row(PRESENT, limit=1),), name)


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
        word, words, flag = -1, 0, -1
        if agg.expr is not None:
            found = row.field(names[which])
            which += 1
            first = val.index(found.offset)
            flag = first if found.nullable else -1
            word, words = first + int(found.nullable), found.type.words
        out_flag = out if field.nullable else -1
        aggregations.append(_row(_KINDS[agg.kind], word, words, flag, out + int(field.nullable), out_flag))
        out += field.words
    arranged = arrange(planner, below, node.scope, key, val)
    return reduce(planner, node, arranged, row.take(node.keys), tuple(aggregations), f"group by {', '.join(node.keys)}")


def _row(
    kind: int, word: int = -1, words: int = 0, flag: int = -1, out: int = -1, out_flag: int = -1, limit: int = 0
) -> Words:
    """An aggregation as the kernel takes it."""
    return (kind, word, words, flag, out, out_flag, limit)


BUILDERS: dict[type[logical.Node], Callable[[Planner, Any], int]] = {
    logical.Distinct: build_distinct,
    logical.Present: build_present,
    logical.Aggregate: build_aggregate,
}
