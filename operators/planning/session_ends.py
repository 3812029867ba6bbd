"""Plans sessions with their ends: rows get the starts of their sessions, and are joined with the last value of each.

A trace of starts tells the session of a row (operators/kernels/sessions.py), and the greatest value of a session is
read from its end, so a change costs the rows whose session it changes, however long the session is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vernier.operators.group_functions.sessions import Sessions
from vernier.operators.language.collection.reductions import ReduceNode
from vernier.operators.language.expr.expression import Binary, Literal, col
from vernier.operators.language.plan import logical
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.distinct_counts import SHARED
from vernier.operators.planning.sharing import identity
from vernier.operators.planning.stages import Compute, Stage, Take

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner

_LAST = "last of the session"


def as_starts(planner: Planner, node: ReduceNode, spec: Sessions) -> tuple[Node, list[Stage]]:
    """A node with the columns of `node` but the last, the ends of its sessions, which the stages make of its rows."""
    where = node.where
    *names, _ = node.schema.names
    starts = ReduceNode(node.input, node.keys, replace(spec, ends=False), where=where)
    session = (*node.keys, starts.schema.names[-1])
    last = logical.AggregateNode(starts, session, ((_LAST, Aggregation("max", col(spec.on))),), where=where)
    joined = logical.JoinNode(starts, last, session, session, null_safe=True, where=where)
    for one in (starts, last, joined):
        planner.uses[identity(one)] += SHARED
    # A session has a value, so its last one is not null; the words of times, days and numbers are numbers.
    row = joined.schema
    words = (*(int(word) for word in row.index(names)), row.field(_LAST).value_offset)
    plain = RowType([*((f.name, f.type, f.nullable) for f in map(row.field, names)), (_LAST, Int64(), False)])
    end = Binary("+", col(_LAST), Literal(spec.gap, Int64()))
    return joined, [Take(words), Compute((*map(col, names), end), plain, node.schema.width)]
