"""OVER: window functions as columns of ordered groups.

A window over a whole partition is an aggregate that is joined with its rows. Ranks and neighbours are logics of ordered
groups (operators/group_functions): a change of a rank costs the ranks that change, one of a neighbour reads what is
around the changed rows. frames.py makes other frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.expr.expression import Call, Column, Literal
from vernier.operators.language.expr.order import Order
from vernier.operators.language.types.scalars import Int64
from vernier.operators.sql.aggregating import over_partition
from vernier.operators.sql.expressions import unknown
from vernier.operators.sql.frames import Frame, framed
from vernier.operators.sql.places import numbered
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation, fresh, usable
from vernier.operators.sql.trees import Tree, is_row_number

Ordered = Callable[[Relation, Sequence[Tree]], tuple[Relation, list[Order]]]
_RANKS = {"Rank": Collection.rank, "DenseRank": Collection.dense_rank, "RowNumber": Collection.row_number}


_AT_MOST = {"LessThanOrEqual": 0, "LessThan": -1, "EqualTo": 0}
_TURNED = {"GreaterThanOrEqual": 0, "GreaterThan": -1, "EqualTo": 0}


def most_of_partitions(tree: Tree, tests: Sequence[Tree]) -> int | None:
    """How many first rows of each partition a filter over this window keeps at most, since it compares row_number()
    with a constant; None where it keeps more, or where the window has other functions, which need all rows."""
    outputs = tree.trees("windowExpressions")
    if not all(is_row_number(one.one) for one in outputs):
        return None
    numbers = {one.id for one in outputs}
    found: list[int] = []
    for test in tests:
        if len(test.children) != 2:
            continue
        for (one, other), kinds in ((test.children, _AT_MOST), (test.children[::-1], _TURNED)):
            if (
                test.kind in kinds
                and one.kind == "AttributeReference"
                and one.id in numbers
                and other.kind == "Literal"
            ):
                found.append(int(other.fields["value"]) + kinds[test.kind])
    return min(found) if found and 1 <= min(found) <= MOST_FIRST else None


MOST_FIRST = 100_000
"""The most first rows that are found before they are numbered."""


def window(below: Relation, tree: Tree, ordered: Ordered, most: int | None = None) -> Relation:
    """The relation with a column for each of the window expressions. most: how many first rows of each partition are
    wanted, if not all (`most_of_partitions`): only those are numbered, so a change costs no other rows."""
    ids = dict(below.ids)
    found, by = ordered(below, tree.trees("orderSpec"))
    found, within = found.with_columns([("partition", found.of(one)) for one in tree.trees("partitionSpec")])
    within = list(dict.fromkeys(within))
    outputs = tree.trees("windowExpressions")
    if most is not None:
        found, needed = _needed(by, within, found)
        found = replace(found, node=Collection(found.node).top_k(most, by=needed, within=within).node)
    functions = [one.one for one in outputs if one.one.kind == "WindowExpression"]
    if sum(_has_places(*one.children) for one in functions) > 1:
        # Copies of one row have one order for all functions of the window.
        found, needed = _needed(by, within, found)
        found, place = numbered(found, needed, within)
        places = [Order(Column(place))]
    else:
        places = by
    for one in outputs:
        name = fresh(usable(one.name), found.row.names)
        if most == 1:
            found, (ids[one.id],) = found.with_columns([(name, Literal(1, Int64()))])
            continue
        if one.one.kind != "WindowExpression":  # Spark has computed it: a count of nulls is 0
            found, (ids[one.id],) = found.with_columns([(name, found.of(one.one))])
            continue
        function, spec = one.one.children
        found = _with(found, function, spec, name, places if _has_places(function, spec) else by, within)
        ids[one.id] = name
    return Relation(found.node, ids).project([(n, column, Column(column)) for n, column in ids.items()])


def _has_places(function: Tree, spec: Tree) -> bool:
    """Whether a function depends on the places of rows, and not on the values of the order alone."""
    frame = spec.children[-1]
    rows = "Row" in str(frame.fields.get("frameType", {}).get("object", "")).rsplit(".", 1)[-1]
    sides = {one.kind for one in frame.children}
    partial = rows and sides != {"UnboundedPreceding", "UnboundedFollowing"}
    return function.kind in ("Lag", "Lead", "RowNumber") or (function.kind in _OF_FRAMES and partial)


_OF_FRAMES = ("AggregateExpression", "NthValue")


def _with(rows: Relation, function: Tree, spec: Tree, name: str, by: list[Order], within: list[str]) -> Relation:
    frame = spec.children[-1]
    low, high = (one.kind for one in frame.children) if frame.children else ("", "")
    if function.kind in _RANKS:
        rows, by = _needed(by, within, rows)
        made = _RANKS[function.kind](Collection(rows.node), by=by, within=within, name=name)
        return replace(rows, node=made.node)
    if function.kind in ("Literal", "Cast"):
        return rows.with_columns([(name, rows.of(function))])[0]
    if function.kind in ("Lag", "Lead"):
        return _shifted(rows, function, name, by, within)
    inner = function.children[0].kind if function.kind == "AggregateExpression" else function.kind
    whole = (low, high) == ("UnboundedPreceding", "UnboundedFollowing")
    if whole and function.kind == "AggregateExpression" and (inner not in ("First", "Last") or not by):
        return over_partition(rows, function, name, within)
    if frame.children and function.kind in _OF_FRAMES:
        given = Frame.of(frame)
        if given.by_distance:
            given = replace(given, order=by[-1] if by else None)
        rows, by = _needed(by, within, rows)
        return framed(rows, function, name, by, within, given)
    raise unknown(function)


def _needed(by: list[Order], within: list[str], rows: Relation) -> tuple[Relation, list[Order]]:
    """The order without the partition's own columns. Where nothing is left all rows are equal in it: a constant."""
    kept = [one for one in by if one.column.column not in within]
    if kept:
        return rows, kept
    rows, (constant,) = rows.with_columns([("no order", Literal(0, Int64()))])
    return rows, [Order(Column(constant))]


def _shifted(rows: Relation, function: Tree, name: str, by: list[Order], within: list[str]) -> Relation:
    if function.fields.get("ignoreNulls"):
        raise refuse("IGNORE NULLS cannot be maintained; filter the nulls first", "ignore", "nulls")
    value, offset, default = function.children[:3]
    step = rows.scope.constant(offset, "the offset of lag() and lead()")
    rows, (column,) = rows.with_columns([("shifted", rows.of(value))])
    given = rows.of(default)
    if column in within:
        rows, (column,) = rows.with_columns([("shifted", Call("coalesce", (Column(column), Column(column))))])
    rows, by = _needed(by, within, rows)
    if not isinstance(given, Literal):
        while hasattr(given, "part"):
            given = given.part
    if not isinstance(given, Literal):
        raise refuse("the default of lag() and lead() must be a constant", function.kind)
    method = Collection.lag if function.kind == "Lag" else Collection.lead
    made = method(
        Collection(rows.node),
        column,
        int(step),
        by=by,
        within=within,
        name=name,
        default=None if given.value is None else given,
    )
    return replace(rows, node=made.node)
