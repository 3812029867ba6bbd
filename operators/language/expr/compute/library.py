"""The table of functions by name: which arguments they take and how they are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.compute import logic
from vernier.operators.language.expr.compute.numbers import NUMBER_CALLS
from vernier.operators.language.expr.compute.parts import PART_CALLS
from vernier.operators.language.expr.compute.texts import TEXT_CALLS
from vernier.operators.language.expr.compute.times import TIME_CALLS
from vernier.operators.language.expr.compute.vector import Bound
from vernier.operators.language.expr.expression import Call

Binder = Callable[[Call, Sequence[Bound]], Bound]

LIBRARY: dict[str, Binder] = {
    **TEXT_CALLS,
    **NUMBER_CALLS,
    **TIME_CALLS,
    **PART_CALLS,
    "coalesce": logic.first_value,
    "greatest": lambda expr, values: logic.extreme(expr, ">", values),
    "least": lambda expr, values: logic.extreme(expr, "<", values),
    "is_in": lambda expr, values: logic.membership(expr, values[0], values[1:]),
    "eq_null_safe": lambda expr, values: logic.null_safe_equal(expr, values[0], values[1]),
}


def call(expr: Call, arguments: Sequence[Bound]) -> Bound:
    """The call, with its type. Raises WrongType."""
    binder = LIBRARY.get(expr.function)
    if binder is None:
        raise WrongType(problem=f"there is no function {expr.function!r}")
    return binder(expr, arguments)
