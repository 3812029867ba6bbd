"""Plans loops: an inner scope, its variables, the collections that enter it and those that leave it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vernier.operators.language.plan.loops import Loop, LoopResultNode, LoopRoundsNode, VariableNode
from vernier.operators.language.plan.node import Node
from vernier.operators.planning.loop_ops import LeaveOp, LoopOp, LoopRoundsOp, VariableOp
from vernier.operators.planning.plan import ScopePlan

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def build_loop(planner: Planner, loop: Loop) -> int:
    """The loop as one operator of the scope around it. Loops with the same meaning are built once."""
    bound = tuple(scope for scope in reversed(loop.scope.chain()[1:]) if scope.depth > 0)
    outer_scope = loop.scope.parent
    assert outer_scope is not None
    outer = planner.scope(outer_scope)
    # The meaning of a nested loop depends on where it stands, so its print includes the print of the loop around it.
    meanings = planner.definitions([*loop.initials, *loop.bodies])
    print_ = planner.hash("loop", loop.digest(bound), planner.scope_prints[outer], *meanings)
    if print_ in planner.loops:
        return planner.loops[print_]
    inner = ScopePlan(len(planner.scopes), outer, planner.scopes[outer].depth + 1)
    planner.scopes.append(inner)
    planner.scope_prints.append(print_)
    planner.scope_of[loop.scope] = inner.id
    initials = [planner.into(initial, outer_scope) for initial in loop.initials]
    variables = []
    for index, initial in enumerate(initials):
        schema = loop.initials[index].schema
        op = VariableOp(len(planner.ops), inner.id, schema.width, loop.variables[index], schema, -1, initial)
        op.texts = schema.text_words
        variables.append(op)
        planner.variables[(loop.scope, index)] = planner.add(op, planner.hash("variable", print_, index))
    bodies = [planner.into(body, loop.scope) for body in loop.bodies]
    loop_op = LoopOp(
        len(planner.ops), outer, 0, loop.name, inner.id, loop.name, loop.max_rounds, loop.on_limit == "truncate"
    )
    loop_op.variables = [op.id for op in variables]
    planner.loops[print_] = planner.add(loop_op, print_)
    for variable, body in zip(variables, bodies, strict=True):
        variable.loop = loop_op.id
        variable.feedback = body
        leave = LeaveOp(len(planner.ops), outer, variable.width, loop.name, body, loop_op.id)
        loop_op.leaves.append(planner.add(leave, planner.hash("leave", print_, variable.name, planner.prints[body])))
    return loop_op.id


def build_variable(planner: Planner, node: VariableNode) -> int:
    """The loop's variable, which `build_loop` has already created."""
    return planner.variables[(node.loop.scope, node.index)]


def build_result(planner: Planner, node: LoopResultNode) -> int:
    """The limit of one of a loop's variables."""
    loop = planner.ops[build_loop(planner, node.loop)]
    assert isinstance(loop, LoopOp)
    return loop.leaves[node.index]


def build_rounds(planner: Planner, node: LoopRoundsNode) -> int:
    """The changes of one of a loop's variables by round."""
    loop = planner.ops[build_loop(planner, node.loop)]
    assert isinstance(loop, LoopOp)
    memo = ("rounds", loop.id, node.index)
    if memo not in planner.memo:
        variable = planner.ops[loop.variables[node.index]]
        assert isinstance(variable, VariableOp)
        op = LoopRoundsOp(
            len(planner.ops), loop.scope, node.schema.width, f"rounds of {variable.name}",
            loop.id, variable.initial, variable.feedback,
        )  # fmt: skip
        planner.memo[memo] = planner.add(op, planner.hash("rounds", planner.prints[loop.id], node.index))
        loop.rounds.append(op.id)
    return planner.memo[memo]


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {
    VariableNode: build_variable,
    LoopResultNode: build_result,
    LoopRoundsNode: build_rounds,
}
