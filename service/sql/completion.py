"""What Spark's JSON of a plan leaves out, added to it: rows of VALUES, lists and structs that are constants, values of
PIVOT, what explode drops, sessions, projections of Expand.

Each is read from the plan itself, and only where the JSON has a class that needs it. Where an optimizer rule copies a
part of a plan, the copies have the same numbers and may differ later, so nodes are found by their place.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

SESSION = "spark.sessionWindow"
"""The metadata by which Spark marks the struct of session_window()."""


def complete(plan: Any, nodes: list[dict[str, Any]], session: Any) -> None:
    """Add to the JSON of a plan: `rows` of LocalRelation, `elements` of literals that are lists or structs,
    `pivotColumnValues` of PivotFirst as texts of literals, `unrequiredChildIndex` of Generate, `projections` of Expand,
    and `sessions` of Aggregate, the numbers of its keys that are sessions."""
    _add_projections(plan, nodes)
    found = list(_objects(nodes))
    _add_elements(plan, found)
    for one, node in _both(plan, found, "LocalRelation"):
        one["rows"] = _rows(node, session)
    pivots = [one for one in found if one["class"].endswith(".PivotFirst")]
    if pivots:
        values: dict[str, list[Any]] = {}
        for one in expressions(plan):
            if one.getClass().getSimpleName() == "PivotFirst":
                own = [_text(value) for value in each(one.pivotColumnValues())]
                if values.setdefault(_pivot_column(one), own) != own:
                    values[_pivot_column(one)] = []  # two constants after FOR; such a PIVOT is refused
        for one in pivots:
            one["pivotColumnValues"] = values.get(str(one["pivot"])) or None
    for one, node in _both(plan, found, "Generate"):
        one["unrequiredChildIndex"] = [int(at) for at in each(node.unrequiredChildIndex())]
    if any(one.get("name") == "session_window" for one in found):
        marked = {
            int(key.exprId().id())
            for node in _plans(plan)
            if node.getClass().getSimpleName() == "Aggregate"
            for key in each(node.groupingExpressions())
            if key.getClass().getSimpleName() == "AttributeReference" and key.metadata().contains(SESSION)
        }
        for one in found:
            if one["class"].endswith(".Aggregate"):
                one["sessions"] = sorted(marked)


def each(sequence: Any) -> Iterator[Any]:
    """The members of a Scala sequence."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _pivot_column(pivot: Any) -> str:
    """The number of the column after FOR; None where it is a constant."""
    column = pivot.pivotColumn()
    return str(column.exprId().id() if column.getClass().getSimpleName() == "AttributeReference" else None)


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    """All nodes and expressions of a plan's JSON. A PivotFirst gets `pivot`, the number of its column."""
    if isinstance(tree, list):
        for at, one in enumerate(tree):
            if isinstance(one, dict) and str(one.get("class", "")).endswith(".PivotFirst"):
                one["pivot"] = tree[at + 1].get("exprId", {}).get("id")
            yield from _objects(one)
    elif isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for one in tree.values():
            yield from _objects(one)


def _plans(plan: Any) -> Iterator[Any]:
    """All nodes of a plan, those of its subqueries included, in the order in which the JSON has them."""
    yield plan
    for one in _below(each(plan.expressions())):
        if one.getClass().getSimpleName() == "ScalarSubquery":
            yield from _plans(one.plan())
    for child in each(plan.children()):
        yield from _plans(child)


def _both(plan: Any, found: list[dict[str, Any]], kind: str) -> list[tuple[dict[str, Any], Any]]:
    """The nodes of a class, each as the JSON has it and as the plan has it."""
    objects = [one for one in found if one["class"].endswith(f".{kind}")]
    nodes = (node for node in _plans(plan) if node.getClass().getSimpleName() == kind) if objects else ()
    return list(zip(objects, nodes, strict=True))


def _add_projections(plan: Any, nodes: list[dict[str, Any]]) -> None:
    """The JSON has null for lists of lists that some rules of the optimizer make: of Scala's mutable collections."""
    found = list(_objects(nodes))
    if any(one["class"].endswith(".Expand") and one.get("projections") is None for one in found):
        for one, node in _both(plan, found, "Expand"):
            one["projections"] = [[json.loads(part.toJSON()) for part in each(row)] for row in each(node.projections())]


def expressions(plan: Any) -> Iterator[Any]:
    """All expressions of a plan, those of its subqueries included."""
    for node in _plans(plan):
        yield from _below(each(node.expressions()))


def _below(expressions: Iterator[Any]) -> Iterator[Any]:
    for one in expressions:
        yield one
        yield from _below(each(one.children()))


def _add_elements(plan: Any, found: list[dict[str, Any]]) -> None:
    """The JSON has lists as one text, in which ['a,b'] and ['a', 'b'] are the same. Where a plan has both, none gets
    its elements, and the translation refuses them."""
    nested = [one for one in found if one["class"].endswith(".Literal") and isinstance(one.get("dataType"), dict)]
    if not nested:
        return
    by_text: dict[tuple[str, str], list[Any]] = {}
    for one in expressions(plan):
        if one.getClass().getSimpleName() == "Literal" and one.value() is not None:
            kind = json.loads(one.dataType().json())
            if isinstance(kind, dict):
                elements = _elements(one.value(), one.dataType(), kind)
                known = by_text.setdefault((str(one.value().toString()), _form(kind)), [])
                known += [] if elements in known else [elements]
    for node in nested:
        values = by_text.get((str(node.get("value")), _form(node["dataType"])), [])
        if len(values) == 1:
            node["elements"] = values[0]


def _form(kind: dict[str, Any]) -> str:
    return json.dumps(kind, sort_keys=True)


def _elements(value: Any, type_: Any, kind: dict[str, Any]) -> list[Any] | None:
    """The members of a constant list or struct, each as the text of a literal, or a list again. None for a map."""
    if kind["type"] == "array":
        kinds = [(type_.elementType(), kind["elementType"])] * int(value.numElements())
    elif kind["type"] == "struct":
        fields = list(each(type_.toSeq()))
        kinds = [(field.dataType(), one["type"]) for field, one in zip(fields, kind["fields"], strict=True)]
    else:
        return None
    found: list[Any] = []
    for at, (inner, name) in enumerate(kinds):
        member = None if value.isNullAt(at) else value.get(at, inner)
        if member is None or not isinstance(name, dict):
            text = _text(member)
            days = name == "date" and text is not None
            found.append(str(_FIRST_DAY + datetime.timedelta(int(str(text)))) if days else text)
        else:
            found.append(_elements(member, inner, name))
    return found


_FIRST_DAY = datetime.date(1970, 1, 1)


def _rows(leaf: Any, session: Any) -> list[list[Any]]:
    """The rows of VALUES."""
    from pyspark.sql import DataFrame

    dataset = getattr(session._jvm.org.apache.spark.sql.classic, "Dataset$").__getattr__("MODULE$")
    rows = DataFrame(dataset.ofRows(session._jsparkSession, leaf), session).collect()
    return [[_plain(value) for value in row] for row in rows]


def _plain(value: Any) -> Any:
    """A value of a constant row as JSON: numbers and texts as they are, others as text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value)


def _text(value: Any) -> str | None:
    """One of Catalyst's values as the text of a literal."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, str, datetime.date)):
        return str(value)
    return str(value.toString())
