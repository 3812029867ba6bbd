"""Scalar subqueries: a plan is proven to have at most one row, or refused.

Spark stops a query whose scalar subquery has a second row. Here such a row would stop all views, so a subquery is only
taken if its plan says that there is none, whatever the tables hold: an aggregate over all rows, LIMIT 1, the row with
number 1, groups whose columns the query fixes, or rows of a table by the key that it declares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.trees import Tree, is_row_number

_SAME = frozenset(
    {"Filter", "Sort", "SubqueryAlias", "View", "LocalLimit", "Offset", "Window", "WindowGroupLimit", "ResolvedHint"}
    | {"Repartition", "RepartitionByExpression", "RebalancePartitions"}
)
"""Nodes that keep rows, or drop some of them."""
_NONE: frozenset[int] = frozenset()


def need_single(tree: Tree, fixed: AbstractSet[int] = _NONE) -> frozenset[str]:
    """Raise Refused unless the plan has at most one row for each value of the columns `fixed`, by their numbers.
    Returns the leaves on whose keys this depends."""
    own = _unique(tree)
    if own is None or not own <= fixed:
        raise refuse(
            "this scalar subquery may have several rows, which is an error in SQL; write an aggregate (max(x)), "
            "ORDER BY … LIMIT 1, a join, or declare the key that it compares, WITH (format = 'upsert', key = '…')",
            "(select",
            "select",
        )
    bare = _unique(_without_keys(tree))
    return frozenset() if bare is not None and bare <= fixed else _with_key(tree)


Keys = Mapping[str, tuple[str, ...] | None]
"""The key columns of leaves, by their names."""


def with_keys(plan: Any, keys: Keys) -> Any:
    """The plan with `key` at each leaf that has one."""
    if isinstance(plan, list):
        return [with_keys(one, keys) for one in plan]
    if not isinstance(plan, dict) or not any(keys.values()):
        return plan
    made = {name: with_keys(value, keys) for name, value in plan.items()}
    if str(plan.get("class", "")).endswith(".LogicalRDD") and plan["output"]:
        made["key"] = keys.get(plan["output"][0][0]["name"].split(".")[0].lower())
    return made


def key_of(tree: Tree) -> tuple[frozenset[int] | None, frozenset[str]]:
    """Columns of a plan, by their numbers, in which no two rows agree, and the leaves on whose keys this depends. None:
    not known."""
    found = _unique(tree)
    return found, frozenset() if found == _unique(_without_keys(tree)) else _with_key(tree)


def _without_keys(tree: Tree) -> Tree:
    fields = {name: value for name, value in tree.fields.items() if name != "key"}
    return Tree(tree.kind, fields, tuple(map(_without_keys, tree.children)))


def _with_key(tree: Tree) -> frozenset[str]:
    """The names of the leaves that have a key, in lower case."""
    leaves = (one for one in tree.walk() if one.kind == "LogicalRDD" and one.fields.get("key"))
    return frozenset(one.trees("output")[0].name.split(".")[0].lower() for one in leaves)


def always_one(tree: Tree) -> bool:
    """Whether a plan is an aggregate over all rows, which has its row also where there are no rows."""
    while tree.kind in ("Project", "Sort", "GlobalLimit", "LocalLimit"):
        tree = tree.one
    return tree.kind == "Aggregate" and not tree.fields.get("groupingExpressions")


def _unique(tree: Tree) -> frozenset[int] | None:
    """Columns, by their numbers, in which no two rows agree: none if there is at most one row. None: not known."""
    match tree.kind:
        case "OneRowRelation":
            return _NONE
        case "LocalRelation":
            return _NONE if len(tree.fields["rows"]) <= 1 else None
        case "GlobalLimit" if _is_number(tree.tree("limitExpr"), 1):
            return _NONE
        case "Aggregate":
            fixed = _fixed(tree.one)
            groups = [one for one in tree.trees("groupingExpressions") if _plain(one) not in fixed]
            return _renamed(groups, tree.trees("aggregateExpressions"))
        case "LogicalRDD" if tree.fields.get("key"):
            names = {name.lower() for name in tree.fields["key"]}
            own = tree.trees("output")
            return frozenset(one.id for one in own if one.name.split(".", 1)[1].lower() in names)
        case "Distinct":
            return _unique(tree.one)
        case "Project":
            below = _unique(tree.one)
            return None if below is None else _carried(below, tree.trees("projectList"))
        case "Filter":
            return _filtered(tree)
        case "Join":
            return _joined(tree)
        case kind if kind in _SAME or kind == "GlobalLimit":
            return _unique(tree.one)
    return None


def _renamed(groups: Sequence[Tree], outputs: Sequence[Tree]) -> frozenset[int] | None:
    """The output columns that hold the groups' values."""
    found = set()
    for group in groups:
        same = (
            one for one in outputs if one.form == group.form or (one.kind == "Alias" and one.one.form == group.form)
        )
        column = next(same, None)
        if column is None:
            return None
        found.add(column.id)
    return frozenset(found)


