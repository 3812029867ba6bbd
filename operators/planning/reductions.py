"""Plans of arrangements and of what reads one: reductions, and views."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vernier.operators.group_functions.aggregates import Aggregates
from vernier.operators.group_functions.aggregations import (
    INCREMENTAL,
    Item,
    compared_texts,
    copies,
    follows,
    kernel_rows,
    present,
)
from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.language.collection.multiplicities import is_positive
from vernier.operators.language.collection.reductions import Copies, Reduce, Threshold
from vernier.operators.language.expr.expression import Expr, col
from vernier.operators.language.plan import logical
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.arrangements import arrange, keep
from vernier.operators.planning.plan import (
    ArrangementPlan,
    FollowOp,
    KeyedOp,
    ReduceOp,
    WaveOp,
    Words,
)
from vernier.operators.planning.sharing import identity

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def _add(planner: Planner, op: KeyedOp, print_: str) -> int:
    """A reduction, once for all who mean the same. One that cannot tell from its input what it has said keeps that."""
    memo = ("reduction", op.scope, print_)
    if memo not in planner.memo:
        planner.memo[memo] = planner.add(op, print_)
        if not op.total:
            keep(planner, op)
        if isinstance(op, FollowOp) and op.state is not None:
            shape = ArrangementPlan(op.state, f"{op.name} state", op.key_width, 1, 0, False)
            planner.arrangements[op.state] = shape
    return planner.memo[memo]


def reduce(
    planner: Planner,
    node: logical.Node,
    arranged: int,
    key: RowType,
    aggregations: tuple[Words, ...],
    name: str,
    compared: Words = (),
) -> int:
    """The reduction of an arrangement by `key`; its rows are the node's. compared: see ReduceOp."""
    print_ = planner.hash("reduce", planner.prints[arranged], key.to_json(), aggregations)
    scope, width = planner.scope(node.scope), node.schema.width
    total = planner.scopes[scope].depth == 0
    op: KeyedOp
    if total and follows(aggregations):
        # A few numbers a key instead of a look at all of its rows; none where a key is a row.
        state = f"lanes-{print_[:16]}" if planner.ops[arranged].width > key.width else None
        op = FollowOp(
            len(planner.ops), scope, width, name,
            input=arranged, key=key, total=total, trace=None, aggregations=aggregations, state=state,
        )  # fmt: skip
    else:
        op = ReduceOp(
            len(planner.ops), scope, width, name,
            input=arranged, key=key, total=total, trace=None, aggregations=aggregations, compared=compared,
        )  # fmt: skip
    return _add(planner, op, print_)


def build_distinct(planner: Planner, node: logical.Distinct) -> int:
    """Each present row once: a reduction whose key is the whole row."""
    arranged = arrange(planner, node.input, node.scope, tuple(range(node.schema.width)), ())
    return reduce(planner, node, arranged, node.schema, (present(),), "distinct")


def build_threshold(planner: Planner, node: Threshold) -> int:
    """Each row that has enough copies, once."""
    arranged = arrange(planner, node.input, node.scope, tuple(range(node.schema.width)), ())
    return reduce(planner, node, arranged, node.schema, (present(node.copies),), f"threshold {node.copies}")


def build_copies(planner: Planner, node: Copies) -> int:
    """The rows that are there more often than not."""
    arranged = arrange(planner, node.input, node.scope, tuple(range(node.schema.width)), ())
    return reduce(planner, node, arranged, node.schema, (copies(),), "present copies")


def build_present(planner: Planner, node: logical.Present) -> int:
    """Each key of which a row is present. Without negative multiplicities the rows of a key need not be told apart;
    with them the arrangement is the one that a join by this key wants, too."""
    row = node.input.schema
    key = tuple(int(w) for w in row.index(node.keys))
    val = () if is_positive(node.input) else tuple(w for w in range(row.width) if w not in key)
    arranged = arrange(planner, node.input, node.scope, key, val)
    name = f"present {', '.join(node.keys)}"
    return reduce(planner, node, arranged, node.schema, (present(),), name)


