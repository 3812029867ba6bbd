"""Shared parts of the functions of expressions: checks of their arguments, and ways to compute them on Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.compute.vector import Bound, Heap, Vector, as_arrow, from_arrow
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.types.scalars import Type, Words

Arrays = Callable[..., pa.Array]
"""A function from Arrow arrays of n values to one such array; null where an argument is null."""


def need(expr: Expr, bound: Bound, *names: str) -> Type:
    """The type of an argument, which must be one of these. Raises WrongType, with a hint to cast."""
    kind = bound.type
    if kind.name not in names:
        cast = "" if "String" not in names else "; write .cast(vn.String)"
        raise WrongType(problem=f"{expr} needs {' or '.join(names)}, but {bound}{cast}")
    return kind


def literal(expr: Expr, bound: Bound, what: str, python: type) -> Any:
    """The value of an argument that must be a constant of a Python type. Raises WrongType."""
    value = None if bound.literal is None else bound.literal.value
    if not isinstance(value, python) or isinstance(value, bool):
        raise WrongType(problem=f"{expr} needs {what} that is a constant {python.__name__}, not {bound}")
    return value


def strict(
    expr: Expr, kind: Type, arguments: Sequence[Bound], compute: Arrays, *, fallible: bool = False, nulls: bool = False
) -> Bound:
    """A function of whole columns. fallible: it can raise; nulls: it returns null for some values."""

    def run(words: Words, heap: Heap) -> Vector:
        arrays = [as_arrow(bound.compute(words, heap), bound.type) for bound in arguments]
        return from_arrow(compute(*arrays), kind)

    nullable = nulls or any(bound.nullable for bound in arguments)
    return Bound(expr, kind, nullable, fallible or any(bound.fallible for bound in arguments), run)


def parametrised(
    expr: Expr,
    kind: Type,
    subject: Bound,
    parameters: Sequence[Bound],
    compute: Callable[..., pa.Array],
    *,
    fallible: bool = False,
) -> Bound:
    """A function `compute(column, *python values)` of a column, whose parameters are usually equal in many rows.

    Parameters that are not constants are computed once for each of their combinations: O(rows + combinations * passes).
    """
    values = [bound.literal.value for bound in parameters if bound.literal is not None]
    if len(values) == len(parameters) and None not in values:
        return strict(expr, kind, [subject], lambda array: compute(array, *values), fallible=fallible)

    def grouped(array: pa.Array, *columns: pa.Array) -> pa.Array:
        known = np.ones(len(array), np.bool_)
        coded = []
        for column in columns:
            encoded = column.dictionary_encode()
            known &= column.is_valid().to_numpy(zero_copy_only=False)
            coded.append((encoded.indices.fill_null(0).to_numpy(zero_copy_only=False), encoded.dictionary))
        rows = np.flatnonzero(known)
        codes = np.stack([indices[rows] for indices, _ in coded], axis=1)
        combinations, which = np.unique(codes, axis=0, return_inverse=True)
        pieces, place, before = [pa.nulls(0, kind.arrow)], np.zeros(len(array), np.int64), 0
        for i, combination in enumerate(combinations):
            own = rows[which.reshape(-1) == i]
            given = [dictionary[int(code)].as_py() for code, (_, dictionary) in zip(combination, coded, strict=True)]
            piece = compute(array.take(pa.array(own)), *given)
            pieces.append(piece if piece.type == kind.arrow else piece.cast(kind.arrow))
            place[own] = before + np.arange(len(own))
            before += len(own)
        return pa.concat_arrays(pieces).take(pa.array(place, mask=~known))

    return strict(expr, kind, [subject, *parameters], grouped, fallible=fallible)
