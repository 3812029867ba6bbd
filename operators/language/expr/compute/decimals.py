"""Decimal arithmetic: exact integers with a scale, Spark SQL's result types, rounding half away from zero.

Decimals are computed as their unscaled integers. If every intermediate value of the batch fits int64, as it nearly
always does, int64 is used; otherwise Python's integers (numpy object arrays). Precision is checked at the end. Source
of the result types: Spark's DecimalPrecision and DecimalType.adjustPrecisionScale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from vernier.operators.errors import DecimalOverflow
from vernier.operators.language.expr.compute.vector import Vector
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Values

MAX_PRECISION, MIN_SCALE = 38, 6
TOO_LARGE = 10**MAX_PRECISION
"""An unscaled value that does not fit any Decimal type."""
_WORD = 1 << 64
_SAFE = 1 << 62


def adjusted(precision: int, scale: int) -> Decimal:
    """The type nearest to (precision, scale) with at most 38 digits. Digits before the decimal point take precedence
    over those after it, of which up to 6 are kept."""
    if precision <= MAX_PRECISION:
        return Decimal(precision, scale)
    return Decimal(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), min(scale, MIN_SCALE)))


def result_type(op: str, a: Decimal, b: Decimal) -> Decimal:
    """The type of `a op b` for + - * / % as in Spark SQL."""
    whole, other = a.precision - a.scale, b.precision - b.scale
    scale = max(a.scale, b.scale)
    if op in "+-":
        return adjusted(max(whole, other) + scale + 1, scale)
    if op == "*":
        return adjusted(a.precision + b.precision + 1, a.scale + b.scale)
    if op == "/":
        behind = max(MIN_SCALE, a.scale + b.precision + 1)
        return adjusted(whole + b.scale + behind, behind)
    return adjusted(min(whole, other) + scale, scale)


def wider(a: Decimal, b: Decimal) -> Decimal:
    """The type that holds the values of both, as far as 38 digits allow."""
    scale = max(a.scale, b.scale)
    return adjusted(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def unscaled(vector: Vector) -> Values:
    """The integers of a decimal128 array: int64[n], or Python integers where one is large; 0 for nulls."""
    array = vector.data
    pairs = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), array.offset * 16).reshape(-1, 2)
    low, high = np.ascontiguousarray(pairs[:, 0]), pairs[:, 1]
    if vector.valid is not None:
        low, high = np.where(vector.valid, low, 0), np.where(vector.valid, high, 0)
    if (high == low >> 63).all() and _peak(low) < _SAFE:
        return low
    large: Values = high.astype(object) * _WORD + low.view(np.uint64).astype(object)
    return large


def packed(values: Values, kind: Decimal, valid: Values | None = None) -> pa.Array:
    """The inverse of `unscaled`: decimal128 of these integers, which fit 38 digits where `valid` (None: everywhere)."""
    if valid is not None:
        values = np.where(valid, values, 0)
    pairs = np.empty((len(values), 2), np.int64)
    if values.dtype == object:
        pairs[:, 0] = (values & (_WORD - 1)).astype(np.uint64).view(np.int64)
        pairs[:, 1] = (values >> 64).astype(np.int64)
    else:
        pairs[:, 0], pairs[:, 1] = values, values >> 63
    return pa.Array.from_buffers(pa.decimal128(kind.precision, kind.scale), len(values), [None, pa.py_buffer(pairs)])


def add(a: Values, b: Values, left: Decimal, right: Decimal, target: Decimal) -> Values:
    """a + b at the target's scale."""
    scale = max(left.scale, right.scale)
    a, b = _raised(a, scale - left.scale), _raised(b, scale - right.scale)
    if _peak(a) + _peak(b) >= _SAFE:
        a, b = a.astype(object), b.astype(object)
    return rescaled(a + b, target.scale - scale)


def subtract(a: Values, b: Values, left: Decimal, right: Decimal, target: Decimal) -> Values:
    """a - b at the target's scale."""
    return add(a, -b, left, right, target)


def multiply(a: Values, b: Values, left: Decimal, right: Decimal, target: Decimal) -> Values:
    """a * b at the target's scale."""
    return rescaled(_product(a, b), target.scale - left.scale - right.scale)


