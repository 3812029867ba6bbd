"""Catalyst's plan as a collection: each node of the plan becomes a few nodes of ours (the way of the data in SQL).

The plan comes as data, so nothing here needs Java. `leaves` are the collections that the query names. Order and
multiplicities are SQL's: a collection is a bag, ORDER BY without LIMIT means nothing to it, and LIMIT without ORDER BY
takes the first rows in the order of all columns, so that answers never depend on arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.collection.joins import except_all, intersect
from vernier.operators.language.collection.matching import once
from vernier.operators.language.collection.rows import conform
from vernier.operators.language.expr.expression import Binary, Call, Cast, Column, Expr, IsNull, Literal
from vernier.operators.language.expr.order import Order
from vernier.operators.language.plan.constants import ConstantNode
from vernier.operators.language.plan.explode import Explode
from vernier.operators.language.plan.linear_nodes import ExpandNode
from vernier.operators.language.plan.logical import ProjectNode, UnionNode
from vernier.operators.language.types.scalars import Bool, Int64
from vernier.operators.language.types.schema import RowType
from vernier.operators.sql.aggregating import aggregate, before_groups
from vernier.operators.sql.expressions import converted, unknown
from vernier.operators.sql.joining import conjuncts, crossed, join
from vernier.operators.sql.literals import kind_of, python_value
from vernier.operators.sql.recursion import loop, reference
from vernier.operators.sql.refusals import INSTEAD, refuse
from vernier.operators.sql.relations import Relation, fresh, one_row, picked, usable
from vernier.operators.sql.sessions import in_sessions
from vernier.operators.sql.single_rows import Keys, always_one, key_of, need_single, with_keys
from vernier.operators.sql.temporal import during, is_temporal
from vernier.operators.sql.trees import Tree, is_row_number, tree_of, with_calls
from vernier.operators.sql.windows import most_of_partitions, window

Outputs = Sequence[Mapping[str, Any]]


class Translation:
    """One query. leaves: the collections that it names, in lower case, and their keys; loops: the variables of its
    WITH RECURSIVE; key: columns of the result in which no two rows agree, if they are known, and key_relies the leaves
    on whose keys that depends; relied: the leaves on whose keys the rows depend."""

    def __init__(self, leaves: Mapping[str, Collection], keys: Keys) -> None:
        self.leaves, self._keys = leaves, keys
        self.loops: dict[int, Relation] = {}
        self.key: tuple[str, ...] | None = None
        self.key_relies: frozenset[str] = frozenset()
        self.relied: set[str] = set()

    def collection(self, plan: Any, output: Outputs, names: Sequence[str] = ()) -> Collection:
        """The collection of a plan, with these columns: {"name", "type", "nullable"} each. names: other names."""
        tree = tree_of(with_keys(with_calls(plan), self._keys))
        found = self.relation(tree)
        unique, self.key_relies = key_of(tree)
        if unique is not None and unique <= set(found.ids):
            places = [at for at, number in enumerate(found.ids) if number in unique]
            self.key = tuple(names[at] if names else str(output[at]["name"]) for at in places)
        return Collection(shown(found, output, names))

    def relation(self, tree: Tree) -> Relation:
        """The relation of a node of the plan. Raises Refused."""
        build = _NODES.get(tree.kind)
        if build is None:
            raise unknown(tree)
        return build(self, tree)

    def with_subqueries(self, below: Relation, trees: Iterable[Tree]) -> Relation:
        """The relation with a column for each scalar subquery in these expressions, which it knows then."""
        for tree in trees:
            for one in tree.unknown(below.known):
                if one.kind == "ScalarSubquery" and one.form not in below.known:
                    self.relied |= need_single(one.tree("plan"))
                    value = self.relation(one.tree("plan"))
                    (number,) = value.ids
                    value = value.apart(below)
                    single = always_one(one.tree("plan"))
                    known = {**below.known, one.form: value.ids[number]}
                    below = crossed(below, value, "inner" if single else "left")
                    below = replace(below, known=known)
                elif one.kind in ("Exists", "InSubquery", "ListQuery", "LateralSubquery"):
                    raise refuse("this subquery cannot be turned into a join; write the join", "exists", "in", "select")
        return below


def shown(found: Relation, output: Outputs, names: Sequence[str] = ()) -> Any:
    """The node with just the columns of the output, in their types and under their names."""
    pairs: list[tuple[str, Expr]] = []
    for at, (one, column) in enumerate(zip(output, found.columns(), strict=True)):
        name = names[at] if names else str(one["name"])
        expr = converted(found.scope, Column(column), kind_of(one["type"]))
        pairs.append((name, expr))
    return picked(found.node, pairs)


def _leaf(translation: Translation, tree: Tree) -> Relation:
    attributes = tree.trees("output")
    leaf = attributes[0].name.split(".")[0]
    node = translation.leaves[leaf.lower()].node
    return Relation(node, {one.id: one.name.split(".", 1)[1] for one in attributes})


def _project(translation: Translation, tree: Tree) -> Relation:
    outputs = tree.trees("projectList")
    below = translation.with_subqueries(translation.relation(tree.one), outputs)
    return below.project([(one.id, one.name, below.of(one)) for one in outputs])


def _filter(translation: Translation, tree: Tree) -> Relation:
    tests = list(conjuncts(tree.tree("condition")))
    most = most_of_partitions(tree.one, tests) if tree.one.kind == "Window" else None
    below = translation.relation(tree.one) if most is None else _window(translation, tree.one, most)
    ids = below.ids
    below = translation.with_subqueries(below, tests)
    times = [test for test in tests if is_temporal(test)]
    found = below.filter(*(below.of(test) for test in tests if not is_temporal(test)))
    found = during(found, times)
    return found if not found.known else found.project([(n, column, Column(column)) for n, column in ids.items()])


def _join(translation: Translation, tree: Tree) -> Relation:
    left, right = map(translation.relation, tree.children)
    return join(left, right, tree, translation.relied)


def _aggregate(translation: Translation, tree: Tree) -> Relation:
    below = translation.with_subqueries(translation.relation(tree.one), before_groups(tree))
    below, session = in_sessions(below, tree)
    outputs = tree.trees("aggregateExpressions")
    grouped = translation.with_subqueries(aggregate(below, tree, session), outputs)
    return grouped.project([(one.id, one.name, grouped.of(one)) for one in outputs])


def _same(translation: Translation, tree: Tree) -> Relation:
    return translation.relation(tree.one)


def _distinct(translation: Translation, tree: Tree) -> Relation:
    below = translation.relation(tree.one)
    made = below.project([(n, column, Column(column)) for n, column in below.ids.items()])
    return Relation(once(made.node), made.ids)


def _positional(relations: Sequence[Relation], numbers: Sequence[int], names: Sequence[str]) -> list[Relation]:
    """Relations with the same columns, by position: for set operations."""
    columns: list[str] = []
    for name in names:
        columns.append(fresh(name, columns))
    kinds = []
    for at in range(len(columns)):
        fields = [one.row.field(one.columns()[at]) for one in relations]
        kinds.append((fields[0].type, any(one.nullable for one in fields)))
    target = RowType((name, *kind) for name, kind in zip(columns, kinds, strict=True))
    made = []
    for one in relations:
        pairs = []
        for column, own, (kind, _) in zip(columns, one.columns(), kinds, strict=True):
            pairs.append((column, converted(one.scope, Column(own), kind)))
        node = conform(picked(one.node, pairs), target, "the union")
        made.append(Relation(node, dict(zip(numbers, columns, strict=True))))
    return made


def _united(translation: Translation, tree: Tree) -> list[Relation]:
    relations = [translation.relation(child) for child in tree.children]
    numbers = list(relations[0].ids)
    if not numbers:  # nothing but the number of rows is read
        return [one.project(()) for one in relations]
    return _positional(relations, numbers, relations[0].columns())


def _union(translation: Translation, tree: Tree) -> Relation:
    parts = _united(translation, tree)
    return Relation(UnionNode(tuple(one.node for one in parts)), parts[0].ids)


def _except(translation: Translation, tree: Tree) -> Relation:
    one, two = _united(translation, tree)
    left = Collection(one.node if tree.fields.get("isAll") else once(one.node))
    right = Collection(two.node if tree.fields.get("isAll") else once(two.node))
    return Relation(except_all(left, right).node, one.ids)


def _intersect(translation: Translation, tree: Tree) -> Relation:
    one, two = _united(translation, tree)
    if not tree.fields.get("isAll"):
        return Relation(intersect(Collection(one.node), Collection(two.node)).node, one.ids)
    left, right = Collection(one.node), Collection(two.node)
    # min(a, b) = a - max(0, a - b) copies
    return Relation(except_all(left, except_all(left, right)).node, one.ids)


def _expand(translation: Translation, tree: Tree) -> Relation:
    below = translation.relation(tree.one)
    outputs = tree.trees("output")
    parts = []
    for projection in tree.fields["projections"]:
        values = [below.of(tree_of(one)) for one in projection]
        names: list[str] = []
        pairs = []
        for at, (one, value) in enumerate(zip(outputs, values, strict=True)):
            names.append(fresh(one.name, names))
            pairs.append((names[at], value))
        parts.append(Relation(ProjectNode(below.node, tuple(pairs)), {one.id: n for one, n in zip(outputs, names)}))
    made = _positional(parts, [one.id for one in outputs], [one.name for one in outputs])
    return Relation(UnionNode(tuple(one.node for one in made)), made[0].ids)


def _generate(translation: Translation, tree: Tree) -> Relation:
    below = translation.relation(tree.one)
    generator, outputs = tree.tree("generator"), tree.trees("generatorOutput")
    if generator.kind not in ("Explode", "PosExplode"):
        raise unknown(generator)
    value = below.of(generator.children[0])
    below, (column,) = below.with_columns([("list", value)])
    if column in below.ids.values():
        below, (column,) = below.with_columns([("list", Call("coalesce", (value, value)))])
    taken = set(below.row.names)
    name = fresh(usable(outputs[-1].name), taken)
    index = fresh(usable(outputs[0].name), {*taken, name}) if generator.kind == "PosExplode" else None
    node = ExpandNode(below.node, Explode(column, name, index))
    added = {outputs[-1].id: name} if index is None else {outputs[0].id: index, outputs[-1].id: name}
    ids = {**below.ids, **added}
    # Spark drops by places, which may be those of columns that it dropped before.
    unread = set(tree.fields.get("unrequiredChildIndex") or ())
    dropped = [number for at, number in enumerate(below.ids) if at in unread]
    ids = {number: name for number, name in ids.items() if number not in dropped}
    found = Relation(node, ids).project([(n, c, Column(c)) for n, c in ids.items()])
    return _with_empty(found, below, column) if tree.fields.get("outer") else found


def _with_empty(found: Relation, below: Relation, column: str) -> Relation:
    """The rows of an explode, and once each row whose list is empty or null, with nulls for what explode adds."""
    count = Call("coalesce", (Call("length", (Column(column),)), Literal(0, Int64())))
    rows = below.filter(Binary("==", count, Literal(0, Int64())))
    nulls = {n: Cast(Literal(None, None), found.row.field(c).type) for n, c in found.ids.items() if n not in below.ids}
    names = found.columns()
    empty = rows.project([(n, c, nulls[n] if n in nulls else Column(below.ids[n])) for n, c in found.ids.items()])
    one, two = _positional([found, empty], list(found.ids), names)
    return Relation(UnionNode((one.node, two.node)), one.ids)


def _constants(translation: Translation, tree: Tree) -> Relation:
    attributes = tree.trees("output")
    kinds = [kind_of(one.fields["dataType"]) for one in attributes]
    names: list[str] = []
    for one in attributes:
        names.append(fresh(one.name, names))
    row = RowType((name, kind, bool(one.fields["nullable"])) for name, kind, one in zip(names, kinds, attributes))
    rows = tuple(
        tuple(python_value(value, kind) for value, kind in zip(given, kinds, strict=True))
        for given in tree.fields["rows"]
    )
    return Relation(ConstantNode(row, rows), {one.id: name for one, name in zip(attributes, names)})


def _one_row(translation: Translation, tree: Tree) -> Relation:
    return Relation(one_row(), {})


def _range(translation: Translation, tree: Tree) -> Relation:
    start, end, step = (int(tree.fields[name]) for name in ("start", "end", "step"))
    if (end - start) // step > MOST_CONSTANTS:
        raise refuse(f"range() has at most {MOST_CONSTANTS} rows here; make the rows a source", "range")
    (one,) = tree.trees("output")
    row = RowType([(one.name, Int64(), False)])
    return Relation(ConstantNode(row, tuple((value,) for value in range(start, end, step))), {one.id: one.name})


MOST_CONSTANTS = 100_000


def _count(tree: Tree, name: str) -> int:
    value = tree.tree(name)
    if value.kind != "Literal":
        raise refuse("LIMIT and OFFSET take a constant number", "limit", "offset")
    return int(value.fields["value"])


def _limit(translation: Translation, tree: Tree) -> Relation:
    """ORDER BY … LIMIT n [OFFSET m] as the first rows of a group that is all rows."""
    below, count = _under_local_limits(tree.one), _count(tree, "limitExpr")
    skipped = 0
    if below.kind == "Offset":
        skipped, below = _count(below, "offsetExpr"), _under_local_limits(below.one)
    projections, below = _under_projections(below)
    order: tuple[Tree, ...] = ()
    if below.kind == "Sort":
        order, below = below.trees("order"), below.one
        found = translation.relation(below)
    elif skipped:
        raise refuse(INSTEAD["Offset"], "offset")
    else:
        found, projections = translation.relation(_under_local_limits(tree.one)), []
    if count == 0:
        return found.filter(Literal(False, Bool()))
    found = _first(found, order, count, skipped)
    for one in reversed(projections):
        scope = found.scope
        found = found.project([(part.id, part.name, scope.of(part)) for part in one.trees("projectList")])
    return found


def _under_local_limits(tree: Tree) -> Tree:
    """What is below the limits of each of Spark's partitions, on top of a plan."""
    while tree.kind == "LocalLimit":
        tree = tree.one
    return tree