def _carried(below: frozenset[int], outputs: tuple[Tree, ...]) -> frozenset[int] | None:
    found = set()
    for number in below:
        same = (one for one in outputs if _plain(one) == number)
        column = next(same, None)
        if column is None:
            return None
        found.add(column.id)
    return frozenset(found)


def _plain(tree: Tree) -> int | None:
    """The number of the column that a tree is, under this name or another."""
    tree = tree.one if tree.kind == "Alias" else tree
    return tree.id if tree.kind == "AttributeReference" else None


def _filtered(tree: Tree) -> frozenset[int] | None:
    """The rows of a filter: columns that equal a constant do not tell them apart; nor are there two rows number 1."""
    tests = list(_conjuncts(tree.tree("condition")))
    below = _unique(tree.one)
    if below is None:
        below = _numbered(tree.one, tests)
    return None if below is None else below - _constants(tests)


def _constants(tests: list[Tree]) -> set[int]:
    """The columns that equal a constant."""
    return {
        number
        for test in tests
        if test.kind in ("EqualTo", "EqualNullSafe")
        for one, two in (test.children, test.children[::-1])
        if two.kind == "Literal" and (number := _plain(one)) is not None
    }


def _fixed(tree: Tree) -> set[int]:
    """The columns that filters below equal with constants."""
    found: set[int] = set()
    while tree.kind == "Project" or tree.kind in _SAME:
        if tree.kind == "Filter":
            found |= _constants(_conjuncts(tree.tree("condition")))
        tree = tree.one
    return found


def _numbered(tree: Tree, tests: list[Tree]) -> frozenset[int] | None:
    """The columns of PARTITION BY, where the tests keep the row of each partition with the number 1."""
    while tree.kind in ("Project", "SubqueryAlias", "Filter", "Window"):
        if tree.kind == "Window":
            for one in tree.trees("windowExpressions"):
                first = any(
                    test.kind in ("EqualTo", "LessThanOrEqual")
                    and _plain(test.children[0]) == one.id
                    and _is_number(test.children[1], 1)
                    for test in tests
                )
                if first and is_row_number(one.one):
                    columns = [_plain(part) for part in tree.trees("partitionSpec")]
                    return None if None in columns else frozenset(part for part in columns if part is not None)
        tree = tree.one
    return None


def _joined(tree: Tree) -> frozenset[int] | None:
    name = str(tree.fields["joinType"].get("object", "")).rsplit(".", 1)[-1]
    left, right = map(_unique, tree.children)
    if name in ("LeftSemi$", "LeftAnti$", "LeftSingle$"):
        return left
    return None if left is None or right is None else left | right


def _conjuncts(tree: Tree) -> list[Tree]:
    return [one for child in tree.children for one in _conjuncts(child)] if tree.kind == "And" else [tree]


def _is_number(tree: Tree, most: int) -> bool:
    return tree.kind == "Literal" and tree.fields.get("value") is not None and int(tree.fields["value"]) <= most
