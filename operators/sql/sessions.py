"""session_window(): rows of a group that follow one another within the gap form a session, as in Collection.window.

Spark's plan has a struct `session_window` of a row's own time and its end, by which an Aggregate groups, and merges the
structs that overlap when it runs. Here the struct of each row becomes the start of its session before the groups are
made, and each group's end is the gap after its last time. So a row that makes a session longer changes its group, and
not the session's other rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vernier.operators.group_functions.sessions import Sessions
from vernier.operators.language.collection.ordering import grouped_by
from vernier.operators.language.expr.expression import Binary, Call, Cast, Column, Expr, Literal
from vernier.operators.language.plan.logical import ProjectNode
from vernier.operators.language.types.scalars import Int64, TimestampNs
from vernier.operators.language.types.texts import String
from vernier.operators.sql.literals import interval
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation
from vernier.operators.sql.trees import Tree


@dataclass(frozen=True)
class Session:
    """What makes the sessions of groups: the column with their starts, the column with the rows' times, the gap."""

    start: str
    time: str
    gap: int

    def struct(self, last: str) -> Expr:
        """The struct of a group. last: the column with its last time."""
        end = Binary("+", Cast(Column(last), Int64()), Literal(self.gap, Int64()))
        return Call("struct", (Column(self.start), Cast(end, TimestampNs())), ("start", "end"))


def in_sessions(below: Relation, tree: Tree) -> tuple[Relation, Session | None]:
    """The relation below an Aggregate, with starts of sessions for the structs that its keys have, if any."""
    marked = set(tree.fields.get("sessions") or ())
    groups = tree.trees("groupingExpressions")
    keys = [one for one in groups if one.kind == "AttributeReference" and one.id in marked]
    if not keys:
        return below, None
    (key,) = keys
    if _none(tree.one, key.id):
        return below, None
    gap = _gap(tree.one, key.id)
    struct = below.ids[key.id]
    others = [below.of(one) for one in groups if one is not key]
    below, (time, *within) = below.with_columns(
        [
            ("session time", Call("field", (Column(struct), Literal("start", String())))),
            *(("session key", one) for one in others),
        ]
    )
    rows = grouped_by(below.node, tuple(dict.fromkeys(within)), Sessions(time, gap, ends=False))
    shown = tuple((name, Column("window_start") if name == struct else Column(name)) for name in below.row.names)
    return replace(below, node=ProjectNode(rows, shown)), Session(struct, time, gap)


def _none(tree: Tree, number: int) -> bool:
    """Whether Catalyst found that there are no rows, where it has a constant in place of what made the structs."""
    leaves = (node for node in tree.walk() if node.kind == "LocalRelation" and not node.fields["rows"])
    return any(one.id == number for leaf in leaves for one in leaf.trees("output"))


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
