"""Three-valued logic and choices between values: `& | ~`, is_null, when/otherwise, coalesce, is_in, greatest, least.

A part that could raise is computed only for the rows that reach it: the branch of a `when`, the right side of `&` where
the left is not false and of `|` where it is not true, an argument of coalesce where all before it are null.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.compute.coercion import as_kind, common
from vernier.operators.language.expr.compute.comparison import BOOL, compare, tester
from vernier.operators.language.expr.compute.vector import Bound, Coded, Heap, Vector, both, false, merge, on_rows, true
from vernier.operators.language.expr.expression import Binary, Case, Expr, IsNull, Unary
from vernier.operators.language.types.scalars import Type, Values, Words


def null_test(expr: IsNull, part: Bound) -> Bound:
    """x.is_null(); never null."""

    def run(words: Words, heap: Heap) -> Vector:
        return Vector(~_there(part, words, heap), None)

    return Bound(expr, BOOL, False, part.fallible, run)


def negated(expr: Unary, part: Bound) -> Bound:
    """~x. Raises WrongType unless x is Bool."""
    part = boolean(expr, part)

    def run(words: Words, heap: Heap) -> Vector:
        data, valid = part.compute(words, heap)
        return Vector(~data, valid)

    return Bound(expr, BOOL, part.nullable, part.fallible, run)


def boolean(expr: Expr, part: Bound) -> Bound:
    """A part that must be Bool. Raises WrongType."""
    if part.kind not in (None, BOOL):
        raise WrongType(
            problem=f"{expr} needs Bool on each side, but {part}; put comparisons in parentheses: (a > 1) & (b < 2)"
        )
    return as_kind(part, BOOL)


def connective(expr: Binary, left: Bound, right: Bound) -> Bound:
    """`&` and `|`. Raises WrongType unless both sides are Bool."""
    left, right = boolean(expr, left), boolean(expr, right)
    decides = false if expr.op == "&" else true

    def run(words: Words, heap: Heap) -> Vector:
        a = left.compute(words, heap)
        b = on_rows(right, words, heap, ~decides(a))
        decided = decides(a) | decides(b)
        # Rows that no side decides are null or, if neither side is null, true for `&` and false for `|`.
        data = ~decided if expr.op == "&" else decided
        valid = both(a, b)
        return Vector(data, None if valid is None else valid | decided)

    return Bound(expr, BOOL, left.nullable or right.nullable, left.fallible or right.fallible, run)


def choice(expr: Case, conditions: Sequence[Bound], values: Sequence[Bound]) -> Bound:
    """when/otherwise: one value for each condition, perhaps followed by a default. Raises WrongType."""
    conditions = [boolean(expr, condition) for condition in conditions]
    kind = _type_of(expr, values)
    values = [as_kind(value, kind) for value in values]
    nullable = len(values) == len(conditions) or any(value.nullable for value in values)

    def reached(words: Words, heap: Heap) -> list[Values]:
        """For each value, the rows that take it."""
        left = np.ones(len(words), np.bool_)
        found = []
        for condition in conditions:
            rows = left & true(on_rows(condition, words, heap, left))
            found.append(rows)
            left = left & ~rows
        return [*found, left][: len(values)]

    def run(words: Words, heap: Heap) -> Vector:
        rows = reached(words, heap)
        pieces = [(some, on_rows(value, words, heap, some)) for some, value in zip(rows, values, strict=True)]
        data, valid = merge(pieces, kind, len(words))
        return Vector(data, valid if nullable else None)

    def code(words: Words, heap: Heap) -> Coded:
        out, valid = np.zeros((len(words), kind.words), np.int64), np.zeros(len(words), np.bool_)
        for some, value in zip(reached(words, heap), values, strict=True):
            one, there = value.coded(words, heap)
            out[some] = one[some]
            valid[some] = True if there is None else there[some]
        return Coded(out, valid if nullable else None)

    # If the words of all values are available, choose between words, so that no text is read.
    by_words = not kind.plain and all(value.code is not None and not value.fallible for value in values)
    fallible = any(bound.fallible for bound in (*conditions, *values))
    return Bound(expr, kind, nullable, fallible, run, code if by_words else None)


def _type_of(expr: Expr, values: Sequence[Bound]) -> Type:
    kind = common(values, str(expr))
    if kind is None:
        raise WrongType(problem=f"all values of {expr} are null of no type; write e.g. lit(None).cast(vn.Int64)")
    return kind


def first_value(expr: Expr, values: Sequence[Bound]) -> Bound:
    """coalesce: the first value that is not null. Raises WrongType."""
    kind = _type_of(expr, values)
    values = [as_kind(value, kind) for value in values]

    def run(words: Words, heap: Heap) -> Vector:
        left = np.ones(len(words), np.bool_)
        pieces = []
        for value in values:
            vector = on_rows(value, words, heap, left)
            rows = left if vector.valid is None else left & vector.valid
            pieces.append((rows, vector))
            left = left & ~rows
            if not left.any():
                break
        return merge(pieces, kind, len(words))

    def code(words: Words, heap: Heap) -> Coded:
        out, known = np.zeros((len(words), kind.words), np.int64), np.zeros(len(words), np.bool_)
        for value in values:
            one, there = value.coded(words, heap)
            rows = ~known if there is None else ~known & there
            out[rows] = one[rows]
            known |= rows
        return Coded(out, known)

    nullable = all(value.nullable for value in values)
    by_words = not kind.plain and all(value.code is not None and not value.fallible for value in values)
    fallible = any(value.fallible for value in values)
    return Bound(expr, kind, nullable, fallible, run, code if by_words else None)


def membership(expr: Expr, part: Bound, values: Sequence[Bound]) -> Bound:
    """is_in: true when equal to one value, otherwise null when the part or a value is null, otherwise false."""
    kind = common((part, *values), str(expr))
    if kind is None:
        raise WrongType(problem=f"all values of {expr} are null of no type")
    part, values = as_kind(part, kind), [as_kind(value, kind) for value in values]
    by_words = not kind.plain and all(bound.code is not None for bound in (part, *values))

    def run(words: Words, heap: Heap) -> Vector:
        found, known = np.zeros(len(words), np.bool_), np.ones(len(words), np.bool_)
        one = part.coded(words, heap) if by_words else part.compute(words, heap)
        for value in values:
            two = value.coded(words, heap) if by_words else value.compute(words, heap)
            equal, valid = compare("==", kind, one, two, heap), both(one, two)
            found |= equal if valid is None else equal & valid
            if valid is not None:
                known &= valid
        return Vector(found, known | found)

    bounds = (part, *values)
    return Bound(expr, BOOL, any(b.nullable for b in bounds), any(b.fallible for b in bounds), run)


def extreme(expr: Expr, op: str, values: Sequence[Bound]) -> Bound:
    """greatest (op ">") and least ("<") of the values that are not null; null when all are null. Raises WrongType."""
    kind = _type_of(expr, values)
    values = [as_kind(value, kind) for value in values]

    def run(words: Words, heap: Heap) -> Vector:
        best = values[0].compute(words, heap)
        for value in values[1:]:
            other = value.compute(words, heap)
            wins = compare(op, kind, other, best, heap)
            if best.valid is not None:
                wins = wins | ~best.valid
            if other.valid is not None:
                wins = wins & other.valid
            best = merge([(~wins, best), (wins, other)], kind, len(words))
        return best

    nullable = all(value.nullable for value in values)
    return Bound(expr, kind, nullable, any(value.fallible for value in values), run)


def null_safe_equal(expr: Expr, left: Bound, right: Bound) -> Bound:
    """True when both are null or both are equal values, otherwise false; never null."""
    kind = common((left, right), str(expr))
    if kind is None:
        raise WrongType(problem=f"both sides of {expr} are null of no type")
    left, right = as_kind(left, kind), as_kind(right, kind)
    test = tester("==", kind, left, right)

    def run(words: Words, heap: Heap) -> Vector:
        equal = true(test(words, heap))
        if left.nullable and right.nullable:
            equal = equal | ~(_there(left, words, heap) | _there(right, words, heap))
        return Vector(equal, None)

    return Bound(expr, BOOL, False, left.fallible or right.fallible, run)


def _there(bound: Bound, words: Words, heap: Heap) -> Values:
    valid = bound.code(words, heap).valid if bound.code else bound.compute(words, heap).valid
    return np.ones(len(words), np.bool_) if valid is None else valid
