"""Joins: equal keys become the key of the join, whatever else the condition says holds for each pair.

Without equal keys all pairs are formed: a constant is the key, and `explain` says "cross join". An existence join is
the semi join and the anti join with the answer as a column. NOT IN, whose condition is true or null, is an anti join on
the equality, less the rows for which a null decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, NamedTuple

from vernier.operators.errors import WrongType
from vernier.operators.language.collection.matching import Sides
from vernier.operators.language.expr.expression import Binary, Call, Column, Expr, IsNull, Literal, Unary
from vernier.operators.language.plan.logical import ProjectNode, UnionNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.plan.titles import give_name
from vernier.operators.language.types.scalars import Bool, Int64
from vernier.operators.language.types.schema import EVERY_ROW, RowType
from vernier.operators.sql.defaults import default_of
from vernier.operators.sql.expressions import Expressions
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation
from vernier.operators.sql.single_rows import need_single
from vernier.operators.sql.trees import Tree, tree_of

_HOW = {
    "Inner$": "inner",
    "Cross$": "inner",
    "LeftOuter$": "left",
    "LeftSingle$": "left",
    "RightOuter$": "right",
    "FullOuter$": "full",
    "LeftSemi$": "semi",
    "LeftAnti$": "anti",
}


class _Key(NamedTuple):
    """Two values that must be equal; `nulls`: also where both are null."""

    left: Tree
    right: Tree
    nulls: bool


def join(left: Relation, right: Relation, tree: Tree, relied: set[str]) -> Relation:
    """The join of two relations that a plan's Join describes. relied: gets the leaves on whose keys it depends."""
    kind = tree.fields["joinType"]
    condition = tree.tree("condition") if tree.fields.get("condition") else None
    right = right.apart(left)
    name = str(kind.get("object", "")).rsplit(".", 1)[-1]
    if str(kind.get("product-class", "")).endswith("ExistenceJoin"):
        return _existence(left, right, condition, kind["exists"])
    if name not in _HOW:
        raise refuse(
            f"a join of the kind {name.rstrip('$') or kind} cannot be maintained; write it as an outer join", "join"
        )
    how = _HOW[name]
    if name == "LeftSingle$":
        relied |= need_single(tree.children[1], _equated(condition))
    if how == "anti" and condition is not None:
        found = _null_aware(left, right, condition)
        if found is not None:
            return found
    return _plain(left, right, condition, how)


def _equated(condition: Tree | None) -> set[int]:
    """The columns, by their numbers, that must equal other columns."""
    equal = [one for one in conjuncts(condition) if one.kind in ("EqualTo", "EqualNullSafe")]
    return {part.id for one in equal for part in one.children if part.kind == "AttributeReference"}


def crossed(left: Relation, right: Relation, how: str = "inner") -> Relation:
    """All pairs of rows."""
    return _plain(left, right.apart(left), None, how)


def conjuncts(tree: Tree | None) -> Iterator[Tree]:
    """The conditions that must all be true."""
    if tree is None:
        return
    if tree.kind == "And":
        for child in tree.children:
            yield from conjuncts(child)
    else:
        yield tree


def _plain(left: Relation, right: Relation, condition: Tree | None, how: str) -> Relation:
    keys: list[_Key] = []
    rest: list[Tree] = []
    for one in conjuncts(condition):
        pair = _sides(one, left, right) if one.kind in ("EqualTo", "EqualNullSafe") else None
        if pair is None:
            rest.append(one)
        else:
            keys.append(_Key(*pair, one.kind == "EqualNullSafe"))
    both = Relation(left.node, {**left.ids, **right.ids})
    pairs = _Pairs(both, left, right)
    where = [pairs.of(one) for one in rest]
    made = _keyed(left, right, keys)
    found = _joined(*made, where, how)
    ids = dict(left.ids) if how in ("semi", "anti") else {**left.ids, **right.ids}
    kept = {*ids.values()}
    if set(found.schema.names) - kept and kept:
        names = [name for name in found.schema.names if name in kept]
        found = ProjectNode(found, tuple((name, Column(name)) for name in names))
    return Relation(found, ids)


