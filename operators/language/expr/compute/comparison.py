"""`== != < <= > >=` on every type, by comparing the words of the values where they are available.

Equal words are equal values, and words have the values' order (NaN equals NaN and is the greatest Float64, -0.0 equals
0.0; false is less than true; texts by code point, lists and structs part by part). Words cannot decide the order of two
long texts with the same prefix; their contents are then compared.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.expr import arithmetic
from vernier.operators.language.expr.compute.coercion import INT, as_kind, common
from vernier.operators.language.expr.compute.vector import Bound, Coded, Heap, Vector, both, coded
from vernier.operators.language.expr.expression import Binary
from vernier.operators.language.types.scalars import Bool, Float64, Type, Values, Words

BOOL, _FLOAT = Bool(), Float64()
_ARROW: dict[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def comparison(expr: Binary, left: Bound, right: Bound) -> Bound:
    """left `op` right; null when either is null. Raises WrongType for types that cannot be compared."""
    kind = common((left, right), str(expr)) or INT
    left, right = as_kind(left, kind), as_kind(right, kind)
    test = tester(expr.op, kind, left, right)
    return Bound(expr, BOOL, left.nullable or right.nullable, left.fallible or right.fallible, test)


def tester(op: str, kind: Type, left: Bound, right: Bound) -> Callable[[Words, Heap], Vector]:
    """The function that compares two expressions of one type."""
    if not kind.plain and left.code is not None and right.code is not None:

        def by_words(words: Words, heap: Heap) -> Vector:
            a, b = left.coded(words, heap), right.coded(words, heap)
            return Vector(compare_coded(op, kind, a, b, heap), both(a, b))

        return by_words

    def by_values(words: Words, heap: Heap) -> Vector:
        a, b = left.compute(words, heap), right.compute(words, heap)
        return Vector(compare(op, kind, a, b, heap), both(a, b))

    return by_values


def compare(op: str, kind: Type, a: Vector | Coded, b: Vector | Coded, heap: Heap) -> Values:
    """Whether a `op` b, row by row; arbitrary where one is null. Both are values, or both are words."""
    if isinstance(a, Coded) and isinstance(b, Coded):
        return compare_coded(op, kind, a, b, heap)
    if isinstance(a, Coded) or isinstance(b, Coded):
        raise TypeError("values cannot be compared with words")
    if kind == _FLOAT:  # words have Spark's order of NaN and -0.0; IEEE comparisons do not
        return arithmetic.COMPARE[op](kind.to_words(a.data)[:, 0], kind.to_words(b.data)[:, 0])
    if kind.plain:
        return arithmetic.COMPARE[op](a.data, b.data)
    if kind.name in ("String", "Binary"):
        found: Values = pc.fill_null(_ARROW[op](a.data, b.data), False).to_numpy(zero_copy_only=False)
        return found
    return compare_coded(op, kind, coded(a, kind, heap), coded(b, kind, heap), heap)


def compare_coded(op: str, kind: Type, a: Coded, b: Coded, heap: Heap) -> Values:
    """Like `compare`, for values as words."""
    if op == "==":
        same: Values = (a.words == b.words).all(axis=1)
        return same
    if op == "!=":
        other: Values = (a.words != b.words).any(axis=1)
        return other
    return arithmetic.COMPARE[op](order(kind, a.words, b.words, heap), np.zeros(len(a.words), np.int64))


def order(kind: Type, a: Words, b: Words, heap: Heap) -> Values:
    """For each row -1, 0 or 1: the value with the words `a` is less than, equal to or greater than the value of `b`."""
    if heap is None:
        # Words order short texts only; with a long text this raises TextMissing.
        if any(words[:, at + 2].any() for at in kind.text_words for words in (a, b)):
            kind.from_words(np.concatenate((a, b)))
    elif kind.text_words:
        rows = heap.comparable(np.concatenate((a, b)), kind.text_words)
        a, b = rows[: len(a)], rows[len(a) :]
    sign = np.zeros(len(a), np.int64)
    for one, two in zip(a.T, b.T, strict=True):
        sign = np.where(sign == 0, np.greater(one, two).astype(np.int64) - np.less(one, two), sign)
    return sign
