"""GROUP BY: the keys and arguments become columns, an AggregateNode computes the aggregates, a projection the rest.

An aggregate over all rows has a row also where there are no rows: a constant row is left-joined with it. DISTINCT
aggregates other than count, min and max are computed over the distinct values of each group, in a branch of their own
that is joined with the others by the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from vernier.operators.language.collection.matching import Sides, once
from vernier.operators.language.expr.expression import Binary, Call, Case, Cast, Column, Expr, IsNull, Literal, Unary
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.logical import AggregateNode, JoinNode, ProjectNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.scalars import Float64, Int64
from vernier.operators.language.types.schema import EVERY_ROW
from vernier.operators.sql.expressions import nullable, unknown
from vernier.operators.sql.joining import steady_marks
from vernier.operators.sql.literals import literal
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation, fresh, one_row, picked
from vernier.operators.sql.sessions import Session
from vernier.operators.sql.trees import Tree

_INSENSITIVE = frozenset({"Min", "Max", "CollectSet"})
"""Aggregates that DISTINCT does not change."""


_LAST = "the last time of a session"
"""In place of the form of an aggregate that no query has."""


@dataclass(frozen=True)
class _Call:
    """An aggregate of the plan: its form, the name of the column that is just it, or none, and its function with
    translated arguments."""

    form: str
    name: str
    kind: str
    arguments: tuple[Expr, ...]
    where: Expr | None
    distinct: bool
    tree: Tree


def before_groups(tree: Tree) -> list[Tree]:
    """The expressions of a plan's Aggregate that are computed for each row: keys, and arguments of aggregates."""
    calls = (one for output in tree.trees("aggregateExpressions") for one in output.walk())
    return [*tree.trees("groupingExpressions"), *(one for one in calls if one.kind == "AggregateExpression")]


def aggregate(below: Relation, tree: Tree, session: Session | None = None) -> Relation:
    """The groups that a plan's Aggregate describes, which know their keys and aggregates; its output is computed of
    these. session: of which the groups are sessions."""
    groups, outputs = tree.trees("groupingExpressions"), tree.trees("aggregateExpressions")
    keys = [below.of(one) for one in groups]
    calls = _calls(below, outputs)
    # Catalyst has first() around EXISTS and IN beside aggregates, which have one value in each group.
    firsts = [one for one in calls if one.kind == "First" and one.tree.children[0].kind == "AttributeReference"]
    if firsts:
        steady = steady_marks(tree.one, {one.id for one in groups if one.kind == "AttributeReference"})
        single = {one.form for one in firsts if one.tree.children[0].id in steady}
        calls = [replace(one, kind="AnyValue") if one.form in single else one for one in calls]
    if session is not None:
        calls.append(_Call(_LAST, "", "Max", (Column(session.time),), None, False, tree))
    if not calls and groups:
        return _distinct(below, groups, keys)
    taken: set[str] = set()
    names: list[str] = []
    columns: list[tuple[str, Expr]] = []
    for one, key in zip(groups, keys, strict=True):
        same = [name for name, other in columns if other.key() == key.key()]
        # A computed key has a name of its own: a column of its name may be an argument.
        own = key.column or fresh(one.fields.get("name") or "key", {*taken, *below.row.names})
        name = same[0] if same else own
        taken.add(name)
        names.append(name)
        if not same:
            columns.append((name, key))
    grouped, results = _grouped(below, columns, calls, taken)
    if session is not None:
        whole = session.struct(results.pop(_LAST))
        shown = (one for one in grouped.schema.names if one in {*names, *results.values()})
        grouped = ProjectNode(grouped, tuple((one, whole if one == session.start else Column(one)) for one in shown))
    ids = {one.id: name for one, name in zip(groups, names, strict=True) if one.kind == "AttributeReference"}
    known = {one.form: name for one, name in zip(groups, names, strict=True)} | results
    return Relation(grouped, _numbered(known) | ids, known)


def _numbered(known: Mapping[str, str]) -> dict[int, str]:
    """Numbers that no attribute has for the columns of expressions, so that a join keeps them."""
    return {-at: name for at, name in enumerate(known.values(), 1)}