def divide(a: Values, b: Values, left: Decimal, right: Decimal, target: Decimal) -> Values:
    """a / b at the target's scale, rounded once; arbitrary for a zero divisor."""
    power = target.scale - left.scale + right.scale
    a, b = _raised(a, max(0, power)), _raised(b, max(0, -power))
    return _rounded_quotient(a, np.where(b == 0, 1, b))


def remainder(a: Values, b: Values, left: Decimal, right: Decimal, target: Decimal) -> Values:
    """a % b with the sign of a, as in Spark; arbitrary for a zero divisor."""
    scale = max(left.scale, right.scale)
    a, b = _raised(a, scale - left.scale), _raised(b, scale - right.scale)
    positive = abs(a) % abs(np.where(b == 0, 1, b))
    return rescaled(np.where(a < 0, -positive, positive), target.scale - scale)


KERNELS = {"+": add, "-": subtract, "*": multiply, "/": divide, "%": remainder}
"""By the operator's symbol."""


def whole_quotient(a: Values, b: Values, left: Decimal, right: Decimal) -> Values:
    """a // b towards zero, as an integer; arbitrary for a zero divisor."""
    scale = max(left.scale, right.scale)
    a, b = _raised(a, scale - left.scale), _raised(b, scale - right.scale)
    positive = abs(a) // abs(np.where(b == 0, 1, b))
    return np.where((a < 0) != (b < 0), -positive, positive)


def rescaled(values: Values, by: int) -> Values:
    """The integers with `by` more digits after the decimal point; if negative, fewer, rounded half away from zero."""
    return _raised(values, by) if by >= 0 else _rounded_quotient(values, _power(-by))


def truncated(values: Values, digits: int, mode: str) -> Values:
    """The integers without their last `digits`: mode "trunc" towards zero, "floor" down, "ceil" up."""
    divisor = 10**digits
    if divisor >= _SAFE:
        values = values.astype(object)
    down: Values = (abs(values) if mode == "trunc" else -values if mode == "ceil" else values) // divisor
    if mode == "trunc":
        return np.where(values < 0, -down, down)
    return -down if mode == "ceil" else down


def check(values: Values, kind: Decimal, valid: Values | None, expr: Expr, *operands: Any) -> None:
    """Raise DecimalOverflow, naming the expression and a row, when a value has more digits than its type holds."""
    if kind.precision > 18 and values.dtype != object:
        return
    limit = 10**kind.precision
    wrong = (values >= limit) | (values <= -limit)
    if valid is not None:
        wrong = wrong & valid
    if wrong.any():
        row = int(np.argmax(wrong))
        shown = ", ".join(str(o[row].as_py() if isinstance(o, pa.Array) else o[row]) for o in operands)
        raise DecimalOverflow(expression=str(expr), sample=shown, type=str(kind))


def _power(digits: int) -> Values:
    return np.array(10**digits, np.int64 if digits <= 18 else object)


def _peak(values: Values) -> int:
    return max(abs(int(values.max())), abs(int(values.min()))) if len(values) else 0


def _raised(values: Values, by: int) -> Values:
    return values if by == 0 else _product(values, _power(by))


def _product(a: Values, b: Values) -> Values:
    peak = abs(int(b)) if b.ndim == 0 else _peak(b)
    if a.dtype == object or b.dtype == object or _peak(a) * peak >= _SAFE:
        a, b = a.astype(object), b.astype(object)
    product: Values = np.asarray(a * b)
    return product


def _rounded_quotient(a: Values, b: Values) -> Values:
    """a / b, rounded half away from zero: 2|a| + |b| over 2|b|."""
    peak = abs(int(b)) if b.ndim == 0 else _peak(b)
    if a.dtype == object or b.dtype == object or 2 * _peak(a) + peak >= _SAFE or peak >= _SAFE // 2:
        a, b = a.astype(object), b.astype(object)
    positive: Values = (2 * abs(a) + abs(b)) // (2 * abs(b))
    return np.where((a < 0) != (b < 0), -positive, positive)
