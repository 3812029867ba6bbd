"""Plans constant rows: an input that the worker feeds itself, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vernier.operators.language.plan.constants import ConstantNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.op import Op

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


@dataclass
class ConstantOp(Op):
    """Rows that are there from the beginning of time. The first worker emits them in its first epoch."""

    schema: RowType
    rows: tuple[tuple[Any, ...], ...]

    kind = "constant"
    takes_names = True

    def facts(self) -> dict[str, Any]:
        return {"rows": len(self.rows)}


def build_constant(planner: Planner, node: ConstantNode) -> int:
    """The operator that supplies constant rows."""
    name = f"{len(node.rows)} constant rows" if len(node.rows) != 1 else "a constant row"
    op = ConstantOp(len(planner.ops), 0, node.schema.width, name, schema=node.schema, rows=node.rows)
    return planner.add(op, planner.hash("constant", node.fingerprint))


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {ConstantNode: build_constant}