def _distinct(below: Relation, groups: Sequence[Tree], keys: Sequence[Expr]) -> Relation:
    """SELECT DISTINCT: each combination of the keys that is there, once."""
    made = below.project(
        [(-at, one.fields.get("name") or "key", key) for at, (one, key) in enumerate(zip(groups, keys), 1)]
    )
    known = {one.form: made.ids[-at] for at, one in enumerate(groups, 1)}
    ids = {one.id: made.ids[-at] for at, one in enumerate(groups, 1) if one.kind == "AttributeReference"}
    return Relation(once(made.node), {**made.ids, **ids}, known)


def _calls(below: Relation, outputs: Sequence[Tree]) -> list[_Call]:
    found: dict[str, _Call] = {}
    for output in outputs:
        for one in output.walk():
            if one.kind == "AggregateExpression" and one.form not in found:
                function = one.children[0]
                where = below.of(one.children[1]) if len(one.children) > 1 else None
                arguments = tuple(below.of(child) for child in function.children)
                distinct = bool(one.fields.get("isDistinct")) and function.kind not in _INSENSITIVE
                name = output.name if output.kind == "Alias" and output.one is one else ""
                found[one.form] = _Call(one.form, name, function.kind, arguments, where, distinct, function)
    return list(found.values())


def _grouped(
    below: Relation, keys: list[tuple[str, Expr]], calls: list[_Call], taken: set[str], *, always: bool = True
) -> tuple[Node, dict[str, str]]:
    """The groups with all aggregates, and the column of each aggregate by its form. always: whether the group that is
    all rows is there also without rows."""
    if not keys:
        keys = [(EVERY_ROW, Literal(0, Int64()))]
    everything = keys[0][0] == EVERY_ROW
    branches: list[tuple[Node, list[_Call]]] = []
    plain = [one for one in calls if not _apart(one)]
    results: dict[str, str] = {}
    for at, one in enumerate(calls):
        results[one.form] = fresh(one.name or f"agg {at}", {*taken, *results.values()})
    if plain or not calls:
        branches.append((below.node, plain))
    for one in calls:
        if _apart(one):
            node = _values(below, keys, one)
            branches.append((node, [one]))
    made: list[Node] = []
    for node, members in branches:
        own: list[tuple[str, Expr]] = keys if node is below.node else [(name, Column(name)) for name, _ in keys]
        made.append(_branch(node, own, members, results, node is not below.node))
    grouped = made[0]
    for other in made[1:]:
        grouped = beside(grouped, other, tuple(name for name, _ in keys))
    if everything and always:
        grouped = _always(grouped, calls, results)
    return grouped, results


def _apart(call: _Call) -> bool:
    """Whether an aggregate needs a branch of its own: over distinct values."""
    return call.distinct and call.kind != "Count"


def _values(below: Relation, keys: list[tuple[str, Expr]], call: _Call) -> Node:
    """The distinct values of the argument, by key; null where the filter is not true."""
    value = call.arguments[0] if call.where is None else Case(((call.where, call.arguments[0]),))
    return once(ProjectNode(below.node, (*keys, (_value_name(keys), value))))


def _value_name(keys: list[tuple[str, Expr]]) -> str:
    """The column of distinct values beside these keys."""
    return fresh("value", [name for name, _ in keys])


def _branch(
    node: Node, keys: list[tuple[str, Expr]], calls: list[_Call], results: dict[str, str], distinct: bool
) -> Node:
    """One AggregateNode over the columns that it needs."""
    aggregations: list[tuple[str, Aggregation]] = []
    finish: list[tuple[str, Expr]] = []
    for call in calls:
        given = (Column(_value_name(keys)),) if distinct else call.arguments
        where = None if distinct else call.where
        parts, result = _FUNCTIONS.get(call.kind, _unknown)(call, given, where)
        labels = {
            f"part {i}": f"{results[call.form]}.{i}" if len(parts) > 1 else results[call.form]
            for i in range(len(parts))
        }
        aggregations += [(labels[f"part {i}"], part) for i, part in enumerate(parts)]
        finish.append((results[call.form], result(*(Column(labels[f"part {i}"]) for i in range(len(parts))))))
    names = {name for name, _ in keys}
    used = {name for _, one in aggregations for expr in one.args for name in expr.columns()} - names
    inputs = [*keys, *((name, Column(name)) for name in sorted(used))]
    grouped: Node = AggregateNode(picked(node, inputs), tuple(name for name, _ in keys), tuple(aggregations))
    shown = [*((name, Column(name)) for name, _ in keys), *finish]
    return picked(grouped, shown)