class _Pairs:
    """Translates conditions over pairs of rows, with the types of both sides."""

    def __init__(self, both: Relation, left: Relation, right: Relation) -> None:
        fields = [*left.row.fields, *right.row.fields]
        row = RowType((one.name, one.type, one.nullable) for one in fields)
        self._scope = Expressions(row, both.ids)

    def of(self, tree: Tree) -> Expr:
        return self._scope.of(tree)


def _joined(
    left: Relation, right: Relation, left_on: tuple[str, ...], right_on: tuple[str, ...], where: list[Expr], how: str
) -> Node:
    condition: Expr | None = None
    for one in where:
        condition = one if condition is None else Binary("&", condition, one)
    crossing = not left_on
    if crossing:
        left, right, left_on, right_on = _all_pairs(left, right)
    try:
        found = Sides(left.node, right.node, left_on, right_on, condition).joined(how)
    except WrongType as error:
        raise refuse(f"the join's keys do not fit: {error.problem}", "join") from error
    if crossing:
        give_name(found, "cross join" if condition is None else "cross join, filtered")
        for below in found.inputs:
            if below.kind == "join":
                give_name(below, "cross join")
    return found


def _all_pairs(left: Relation, right: Relation) -> tuple[Relation, Relation, tuple[str, ...], tuple[str, ...]]:
    one, two = f"{EVERY_ROW} (left)", f"{EVERY_ROW} (right)"
    zero = Literal(0, Int64())

    def with_key(relation: Relation, name: str) -> Relation:
        kept = [(own, Column(own)) for own in relation.row.names if not own.startswith(EVERY_ROW)]
        return replace(relation, node=ProjectNode(relation.node, ((name, zero), *kept)))

    return with_key(left, one), with_key(right, two), (one,), (two,)


def _keyed(
    left: Relation, right: Relation, keys: list[_Key]
) -> tuple[Relation, Relation, tuple[str, ...], tuple[str, ...]]:
    """Both sides with columns that must be equal. Where nulls are equal, a value is two columns without nulls."""
    sides: list[tuple[Relation, tuple[str, ...]]] = []
    for relation, place in ((left, 0), (right, 1)):
        values: list[tuple[str, Expr]] = []
        for at, key in enumerate(keys):
            expr = relation.of(key.right if place else key.left)
            label = f"key {at} {'left' if place == 0 else 'right'}"
            if not key.nulls:
                values.append((label, expr))
                continue
            kind = relation.scope.type(expr)
            if kind is None:
                raise refuse("a join on <=> needs typed values; cast NULL to a type", "null")
            values.append((f"{label} is null", IsNull(expr)))
            values.append((label, Call("coalesce", (expr, default_of(kind)))))
        wide, names = relation.with_columns(_once(values, relation))
        sides.append((wide, tuple(names)))
    (one, left_on), (two, right_on) = sides
    return one, two, left_on, right_on


def _once(values: list[tuple[str, Expr]], relation: Relation) -> list[tuple[str, Expr]]:
    """A column that is a key twice is a second column the second time."""
    seen: set[str] = set()
    found = []
    for name, expr in values:
        if expr.column is not None and expr.column in seen:
            expr = Call("coalesce", (expr, expr))
        if expr.column is not None:
            seen.add(expr.column)
        found.append((name, expr))
    return found


def _sides(tree: Tree, left: Relation, right: Relation) -> tuple[Tree, Tree] | None:
    """The parts of an equality, the left relation's first, if each is over one relation alone."""
    one, two = tree.children
    places = [_place(part, left, right) for part in (one, two)]
    if places == ["left", "right"]:
        return one, two
    return (two, one) if places == ["right", "left"] else None


