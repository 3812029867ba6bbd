"""Plans of reductions by a logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operators.language import logical
from operators.language.reducing import Reduce
from operators.planning.arrangements import arrange
from operators.planning.plan import WaveOp
from operators.planning.reductions import keep_output

if TYPE_CHECKING:
    from operators.planning.planner import Planner


def build_reduce(planner: Planner, node: Reduce) -> int:
    """An arrangement by the key, and the logic on it. Its output is kept inside loops, and where the logic is not asked
    twice."""
    row = node.input.schema
    key, val = node.key_row, node.val_row
    words = tuple(int(w) for w in row.index(key.names)), tuple(int(w) for w in row.index(val.names))
    arranged = arrange(planner, node.input, node.scope, *words)
    print_ = planner.hash(
        "wave", planner.prints[arranged], key.to_json(), val.to_json(), node.spec.name, node.spec.key()
    )
    scope = planner.scope(node.scope)
    name = node.spec.title
    trace = keep_output(planner, name, key, node.schema.width, scope, print_, steady=node.spec.steady)
    op = WaveOp(
        len(planner.ops), scope, node.schema.width, name, input=arranged, key=key, trace=trace, val=val, spec=node.spec
    )
    return planner.add(op, print_)


BUILDERS: dict[type[logical.Node], Callable[[Planner, Any], int]] = {Reduce: build_reduce}