def beside(one: Node, two: Node, keys: tuple[str, ...]) -> Node:
    """The columns of both for each key; nulls are equal."""
    names = {name: one.schema.field(name).nullable for name in keys}
    other = two.schema
    if any(other.field(name).nullable != flag for name, flag in names.items()):
        two = ProjectNode(
            two, tuple((f.name, nullable(Column(f.name)) if f.name in keys else Column(f.name)) for f in other.fields)
        )
    return JoinNode(one, two, keys, keys, null_safe=True)


def _always(grouped: Node, calls: list[_Call], results: dict[str, str]) -> Node:
    """The aggregate over all rows with its row for no rows: counts are 0, all others null."""
    constant = one_row()
    values = [name for name in grouped.schema.names if name != EVERY_ROW]
    key = f"{EVERY_ROW} there"
    right = ProjectNode(grouped, ((key, Column(EVERY_ROW)), *((name, Column(name)) for name in values)))
    joined = Sides(constant, right, (EVERY_ROW,), (key,)).joined("left")
    counts = {results[one.form] for one in calls if one.kind == "Count"}
    lists = {results[one.form] for one in calls if one.kind in ("CollectList", "CollectSet")}
    if lists:
        raise refuse("collect_list() over all rows needs a group; GROUP BY a column", "collect_list", "collect_set")
    zero = Literal(0, Int64())
    shown = [(name, Call("coalesce", (Column(name), zero)) if name in counts else Column(name)) for name in values]
    return ProjectNode(joined, ((EVERY_ROW, Column(EVERY_ROW)), *shown))


# --- functions -------------------------------------------------------------------------------------------------------

_Made = tuple[list[Aggregation], Callable[..., Expr]]


def _unknown(call: _Call, given: tuple[Expr, ...], where: Expr | None) -> _Made:
    raise unknown(call.tree)


def _same(part: Expr) -> Expr:
    return part


def _only(value: Expr, where: Expr | None) -> Expr:
    """The value where the condition is true, else null, which aggregates ignore."""
    return value if where is None else Case(((where, value),))


def _simple(kind: str) -> Callable[[_Call, tuple[Expr, ...], Expr | None], _Made]:
    def of(call: _Call, given: tuple[Expr, ...], where: Expr | None) -> _Made:
        return [Aggregation(kind, _only(given[0], where))], _same

    return of


def _count(call: _Call, given: tuple[Expr, ...], where: Expr | None) -> _Made:
    values = [one for one in given if not (isinstance(one, Literal) and one.value is not None)]
    if call.distinct:
        columns = [_only(one, where) for one in given]
        return [Aggregation("count_distinct", columns[0], tuple(columns[1:]))], _same
    if not values and where is None:
        return [Aggregation("count")], _same
    if len(values) == 1:
        return [Aggregation("count", _only(values[0], where))], _same
    test = where
    for one in values:
        there: Expr = Unary("~", IsNull(one))
        test = there if test is None else Binary("&", test, there)
    return [Aggregation("count", _only(Literal(1, Int64()), test))], _same


def _by(kind: str) -> Callable[[_Call, tuple[Expr, ...], Expr | None], _Made]:
    def of(call: _Call, given: tuple[Expr, ...], where: Expr | None) -> _Made:
        return [Aggregation(kind, given[0], (_only(given[1], where),))], _same

    return of


def _spread(kind: str, root: bool) -> Callable[[_Call, tuple[Expr, ...], Expr | None], _Made]:
    """Variances, and their square roots."""

    def of(call: _Call, given: tuple[Expr, ...], where: Expr | None) -> _Made:
        parts = [Aggregation(kind, _only(Cast(given[0], Float64()), where))]
        return parts, (lambda part: Call("sqrt", (part,))) if root else _same

    return of


def _quantile(call: _Call, given: tuple[Expr, ...], where: Expr | None) -> _Made:
    share = given[1]
    while isinstance(share, Cast):
        share = share.part
    if not isinstance(share, Literal) or call.tree.fields.get("reverse"):
        raise refuse("percentile_disc() takes a constant share and ascending order", "percentile_disc")
    return [Aggregation("quantile", _only(given[0], where), option=Fraction(str(share.value)))], _same


