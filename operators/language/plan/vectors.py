"""Vectors: differences of the program's own, `group_by("k").agg(vn.Vector(units="qty", revenue=...))`.

A vector is a tuple of int64s that is added component by component, exactly. To group by a key with a vector is to
count with vectors in place of multiplicities: each row contributes its vector times its multiplicity, and a key is
there while its sum is not zero. A count is the vector (1).

Source: "Specializing differential dataflow": what is added up may be any group, mostly a tuple of things.
"""

from __future__ import annotations

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.builders import coalesce
from vernier.operators.language.expr.columns import as_column
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr, Literal
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.types.scalars import Int64, spell
from vernier.operators.language.types.schema import RowType


class Vector:
    """A vector of named Int64 components, for `.agg(...)`: columns, expressions or integers. Null counts as 0.

    A group exists while any of its sums is not 0, however many rows it has: without a component that counts rows, such
    as `n=1`, a group whose sums are all 0 has no row. Sums are exact; one that does not fit 64 bits when it is emitted
    raises AggregateOverflow. Outside loops a group's state is this one vector, and no row is kept.
    """

    def __init__(self, **components: str | int | Expr) -> None:
        if not components:
            raise WrongType(problem='a vector needs components: vn.Vector(n=1, units=col("qty"))')
        self.components = {name: _component(name, given) for name, given in components.items()}

    def aggregations(self, row: RowType) -> dict[str, Aggregation]:
        """The components as aggregates of rows of this type. Raises WrongType for one that is no Int64."""
        found = {}
        for name, expr in self.components.items():
            bound = bind(expr, row)
            if not isinstance(bound.type, Int64):
                kind = spell(bound.type, bound.nullable)
                raise WrongType(problem=f"component {name!r} of a vector is an Int64, but {expr} is {kind}")
            found[name] = Aggregation("component", coalesce(expr, 0) if bound.nullable else expr)
        return found


def _component(name: str, given: str | int | Expr) -> Expr:
    if isinstance(given, int) and not isinstance(given, bool):
        return Literal(given, Int64())
    if not isinstance(given, (str, Expr)):
        raise WrongType(
            problem=f"component {name!r} of a vector is a column, an expression or an integer, not {given!r}"
        )
    return as_column(given)
