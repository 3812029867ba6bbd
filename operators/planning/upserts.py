"""Plans sources: their updates as they arrive, or, for an upsert source, the changes of the newest row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vernier.operators.language.plan import logical
from vernier.operators.planning.ops import InputOp, LinearOp, UpsertOp
from vernier.operators.planning.plan import ArrangementPlan
from vernier.operators.planning.stages import Take, texts_among

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def build_source(planner: Planner, node: logical.SourceNode) -> int:
    """The operator that supplies a source's updates."""
    op = InputOp(len(planner.ops), 0, node.schema.width, node.name, source=node.name)
    found = planner.add(op, planner.hash("source", node.name, node.schema.to_json()))
    key = planner.upserts.get(node.name)
    return found if key is None else _upserts(planner, node, found, key)


def _upserts(planner: Planner, node: logical.SourceNode, below: int, names: Sequence[str]) -> int:
    """The arrangement of the newest rows, followed by a `Take` that restores the source's order of words."""
    row = node.schema
    planner.ops[below].texts = row.text_words
    key = tuple(int(w) for w in row.index(names))
    val = tuple(w for w in range(row.width) if w not in key)
    print_ = planner.hash("upsert", planner.prints[below], key)
    name = f"{node.name} by {', '.join(names)}"
    op = UpsertOp(len(planner.ops), 0, row.width, name, below, key, val, f"upsert-{print_[:16]}")
    op.texts = texts_among((*key, *val), row.text_words)
    planner.arrangements[op.trace] = ArrangementPlan(op.trace, name, len(key), len(val), 0)
    arranged = planner.add(op, print_)
    order = (*key, *val)
    if order == tuple(range(row.width)):
        return arranged
    take = Take(tuple(order.index(w) for w in range(row.width)))
    back = LinearOp(len(planner.ops), 0, row.width, "in order", arranged, (take,))
    return planner.add(back, planner.hash("in order", print_))