def _place(tree: Tree, left: Relation, right: Relation) -> str:
    ids = {one.id for one in tree.walk() if one.kind == "AttributeReference"}
    if ids and ids <= left.ids.keys():
        return "left"
    return "right" if ids and ids <= right.ids.keys() else "neither"


def _existence(left: Relation, right: Relation, condition: Tree | None, exists: object) -> Relation:
    """The left rows with a column that says whether they match."""
    mark = tree_of(exists) if isinstance(exists, list) else None
    if mark is None:
        raise refuse("this EXISTS cannot be maintained; write it as a join", "exists", "in")
    parts = []
    label = "exists"
    while label in left.row.names:
        label += "_"
    for how, value in (("semi", True), ("anti", False)):
        found = _plain(left, right, condition, how)
        kept = [(own, Column(own)) for own in found.row.names]
        parts.append(ProjectNode(found.node, (*kept, (label, Literal(value, Bool())))))
    return Relation(UnionNode(tuple(parts)), {**left.ids, mark.id: label})


def steady_marks(tree: Tree, keys: AbstractSet[int]) -> set[int]:
    """The columns that existence joins below a node add, by their numbers, that are equal where the keys are."""
    found: set[int] = set()
    for node in tree.walk():
        if node.kind == "Join" and str(node.fields["joinType"].get("product-class", "")).endswith("ExistenceJoin"):
            condition = node.tree("condition") if node.fields.get("condition") else None
            parts = [] if condition is None else [one for one in condition.walk() if one.kind == "AttributeReference"]
            inner = {one for below in node.children[1].walk() for one in _numbers(below.fields)}
            if {one.id for one in parts} - inner <= keys:
                found.add(tree_of(node.fields["joinType"]["exists"]).id)
    return found


def _numbers(part: Any) -> Iterator[int]:
    """The numbers of all columns in a part of a plan's JSON."""
    if isinstance(part, list):
        for one in part:
            yield from _numbers(one)
    elif isinstance(part, dict):
        if isinstance(part.get("exprId"), dict):
            yield int(part["exprId"]["id"])
        for one in part.values():
            yield from _numbers(one)


def _null_aware(left: Relation, right: Relation, condition: Tree) -> Relation | None:
    """NOT IN: `a = b OR (a = b) IS NULL`, beside equalities of keys k. None if the condition is another one.

    A row stays if no right row with its keys has an equal or a null b, and, if its a is null, only if there is no right
    row with its keys at all.
    """
    test: tuple[Tree, Tree] | None = None
    keys: list[_Key] = []
    for one in conjuncts(condition):
        pair = _sides(one, left, right) if one.kind in ("EqualTo", "EqualNullSafe") else None
        if pair is not None:
            keys.append(_Key(*pair, one.kind == "EqualNullSafe"))
        elif test is None and (found := _or_null(one)) is not None:
            test = _sides(found, left, right)
            if test is None:
                return None
        else:
            return None
    if test is None:
        return None
    value, other = left.of(test[0]), right.of(test[1])
    there, gone = Unary("~", IsNull(value)), IsNull(value)

    def less(rows: Relation, those: Relation, on: list[_Key]) -> Relation:
        return replace(rows, node=_joined(*_keyed(rows, those, on), [], "anti"))

    def trimmed(relation: Relation) -> Relation:
        names = left.row.names
        if relation.row.names == names:
            return relation
        return replace(relation, node=ProjectNode(relation.node, tuple((name, Column(name)) for name in names)))

    known = trimmed(less(left.filter(there), right, [*keys, _Key(*test, False)]))
    known = trimmed(less(known, right.filter(IsNull(other)), keys))
    open_ = trimmed(less(left.filter(gone), right, keys))
    return replace(left, node=UnionNode((known.node, open_.node)))


def _or_null(tree: Tree) -> Tree | None:
    """The equality in `e OR e IS NULL`."""
    if tree.kind != "Or":
        return None
    for one, two in (tree.children, tree.children[::-1]):
        if one.kind == "EqualTo" and two.kind == "IsNull" and two.one.form == one.form:
            return one
    return None