def _under_projections(tree: Tree) -> tuple[list[Tree], Tree]:
    """The projections on top of a plan, from above, and what is below them."""
    projections = list[Tree]()
    while tree.kind == "Project":
        projections.append(tree)
        tree = tree.one
    return projections, tree


def _first(found: Relation, order: Sequence[Tree], count: int, skipped: int) -> Relation:
    found, by = ordered(found, order)
    if not by:
        made = found.project([(n, column, Column(column)) for n, column in found.ids.items()])
        found, by = made, [Order(Column(name)) for name in made.row.names]
    top = Collection(found.node).top_k(count + skipped, by=by)
    if skipped:
        top = Collection(except_all(top, Collection(found.node).top_k(skipped, by=by)).node)
    return Relation(top.node, found.ids)


def ordered(found: Relation, order: Sequence[Tree]) -> tuple[Relation, list[Order]]:
    """The relation with columns for the order's values, and the order. Where nulls are not where an ascending order
    has them (first) or a descending one (last), a column that says "null" comes before."""
    columns: list[tuple[str, Expr]] = []
    ways: list[bool] = []
    for one in order:
        down = "Descending" in one.fields["direction"]["object"]
        first = "NullsFirst" in one.fields["nullOrdering"]["object"]
        value = found.of(one.children[0])
        if isinstance(value, Literal):
            continue
        if first == down:
            columns.append(("is null", IsNull(value)))
            ways.append(first)
        columns.append(("order", value))
        ways.append(down)
    found, names = found.with_columns(columns)
    by: dict[str, bool] = {}
    for name, way in zip(names, ways, strict=True):
        by.setdefault(name, way)
    return found, [Order(Column(name), way) for name, way in by.items()]


