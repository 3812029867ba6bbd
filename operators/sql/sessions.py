"""session_window(): rows of a group that follow one another within the gap form a session, as in Collection.window.

Spark's plan has a struct `session_window` of a row's own time and its end, by which an Aggregate groups, and merges the
structs that overlap when it runs. Here the struct of each row becomes its session's, before the groups are made.
"""

from __future__ import annotations

from dataclasses import replace

from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.expr.expression import Call, Column, Literal
from vernier.operators.language.plan.logical import ProjectNode
from vernier.operators.language.types.texts import String
from vernier.operators.sql.literals import interval
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation
from vernier.operators.sql.trees import Tree


def in_sessions(below: Relation, tree: Tree) -> Relation:
    """The relation below an Aggregate, with sessions for the structs that its keys have."""
    marked = set(tree.fields.get("sessions") or ())
    groups = tree.trees("groupingExpressions")
    keys = [one for one in groups if one.kind == "AttributeReference" and one.id in marked]
    if not keys:
        return below
    (key,) = keys
    gap = _gap(tree.one, key.id)
    struct = below.ids[key.id]
    others = [below.of(one) for one in groups if one is not key]
    below, (start, *within) = below.with_columns(
        [
            ("session start", Call("field", (Column(struct), Literal("start", String())))),
            *(("session key", one) for one in others),
        ]
    )
    rows = Collection(below.node).window(start, session=gap, by=list(dict.fromkeys(within)))
    session = Call("struct", (Column("window_start"), Column("window_end")), ("start", "end"))
    shown = tuple((name, session if name == struct else Column(name)) for name in below.row.names)
    return replace(below, node=ProjectNode(rows.node, shown))


def _gap(tree: Tree, number: int) -> int:
    """The gap in nanoseconds: what the struct's end adds to its start."""
    for node in tree.walk():
        for one in node.trees("projectList") if node.kind == "Project" else ():
            if one.kind == "Alias" and one.id == number:
                found = [
                    part
                    for part in one.walk()
                    if part.kind == "Literal" and str(part.fields.get("dataType")).startswith("interval")
                ]
                if len(found) == 1:
                    return interval(str(found[0].fields["value"]))
    raise refuse("session_window() takes a constant gap: session_window(ts, '5 minutes')", "session_window")
