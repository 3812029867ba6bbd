"""Plans nodes that do not change rows: arrangements that the program asks for, consolidation, inspection, checks and
probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vernier.operators.language.collection import structure
from vernier.operators.language.plan.node import Node
from vernier.operators.planning.arrangements import arrange
from vernier.operators.planning.ops import CheckOp, ConsolidateOp, InspectOp, LinearOp
from vernier.operators.planning.stages import Take

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def build_arranged(planner: Planner, node: structure.ArrangedNode) -> int:
    """The arrangement, followed by a `Take` that restores the order of the collection's words."""
    row = node.schema
    key = tuple(int(w) for w in row.index(node.keys))
    val = tuple(w for w in range(row.width) if w not in key)
    kept = arrange(planner, node.input, node.scope, key, val)
    order = (*key, *val)
    words = tuple(order.index(w) for w in range(row.width))
    scope = planner.scope(node.scope)
    op = LinearOp(len(planner.ops), scope, row.width, "select", kept, (Take(words),))
    return planner.add(op, planner.meaning(node))


def build_consolidated(planner: Planner, node: structure.ConsolidatedNode) -> int:
    """An operator that consolidates the updates of each step."""
    below = planner.build(node.input)
    op = ConsolidateOp(len(planner.ops), planner.scope(node.scope), node.schema.width, "consolidate", below)
    return planner.add(op, planner.meaning(node))


def build_inspected(planner: Planner, node: structure.InspectedNode) -> int:
    """An operator that passes the rows on and shows each change to the program's function."""
    below = planner.build(node.input)
    op = InspectOp(
        len(planner.ops),
        planner.scope(node.scope),
        node.schema.width,
        f"inspect {node.name}",
        below,
        node.schema,
        node.function,
        str(node.where),
    )
    return planner.add(op, planner.meaning(node))


def build_checked(planner: Planner, node: structure.CheckedNode) -> int:
    """An operator that raises an error when its input has a row."""
    below = planner.build(node.input)
    op = CheckOp(len(planner.ops), 0, node.schema.width, node.name, below, node.schema, str(node.where))
    return planner.add(op, planner.meaning(node))


def build_probed(planner: Planner, node: structure.ProbedNode) -> int:
    """All collections of a plan reach a time together, so a probe needs no operator."""
    planner.probes.append(node.probe)
    return planner.build(node.input)


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {
    structure.ArrangedNode: build_arranged,
    structure.ConsolidatedNode: build_consolidated,
    structure.InspectedNode: build_inspected,
    structure.CheckedNode: build_checked,
    structure.ProbedNode: build_probed,
}
