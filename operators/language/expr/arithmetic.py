"""Checked arithmetic on numpy arrays: what the operators of expressions compute, and where they overflow.

All functions take arrays of n values, `valid` (False where an operand is null; None when none is) and the expression,
for the text of an error. Null rows may hold any value and never raise. O(n), a few passes.
"""

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from vernier.operators.errors import ArithmeticOverflow
from vernier.operators.language.expr.expression import Binary, Expr
from vernier.operators.language.types.scalars import DATE_MAX, DATE_MIN, Values

Compute = Callable[[Values, Values, Values | None, Expr], Values]
Convert = Callable[[Values, Values | None, Expr], Values]

_MIN = np.int64(-(2**63))
_DAY_NS = 86_400_000_000_000
_HALF = np.int64(2**31)


def _add(a: Values, b: Values, valid: Values | None, expr: Expr) -> Values:
    total = a + b
    check((a ^ total) & (b ^ total) < 0, valid, expr, a, b)
    return total


def _subtract(a: Values, b: Values, valid: Values | None, expr: Expr) -> Values:
    difference = a - b
    check((a ^ b) & (a ^ difference) < 0, valid, expr, a, b)
    return difference


def _multiply(a: Values, b: Values, valid: Values | None, expr: Expr) -> Values:
    product: Values = a * b
    if len(a) and not (_small(a) and _small(b)):
        # A wrapped product is off by a multiple of 2**64, so dividing it by a cannot yield b. Only MIN * -1 escapes
        # this test.
        safe = np.where(a == 0, 1, a)
        with np.errstate(over="ignore"):
            wrong = (a != 0) & ((product // safe != b) | ((a == -1) & (b == _MIN)))
        check(wrong, valid, expr, a, b)
    return product


def _small(values: Values) -> bool:
    return bool(values.max() < _HALF and values.min() > -_HALF)


def _truncated_quotient(a: Values, b: Values, valid: Values | None, expr: Expr) -> Values:
    check((a == _MIN) & (b == -1), valid, expr, a, b)
    safe = np.where((b == 0) | ((a == _MIN) & (b == -1)), 1, b)
    quotient: Values = (a - np.fmod(a, safe)) // safe
    return quotient


def _truncated_remainder(a: Values, b: Values, valid: Values | None, expr: Expr) -> Values:
    remainder: Values = np.fmod(a, np.where((b == 0) | (b == -1), 1, b))
    return remainder


def _quiet(function: Callable[[Values, Values], Values]) -> Compute:
    """IEEE arithmetic: infinities and NaN are values, not errors."""

    def compute(a: Values, b: Values, valid: Values | None, expr: Expr) -> Values:
        with np.errstate(all="ignore"):
            return function(a, b)

    return compute


def negated(data: Values, valid: Values | None, expr: Expr) -> Values:
    """-x of Int64, which overflows for the least value, or of Float64."""
    if data.dtype == np.float64:
        return -data
    return _subtract(np.zeros_like(data), data, valid, expr)


EXACT: dict[str, Compute] = {"+": _add, "-": _subtract, "*": _multiply}
FLOAT: dict[str, Compute] = {"+": _quiet(np.add), "-": _quiet(np.subtract), "*": _quiet(np.multiply)}
DIVIDE: dict[tuple[str, str], Compute] = {
    ("/", "Float64"): _quiet(np.divide),
    ("//", "Int64"): _truncated_quotient,
    ("%", "Int64"): _truncated_remainder,
    ("%", "Float64"): _quiet(np.fmod),
}
COMPARE: dict[str, Callable[[Values, Values], Values]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def truncate(data: Values, valid: Values | None, expr: Expr) -> Values:
    """Float64 to Int64, towards zero. Raises ArithmeticOverflow for NaN and for values that do not fit."""
    fits = (data >= -(2.0**63)) & (data < 2.0**63)  # false for NaN
    check(~fits, valid, expr, data)
    return np.where(fits, data, 0.0).astype(np.int64)


def _midnight(days: Values, valid: Values | None, expr: Expr) -> Values:
    fits = (days >= _MIN // _DAY_NS + 1) & (days <= (2**63 - 1) // _DAY_NS)
    check(~fits, valid, expr, days)
    return np.where(fits, days, 0) * _DAY_NS


CONVERT: dict[tuple[str, str], Convert] = {
    ("Int64", "Float64"): lambda data, valid, expr: data.astype(np.float64),
    ("Float64", "Int64"): truncate,
    ("Bool", "Int64"): lambda data, valid, expr: data.astype(np.int64),
    ("Bool", "Float64"): lambda data, valid, expr: data.astype(np.float64),
    ("Int64", "Bool"): lambda data, valid, expr: data != 0,
    ("Float64", "Bool"): lambda data, valid, expr: data != 0,
    ("Date", "TimestampNs"): _midnight,
    ("TimestampNs", "Date"): lambda data, valid, expr: data // _DAY_NS,
    ("TimestampNs", "Int64"): lambda data, valid, expr: data,
    ("Int64", "TimestampNs"): lambda data, valid, expr: data,
}
FALLIBLE = {("Float64", "Int64"), ("Date", "TimestampNs")}
"""The conversions that can raise."""


def check_date(days: Values, valid: Values | None, expr: Expr) -> None:
    """Raise ArithmeticOverflow for days outside the years 1 to 9999, which Date holds."""
    check((days < DATE_MIN) | (days > DATE_MAX), valid, expr, days)


def check(wrong: Values, valid: Values | None, expr: Expr, *operands: Any) -> None:
    """Raise ArithmeticOverflow where `wrong` is True in a row that is not null, with the operands of the first such
    row."""
    if valid is not None:
        wrong = wrong & valid
    if wrong.any():
        _overflow(int(np.argmax(wrong)), expr, *operands)


def _overflow(i: int, expr: Expr, *operands: Any) -> NoReturn:
    values = [operand[i].item() if isinstance(operand, np.ndarray) else operand[i] for operand in operands]
    if len(values) == 2 and isinstance(expr, Binary):
        sample = f"{values[0]} {expr.op} {values[1]}"
    else:
        sample = f"the value {values[-1]}"
    raise ArithmeticOverflow(expression=str(expr), sample=sample)
