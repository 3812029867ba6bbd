"""`+ - * / // %` and `-x`: the types they accept, their result types, and the kernels that compute them.

Int64, Float64 and Decimal behave as in Spark SQL, except that integers and decimals never wrap or become null: they
raise. Date and TimestampNs plus or minus Int64 (days, nanoseconds), and their differences. `+` concatenates String,
Binary and List.
"""

from __future__ import annotations

import numpy as np

from vernier.operators.errors import WrongType
from vernier.operators.language.expr import arithmetic
from vernier.operators.language.expr.compute import decimals
from vernier.operators.language.expr.compute.coercion import FLOAT, INT, as_decimal_type, as_kind, meeting, narrowed
from vernier.operators.language.expr.compute.lists import joined_lists
from vernier.operators.language.expr.compute.vector import Bound, Heap, Vector, as_arrow, both, from_arrow, joined
from vernier.operators.language.expr.expression import Binary, Expr, Unary
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Date, TimestampNs, Type, Words
from vernier.operators.language.types.texts import List

_DATE, _TIME = Date(), TimestampNs()
_NUMBERS = {"Int64", "Float64", "Decimal"}


def arithmetic_of(expr: Binary, left: Bound, right: Bound) -> Bound:
    """left `op` right for + - * / // %. Raises WrongType."""
    kind = left.kind or right.kind or INT
    left = left if left.kind else as_kind(left, kind)
    right = right if right.kind else as_kind(right, kind)
    pair = {left.type.name, right.type.name}
    if "Decimal" in pair and pair <= {"Int64", "Decimal"}:
        return _decimal(expr, left, right)
    if expr.op in ("/", "//", "%"):
        return _divide(expr, left, right)
    if expr.op == "+" and left.type.name in ("String", "Binary", "List"):
        return join(expr, left, right)
    return _arithmetic(expr, left, right)


def _result_type(op: str, left: Type, right: Type) -> Type | None:
    """The type of left `op` right for + - *, without decimals; None when there is none."""
    pair = {left.name, right.name}
    if pair <= _NUMBERS:
        return FLOAT if "Float64" in pair else INT
    for kind in (_DATE, _TIME):
        if (op in "+-" and left == kind and right == INT) or (op == "+" and left == INT and right == kind):
            return kind
        if op == "-" and left == kind and right == kind:
            return INT
    return None


def _arithmetic(expr: Binary, left: Bound, right: Bound) -> Bound:
    kind = _result_type(expr.op, left.type, right.type)
    if kind is None:
        raise WrongType(problem=f"{expr} cannot be computed: {left}, {right}")
    if kind == FLOAT:
        left, right = as_kind(left, FLOAT), as_kind(right, FLOAT)
    compute = arithmetic.FLOAT[expr.op] if kind == FLOAT else arithmetic.EXACT[expr.op]

    def run(words: Words, heap: Heap) -> Vector:
        a, b = left.compute(words, heap), right.compute(words, heap)
        valid = both(a, b)
        data = compute(a.data, b.data, valid, expr)
        if kind == _DATE:
            arithmetic.check_date(data, valid, expr)
        return Vector(data, valid)

    fallible = kind != FLOAT or left.fallible or right.fallible
    return Bound(expr, kind, left.nullable or right.nullable, fallible, run)


def never_zero(bound: Bound) -> bool:
    return bound.literal is not None and bool(bound.literal.value)


def _divide(expr: Binary, left: Bound, right: Bound) -> Bound:
    pair = {left.type.name, right.type.name}
    if not pair <= _NUMBERS or (expr.op == "//" and "Float64" in pair):
        hint = "; // is for Int64, so cast the operands or use /" if pair <= _NUMBERS else ""
        raise WrongType(problem=f"{expr} cannot be computed: {left}, {right}{hint}")
    kind: Type = FLOAT if expr.op == "/" or "Float64" in pair else INT
    divisible = never_zero(right)
    left, right = as_kind(left, kind), as_kind(right, kind)
    compute = arithmetic.DIVIDE[(expr.op, kind.name)]

    def run(words: Words, heap: Heap) -> Vector:
        a, b = left.compute(words, heap), right.compute(words, heap)
        valid = both(a, b)
        if not divisible:
            valid = (b.data != 0) if valid is None else valid & (b.data != 0)
        return Vector(compute(a.data, b.data, valid, expr), valid)

    nullable = left.nullable or right.nullable or not divisible
    return Bound(expr, kind, nullable, expr.op == "//" or left.fallible or right.fallible, run)


def _decimal(expr: Binary, left: Bound, right: Bound) -> Bound:
    a_kind, b_kind = (as_decimal_type(narrowed(bound) or bound.type) for bound in (left, right))
    divides = expr.op in ("/", "//", "%")
    divisible = not divides or never_zero(right)
    left, right = as_kind(left, a_kind), as_kind(right, b_kind)
    target = decimals.result_type(expr.op, a_kind, b_kind)
    whole = expr.op == "//"

    def run(words: Words, heap: Heap) -> Vector:
        one, two = left.compute(words, heap), right.compute(words, heap)
        valid = both(one, two)
        a, b = decimals.unscaled(one), decimals.unscaled(two)
        if not divisible:
            there = (b != 0).astype(np.bool_)
            valid = there if valid is None else valid & there
        if whole:
            values = decimals.whole_quotient(a, b, a_kind, b_kind)
            if values.dtype == object:
                wrong = ((values >= 2**63) | (values < -(2**63))).astype(np.bool_)
                arithmetic.check(wrong, valid, expr, one.data, two.data)
                values = np.where(wrong, 0, values).astype(np.int64)
            return Vector(values, valid)
        values = decimals.KERNELS[expr.op](a, b, a_kind, b_kind, target)
        decimals.check(values, target, valid, expr, one.data, two.data)
        return Vector(decimals.packed(values, target, valid), valid)

    nullable = left.nullable or right.nullable or not divisible
    return Bound(expr, INT if whole else target, nullable, True, run)


def join(expr: Expr, left: Bound, right: Bound) -> Bound:
    """Two texts, or two lists, concatenated. Raises WrongType."""
    kind = meeting(left.type, right.type)
    if kind is None:
        hint = "; write .cast(vn.String)" if left.type.name == "String" else ""
        raise WrongType(problem=f"{expr} cannot be computed: {left}, {right}{hint}")
    left, right = as_kind(left, kind), as_kind(right, kind)

    def run(words: Words, heap: Heap) -> Vector:
        one, two = (as_arrow(bound.compute(words, heap), kind) for bound in (left, right))
        if isinstance(kind, List):
            return joined_lists([one, two], kind)
        return from_arrow(joined(one, two, by="" if kind.name == "String" else b""), kind)

    return Bound(expr, kind, left.nullable or right.nullable, left.fallible or right.fallible, run)


def negation(expr: Unary, part: Bound) -> Bound:
    """-x. Raises WrongType."""
    kind = part.type
    if kind.name not in _NUMBERS:
        raise WrongType(problem=f"{expr} cannot be computed: {part}")

    def run(words: Words, heap: Heap) -> Vector:
        vector = part.compute(words, heap)
        if isinstance(kind, Decimal):
            return Vector(decimals.packed(-decimals.unscaled(vector), kind, vector.valid), vector.valid)
        return Vector(arithmetic.negated(vector.data, vector.valid, expr), vector.valid)

    return Bound(expr, kind, part.nullable, kind == INT or part.fallible, run)
