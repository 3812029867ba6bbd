"""Typing and computing expressions: give an expression its type for a row type, and compute it for many rows at once.

The meaning is Spark SQL's, with numbers that never wrap: an operator on null gives null; `&`, `|`, `~` are
three-valued; a comparison with null is null; NaN equals NaN and is the greatest Float64, -0.0 equals 0.0; `//` and `%`
truncate towards zero (Spark's `div` and `%`), `/` is Float64 (or Decimal), and all three give null for a zero divisor.
Integers and decimals that do not fit raise an error. An expression that could raise is computed only for the rows that
reach it: the branch of a `when`, the right side of `&` where the left is not false, and of `|` where it is not true.
Everything is vectorised, O(rows) for each part, and only the columns that are used are decoded. The families of
operators are in operators/language/expr/compute/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from vernier.operators.errors import BadValue, WrongType
from vernier.operators.language.expr import arithmetic
from vernier.operators.language.expr.compute.coercion import as_kind, literal_bound
from vernier.operators.language.expr.compute.comparison import BOOL, comparison
from vernier.operators.language.expr.compute.conversion import conversion
from vernier.operators.language.expr.compute.library import call
from vernier.operators.language.expr.compute.logic import boolean, choice, connective, negated, null_test
from vernier.operators.language.expr.compute.operations import arithmetic_of, negation
from vernier.operators.language.expr.compute.vector import Bound, Coded, Heap, Vector, true
from vernier.operators.language.expr.expression import (
    Alias,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    IsNull,
    Literal,
    Nullability,
    Unary,
)
from vernier.operators.language.expr.udf import UserCall, user_call
from vernier.operators.language.types.scalars import Values, Words
from vernier.operators.language.types.schema import RowType

__all__ = ["Bound", "Heap", "RowFunction", "Vector", "bind", "evaluate", "predicate", "project"]


def evaluate(expr: Expr, row: RowType, words: Words, heap: Heap = None) -> Words:
    """Compute one expression: int64[n, width] -> int64[n, k]. To compute it repeatedly, keep `bind(expr,
    row).words`."""
    return bind(expr, row).words(words, heap)


class RowFunction(Protocol):
    """A function of rows int64[n, width] and of the heap with the contents of their long texts."""

    def __call__(self, words: Words, heap: Heap = None) -> Values: ...


def project(exprs: Sequence[Expr], row: RowType) -> RowFunction:
    """A function from rows int64[n, width] to the words of all `exprs` side by side; if all are columns, it only copies
    them."""
    if all(expr.column is not None for expr in exprs):
        index = row.index([str(expr.column) for expr in exprs])
        if np.array_equal(index, np.arange(row.width)):
            return lambda words, heap=None: words
        return lambda words, heap=None: words[:, index]
    parts = [bind(expr, row).words if expr.column is None else _take(row, str(expr.column)) for expr in exprs]
    return lambda words, heap=None: np.hstack([part(words, heap) for part in parts])


def predicate(expr: Expr, row: RowType) -> RowFunction:
    """A function from rows int64[n, width] to bool[n]: True where `expr` is true (not false, not null).

    Raises WrongType when the expression is not Bool.
    """
    bound = bind(expr, row)
    if bound.kind not in (None, BOOL):
        raise WrongType(problem=f"a condition must be Bool, but {bound}")
    typed = as_kind(bound, BOOL)
    return lambda words, heap=None: true(typed.run(words, heap))


def bind(expr: Expr, row: RowType) -> Bound:
    """Give an expression its type for a row type. Raises UnknownColumn and WrongType (errors of the program)."""
    match expr:
        case Column():
            return _column(expr, row)
        case Literal():
            return _literal(expr)
        case Alias():
            return bind(expr.part, row)
        case Unary():
            part = bind(expr.part, row)
            return negation(expr, part) if expr.op == "-" else negated(expr, part)
        case IsNull():
            return null_test(expr, bind(expr.part, row))
        case Cast():
            return _cast(expr, bind(expr.part, row))
        case Nullability():
            return _nullability(expr, bind(expr.part, row))
        case Case():
            values = [value for _, value in expr.branches]
            if expr.default is not None:
                values.append(expr.default)
            conditions = [bind(condition, row) for condition, _ in expr.branches]
            return choice(expr, [boolean(expr, c) for c in conditions], [bind(value, row) for value in values])
        case Binary():
            left, right = bind(expr.left, row), bind(expr.right, row)
            if expr.op in ("&", "|"):
                return connective(expr, left, right)
            return comparison(expr, left, right) if expr.op in arithmetic.COMPARE else arithmetic_of(expr, left, right)
        case Call():
            return call(expr, [bind(part, row) for part in expr.arguments])
        case UserCall():
            return user_call(expr, [bind(part, row) for part in expr.arguments])
    raise WrongType(problem=f"{expr!r} is not an expression that can be computed")


def _take(row: RowType, name: str) -> RowFunction:
    field = row.field(name)
    return lambda words, heap=None: words[:, field.offset : field.offset + field.words]


def _column(expr: Column, row: RowType) -> Bound:
    field = row.field(expr.name)
    kind, start, stop = field.type, field.value_offset, field.offset + field.words

    def code(words: Words, heap: Heap) -> Coded:
        return Coded(words[:, start:stop], words[:, field.offset] != 0 if field.nullable else None)

    def run(words: Words, heap: Heap) -> Vector:
        own, valid = code(words, heap)
        return Vector(kind.from_words(own, heap), valid)

    return Bound(expr, kind, field.nullable, False, run, code)


def _literal(expr: Literal) -> Bound:
    bare = Bound(expr, None, True, False, _typeless)
    return bare if expr.type is None else literal_bound(bare, expr.value, expr.type)


def _typeless(words: Words, heap: Heap) -> Vector:
    return Vector(np.zeros(len(words), np.int64), np.zeros(len(words), np.bool_))


def _cast(expr: Cast, part: Bound) -> Bound:
    kind = expr.type
    if part.kind is None or part.kind == kind:
        typed = as_kind(part, kind)
        return Bound(expr, kind, typed.nullable, typed.fallible, typed.compute, typed.code)
    change = conversion(part.kind, kind)
    if change is None:
        raise WrongType(problem=f"there is no such cast: {part}, wanted is {kind}")
    changed = change

    def run(words: Words, heap: Heap) -> Vector:
        return changed.run(part.compute(words, heap), expr)

    return Bound(expr, kind, part.nullable or change.nulls, part.fallible or change.fallible, run)


def _nullability(expr: Nullability, part: Bound) -> Bound:
    if expr.nullable or not part.nullable:
        return Bound(expr, part.type, expr.nullable, part.fallible, part.compute, part.code)

    def run(words: Words, heap: Heap) -> Vector:
        data, valid = part.compute(words, heap)
        _refuse_null(expr, valid)
        return Vector(data, None)

    def code(words: Words, heap: Heap) -> Coded:
        own, valid = part.coded(words, heap)
        _refuse_null(expr, valid)
        return Coded(own, None)

    return Bound(expr, part.type, False, True, run, code if part.code else None)


def _refuse_null(expr: Expr, valid: Values | None) -> None:
    if valid is not None and not valid.all():
        raise BadValue(column=str(expr), problem="null where a filter should have left none")