def build_aggregate(planner: Planner, node: logical.Aggregate) -> int:
    """group_by().agg(): the key's columns and those that the aggregates look at. Aggregates that do not follow single
    changes look at whole groups, and then all of the node's do."""
    below, row, columns = _arguments(planner, node)
    used = [name for part in columns for name in part]
    # A group exists while any of its rows does. Without negative multiplicities the columns looked at tell that.
    rest = [] if is_positive(below) else [name for name in row.names if name not in node.keys]
    key, val = row.take(node.keys), row.take(list(dict.fromkeys([*rest, *used])))
    items = []
    for (name, agg), part in zip(node.aggs, columns, strict=True):
        field = node.schema.field(name)
        items.append(Item(name, agg.kind, part, field.type, field.nullable, agg.option))
    words = tuple(int(w) for w in row.index(key.names)), tuple(int(w) for w in row.index(val.names))
    arranged = arrange(planner, below, node.scope, *words)
    label = f"group by {', '.join(node.keys)}"
    if all(item.kind in INCREMENTAL for item in items):
        return reduce(planner, node, arranged, key, kernel_rows(items, val), label, compared_texts(items, val))
    return reduce_groups(planner, node, arranged, key, val, Aggregates(tuple(items)), label)


def _arguments(planner: Planner, node: logical.Aggregate) -> tuple[logical.Node, RowType, list[tuple[str, ...]]]:
    """The input with all arguments of the aggregates as columns, its row type, and each aggregate's columns."""
    row = node.input.schema
    args = [agg.args for _, agg in node.aggs]
    if all(expr.column is not None for part in args for expr in part):
        return node.input, row, [tuple(str(expr.column) for expr in part) for part in args]
    # Computed arguments become columns of a projection first.
    kept = node.keys if is_positive(node.input) else row.names
    wanted: dict[str, Expr] = {name: col(name) for name in kept}
    columns = []
    for part in args:
        names = []
        for expr in part:
            name = expr.column or f"argument {len(wanted)}"
            wanted[name] = expr
            names.append(name)
        columns.append(tuple(names))
    below = logical.Project(input=node.input, exprs=tuple(wanted.items()), where=node.where)
    planner.uses[identity(below)] = 1
    return below, below.schema, columns


def reduce_groups(
    planner: Planner, node: logical.Node, arranged: int, key: RowType, val: RowType, spec: LogicSpec, name: str
) -> int:
    """A logic on an arrangement of columns `val` by `key`. Its output is kept inside loops, and where the logic must
    not be asked twice."""
    print_ = planner.hash("wave", planner.prints[arranged], key.to_json(), val.to_json(), spec.name, spec.key())
    scope, width = planner.scope(node.scope), node.schema.width
    total = spec.steady and planner.scopes[scope].depth == 0
    op = WaveOp(
        len(planner.ops), scope, width, name, input=arranged, key=key, total=total, trace=None, val=val, spec=spec
    )
    return _add(planner, op, print_)


def build_reduce(planner: Planner, node: Reduce) -> int:
    """An arrangement by the key, and the logic on it."""
    row = node.input.schema
    key, val = node.key_row, node.val_row
    words = tuple(int(w) for w in row.index(key.names)), tuple(int(w) for w in row.index(val.names))
    arranged = arrange(planner, node.input, node.scope, *words)
    return reduce_groups(planner, node, arranged, key, val, node.spec, node.spec.title)


BUILDERS: dict[type[logical.Node], Callable[[Planner, Any], int]] = {
    logical.Distinct: build_distinct,
    logical.Present: build_present,
    logical.Aggregate: build_aggregate,
    Threshold: build_threshold,
    Copies: build_copies,
    Reduce: build_reduce,
}
