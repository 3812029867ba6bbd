"""Functions of numbers as in Spark SQL, except that integers and decimals that do not fit raise.

exp, ln, log10 and pow come from the machine's C library and are applied value by value. Vector instructions are never
used, since their last bit could depend on a value's position in the batch. Equal input therefore gives equal output on
machines of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.errors import WrongType
from vernier.operators.language.expr import arithmetic
from vernier.operators.language.expr.compute import decimals
from vernier.operators.language.expr.compute.calling import literal, need, strict
from vernier.operators.language.expr.compute.coercion import FLOAT, INT, as_kind
from vernier.operators.language.expr.compute.conversion import conversion
from vernier.operators.language.expr.compute.vector import Bound, Heap, Vector
from vernier.operators.language.expr.expression import Call
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Type, Values, Words

Binder = Callable[[Call, Sequence[Bound]], Bound]
_NUMBERS = ("Int64", "Float64", "Decimal")
_DIGITS = 20
"""The most digits before or after the decimal point to which a number can be rounded."""


def _vectors(expr: Call, kind: Type, part: Bound, compute: Callable[[Vector], Vector], fallible: bool) -> Bound:
    def run(words: Words, heap: Heap) -> Vector:
        return compute(part.compute(words, heap))

    return Bound(expr, kind, part.nullable, fallible or part.fallible, run)


def _abs(expr: Call, arguments: Sequence[Bound]) -> Bound:
    part = arguments[0]
    kind = need(expr, part, *_NUMBERS)

    def compute(vector: Vector) -> Vector:
        if isinstance(kind, Decimal):
            return Vector(decimals.packed(abs(decimals.unscaled(vector)), kind, vector.valid), vector.valid)
        if kind == FLOAT:
            return Vector(np.abs(vector.data), vector.valid)
        positive = arithmetic.negated(np.where(vector.data < 0, vector.data, 0), vector.valid, expr)
        return Vector(np.where(vector.data < 0, positive, vector.data), vector.valid)

    return _vectors(expr, kind, part, compute, kind == INT)


def _whole(mode: str) -> Binder:
    def bind(expr: Call, arguments: Sequence[Bound]) -> Bound:
        part = arguments[0]
        kind = need(expr, part, *_NUMBERS)
        if kind == INT:
            return Bound(expr, kind, part.nullable, part.fallible, part.compute, part.code)
        if isinstance(kind, Decimal):
            target = decimals.adjusted(kind.precision - kind.scale + 1, 0)
            scale = kind.scale

            def cut(vector: Vector) -> Vector:
                values = decimals.truncated(decimals.unscaled(vector), scale, mode)
                decimals.check(values, target, vector.valid, expr, vector.data)
                return Vector(decimals.packed(values, target, vector.valid), vector.valid)

            return _vectors(expr, target, part, cut, True)
        function = np.floor if mode == "floor" else np.ceil

        def compute(vector: Vector) -> Vector:
            return Vector(arithmetic.truncate(function(vector.data), vector.valid, expr), vector.valid)

        return _vectors(expr, INT, part, compute, True)

    return bind


def _round(expr: Call, arguments: Sequence[Bound]) -> Bound:
    part = arguments[0]
    kind = need(expr, part, *_NUMBERS)
    digits = literal(expr, arguments[1], "a number of digits", int)
    if abs(digits) > _DIGITS:
        raise WrongType(problem=f"{expr} rounds to {digits} digits, but only {-_DIGITS} to {_DIGITS} are possible")
    if isinstance(kind, Decimal):
        return _round_decimal(expr, part, kind, digits)
    if kind == INT:
        if digits >= 0:
            return Bound(expr, kind, part.nullable, part.fallible, part.compute, part.code)

        def whole(vector: Vector) -> Vector:
            data = vector.data if vector.valid is None else np.where(vector.valid, vector.data, 0)
            values = decimals.rescaled(decimals.rescaled(data.astype(object), digits), -digits)
            wrong = ((values >= 2**63) | (values < -(2**63))).astype(np.bool_)
            arithmetic.check(wrong, vector.valid, expr, vector.data)
            return Vector(values.astype(np.int64), vector.valid)

        return _vectors(expr, INT, part, whole, True)
    if digits < 0:

        def tens(vector: Vector) -> Vector:
            data = vector.data if vector.valid is None else np.where(vector.valid, vector.data, 0.0)
            return Vector(_round_tens(data, -digits, expr), vector.valid)

        return _vectors(expr, FLOAT, part, tens, False)

    def compute(vector: Vector) -> Vector:
        data, power = vector.data, 10.0**digits
        magnitude = np.abs(data)
        # Doubles from 2**52 on are integers. They, inf, NaN and nulls stay unchanged.
        some = magnitude < 2.0**52 if vector.valid is None else (magnitude < 2.0**52) & vector.valid
        scaled = np.where(some, magnitude, 0.0) * power
        # Integers below 2**53 and powers of ten up to the 22nd are exact, so one division rounds once. Near a tie,
        # where the last bits of the product decide, the decimal digits are used instead.
        near = np.abs(scaled - np.floor(scaled) - 0.5) <= scaled * 2.0**-50
        sure = some & (scaled < 2.0**50) & ~near
        out = np.where(sure, np.copysign(np.rint(scaled) / power, data), data)
        rest = some & ~sure
        if rest.any():
            out[rest] = _round_digits(data[rest], digits, expr)
        return Vector(out, vector.valid)

    return _vectors(expr, FLOAT, part, compute, False)


def _round_digits(data: Values, digits: int, expr: Call) -> Values:
    """Doubles rounded by their shortest decimal text, which fits 38 digits."""
    target = Decimal(38, max(digits, 0))
    there, back = conversion(FLOAT, target), conversion(target, FLOAT)
    if there is None or back is None:
        raise WrongType(problem=f"{expr} cannot be computed")
    vector = there.run(Vector(data, None), expr)
    if digits < 0:
        values = decimals.rescaled(decimals.rescaled(decimals.unscaled(vector), digits), -digits)
        vector = Vector(decimals.packed(values, target), None)
    rounded: Values = back.run(vector, expr).data
    return rounded


def _round_tens(data: Values, digits: int, expr: Call) -> Values:
    """Doubles rounded before the decimal point, halves away from zero; inf and NaN stay unchanged."""
    power = 10.0**digits
    magnitude = np.abs(data)
    whole = magnitude < 2.0**53
    rest = np.fmod(np.where(whole, magnitude, 0.0), power)  # exact
    rounded = np.where(whole, magnitude, 0.0) - rest + np.where(2 * rest >= power, power, 0.0)
    out = np.where(whole, np.copysign(rounded, data), data)
    # Two larger doubles have several integers between them, so their text decides. From 10**37 on there is nothing to
    # round.
    large = ~whole & (magnitude < 1e37)
    if large.any():
        out[large] = _round_digits(data[large], -digits, expr)
    return out


def _round_decimal(expr: Call, part: Bound, kind: Decimal, digits: int) -> Bound:
    whole = kind.precision - kind.scale + 1
    scale = min(kind.scale, max(digits, 0))
    target = Decimal(min(whole + scale if digits >= 0 else max(whole, 1 - digits), decimals.MAX_PRECISION), scale)

    def compute(vector: Vector) -> Vector:
        values = decimals.rescaled(decimals.unscaled(vector), min(digits, kind.scale) - kind.scale)
        values = decimals.rescaled(values, scale - min(digits, kind.scale))
        decimals.check(values, target, vector.valid, expr, vector.data)
        return Vector(decimals.packed(values, target, vector.valid), vector.valid)

    return _vectors(expr, target, part, compute, True)


def _sign(expr: Call, arguments: Sequence[Bound]) -> Bound:
    need(expr, arguments[0], *_NUMBERS)
    return _vectors(expr, FLOAT, as_kind(arguments[0], FLOAT), lambda v: Vector(np.sign(v.data), v.valid), False)


def _is_nan(expr: Call, arguments: Sequence[Bound]) -> Bound:
    part = arguments[0]
    need(expr, part, "Float64")

    def compute(vector: Vector) -> Vector:
        found = np.isnan(vector.data)
        return Vector(found if vector.valid is None else found & vector.valid, None)

    made = _vectors(expr, Bool(), part, compute, False)
    return Bound(expr, Bool(), False, made.fallible, made.compute)


def _float(compute: Callable[[pa.Array], pa.Array], above_zero: bool = False) -> Binder:
    """A function of doubles; above_zero: null for values that are not above 0."""

    def apply(array: pa.Array) -> pa.Array:
        if above_zero:
            array = pc.if_else(pc.less_equal(array, 0.0), pa.scalar(None, array.type), array)
        return compute(array)

    def bind(expr: Call, arguments: Sequence[Bound]) -> Bound:
        for bound in arguments:
            need(expr, bound, *_NUMBERS)
        return strict(expr, FLOAT, [as_kind(arguments[0], FLOAT)], apply, nulls=above_zero)

    return bind


def _pow(expr: Call, arguments: Sequence[Bound]) -> Bound:
    for bound in arguments:
        need(expr, bound, *_NUMBERS)

    def power(base: pa.Array, exponent: pa.Array) -> pa.Array:
        # Java and C differ where the base is 1 or -1 and the exponent is NaN or infinite.
        odd = pc.and_(pc.equal(pc.abs(base), 1.0), pc.invert(pc.is_finite(exponent)))
        return pc.if_else(odd, float("nan"), pc.power(base, exponent))

    return strict(expr, FLOAT, [as_kind(bound, FLOAT) for bound in arguments], power)


def _hash(expr: Call, arguments: Sequence[Bound]) -> Bound:
    if not arguments:
        raise WrongType(problem="hash needs at least one value")
    for bound in arguments:
        bound.type  # noqa: B018  # raises for a bare null

    def run(words: Words, heap: Heap) -> Vector:
        from vernier.storage.kernels.hashing import key_rows  # brings numba, which building a program does not need

        columns = []
        for bound in arguments:
            own, valid = bound.coded(words, heap)
            known = np.ones(len(words), np.bool_) if valid is None else valid
            columns += [known[:, None].astype(np.int64), np.where(known[:, None], own, 0)]
        matrix = np.ascontiguousarray(np.hstack(columns))
        none = np.empty(0, np.int64)
        hashed = key_rows(matrix, np.arange(matrix.shape[1]), none, 0)
        return Vector(np.ascontiguousarray(hashed[:, 0]), None)

    return Bound(expr, INT, False, any(bound.fallible for bound in arguments), run)


NUMBER_CALLS: dict[str, Binder] = {
    "abs": _abs,
    "sign": _sign,
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
    "round": _round,
    "sqrt": _float(pc.sqrt),
    "pow": _pow,
    "exp": _float(pc.exp),
    "ln": _float(pc.ln, above_zero=True),
    "log10": _float(pc.log10, above_zero=True),
    "is_nan": _is_nan,
    "hash": _hash,
}
"""Functions by name."""