def _pivot(call: _Call, given: tuple[Expr, ...], where: Expr | None) -> _Made:
    """PIVOT's list: for each value of FOR, the aggregate of the one row that has it (Spark aggregated by it before)."""
    values, kind = call.tree.fields.get("pivotColumnValues"), call.tree.children[0].fields["dataType"]
    if not isinstance(values, list) or isinstance(kind, dict):
        raise refuse("PIVOT takes one column after FOR; join several by concat(a, '-', b)", "pivot")
    tests = (Call("eq_null_safe", (given[0], literal(one, kind))) for one in values)
    parts = [Aggregation("min", Case(((test, given[1]),))) for test in tests]
    return parts, lambda *results: Call("array", results)


_FUNCTIONS: dict[str, Callable[[_Call, tuple[Expr, ...], Expr | None], _Made]] = {
    "Count": _count,
    "Sum": _simple("sum"),
    "Average": _simple("avg"),
    "Min": _simple("min"),
    "Max": _simple("max"),
    "AnyValue": _simple("min"),
    "Mode": _simple("mode"),
    "CollectList": _simple("collect_list"),
    "CollectSet": _simple("collect_set"),
    "MinBy": _by("arg_min"),
    "MaxBy": _by("arg_max"),
    "VariancePop": _spread("var_pop", False),
    "VarianceSamp": _spread("var_samp", False),
    "StddevPop": _spread("var_pop", True),
    "StddevSamp": _spread("var_samp", True),
    "PercentileDisc": _quantile,
    "PivotFirst": _pivot,
}


def summand(rows: Relation, tree: Tree) -> tuple[str, Expr | None]:
    """The kind of an aggregate, and what it adds up or counts: null where a row does not count, None for all rows."""
    (call,) = _calls(rows, [tree])
    if call.distinct:
        return f"{call.kind} DISTINCT", None
    values = [one for one in call.arguments if not (isinstance(one, Literal) and one.value is not None)]
    if call.kind == "Count" and not values:
        return call.kind, None if call.where is None else Case(((call.where, Literal(1, Int64())),))
    if len(call.arguments) > 1:
        return f"{call.kind} of several", None
    return call.kind, _only(call.arguments[0], call.where)


def of_groups(
    rows: Relation, tree: Tree, keys: Sequence[str], end: tuple[str, bool] | None = None
) -> tuple[Node, str, Expr | None]:
    """The groups of these key columns with an aggregate, the name of its column, and its value for no rows: None for
    null. end: for first_value and last_value, the column with the place of each row, and whether it is the last."""
    (call,) = _calls(rows, [tree])
    if end is not None:
        place: Expr = Column(end[0])
        if call.tree.fields.get("ignoreNulls"):
            place = Case(((Unary("~", IsNull(call.arguments[0])), place),))
        call = replace(call, kind="MaxBy" if end[1] else "MinBy", arguments=(call.arguments[0], place))
    pairs: list[tuple[str, Expr]] = [(one, Column(one)) for one in keys]
    grouped, results = _grouped(rows, pairs, [call], set(rows.row.names))
    return grouped, results[call.form], Literal(0, Int64()) if call.kind == "Count" else None


def over_partition(rows: Relation, tree: Tree, name: str, within: Sequence[str]) -> Relation:
    """The rows with an aggregate over all rows of their partition, in the column `name`."""
    (call,) = _calls(rows, [tree])
    keys: list[tuple[str, Expr]] = [(one, Column(one)) for one in within]
    lists = call.kind in ("CollectList", "CollectSet")  # they have no value for no rows, and each row here has rows
    grouped, results = _grouped(rows, keys, [call], set(rows.row.names), always=not lists)
    result = results[call.form]
    if not keys:
        kept: list[tuple[str, Expr]] = [
            (EVERY_ROW, Literal(0, Int64())),
            *((one, Column(one)) for one in rows.row.names if one != EVERY_ROW),
        ]
        rows = Relation(ProjectNode(rows.node, tuple(kept)), rows.ids)
        within = [EVERY_ROW]
    other = ProjectNode(grouped, (*((one, Column(one)) for one in within), (name, Column(result))))
    found = beside(rows.node, other, tuple(within))
    names = [*(one for one in rows.row.names), name]
    return Relation(ProjectNode(found, tuple((one, Column(one)) for one in names)), rows.ids)