def _window(translation: Translation, tree: Tree, most: int | None = None) -> Relation:
    if not tree.fields["orderSpec"] and all(is_row_number(one.one) for one in tree.trees("windowExpressions")):
        below, by = _sorted(translation, tree.one)
        return window(below, tree, lambda rows, _: (rows, by), most)
    return window(translation.relation(tree.one), tree, ordered, most)


def _sorted(translation: Translation, tree: Tree) -> tuple[Relation, list[Order]]:
    """The rows of a plan, and the order in which a Sort below projections has put them, whose columns may be none of
    the plan's. Spark numbers the rows of a correlated subquery with ORDER BY and LIMIT in that order."""
    projections, below = _under_projections(tree)
    if below.kind != "Sort":
        return translation.relation(tree), []
    found, by = ordered(translation.relation(below.one), below.trees("order"))
    kept = {-1 - number: str(one.column.column) for number, one in enumerate(by)}
    for one in reversed(projections):
        outputs = one.trees("projectList")
        found = translation.with_subqueries(found, outputs)
        pairs = [(part.id, part.name, found.of(part)) for part in outputs]
        found = found.project([*pairs, *((number, name, Column(name)) for number, name in kept.items())])
        kept = {number: found.ids[number] for number in kept}
    by = [Order(Column(name), one.descending) for name, one in zip(kept.values(), by, strict=True)]
    return Relation(found.node, {number: name for number, name in found.ids.items() if number not in kept}), by


def _loop(translation: Translation, tree: Tree) -> Relation:
    return loop(translation, tree, _positional)


def _reference(translation: Translation, tree: Tree) -> Relation:
    return reference(translation, tree)


_NODES: dict[str, Callable[[Translation, Tree], Relation]] = {
    "LogicalRDD": _leaf,
    "Project": _project,
    "Filter": _filter,
    "Join": _join,
    "Aggregate": _aggregate,
    "Sort": _same,
    "SubqueryAlias": _same,
    "View": _same,
    "Repartition": _same,
    "RepartitionByExpression": _same,
    "RebalancePartitions": _same,
    "ResolvedHint": _same,
    "WindowGroupLimit": _same,
    "WithCTE": _same,
    "EventTimeWatermark": _same,
    "Distinct": _distinct,
    "Union": _union,
    "Except": _except,
    "Intersect": _intersect,
    "Expand": _expand,
    "Generate": _generate,
    "LocalRelation": _constants,
    "OneRowRelation": _one_row,
    "Range": _range,
    "GlobalLimit": _limit,
    "LocalLimit": _same,
    "Window": _window,
    "UnionLoop": _loop,
    "UnionLoopRef": _reference,
}
