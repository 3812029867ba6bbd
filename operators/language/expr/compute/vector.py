"""Columns of values within an expression (`Vector`), and expressions that know their type and can be run (`Bound`).

Values of Int64, Float64, Bool, Date and TimestampNs are numpy arrays; those of String, Binary, Decimal, Struct and List
are Arrow arrays. Nulls are recorded apart from the data: the data of a null row are arbitrary and must not be read.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.expression import Alias, Expr, Literal, Nullability
from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Type, Values, Words, spell
from vernier.operators.language.types.structs import Struct

if TYPE_CHECKING:
    from vernier.storage.strings.string_heap import Heap as TextHeap

Heap: TypeAlias = "TextHeap | None"
"""The heap with the contents of long texts (storage/strings/string_heap.py); may be None where there are none."""
Data = Any
"""A numpy array, or a pyarrow Array for types that are not `plain`."""


class Vector(NamedTuple):
    """An expression's values for n rows. `valid` is False where null (None: no nulls), `data` as in the module
    docstring."""

    data: Data
    valid: Values | None


Run = Callable[[Words, Heap], Vector]


class Coded(NamedTuple):
    """Values as the words of their type, int64[n, words], arbitrary where `valid` is False (None: no nulls)."""

    words: Words
    valid: Values | None


@dataclass(frozen=True)
class Bound:
    """An expression with its type; `kind` is None for a bare null. `fallible`: it could raise for some rows.

    `code`, where known (columns, literals), gives the values' words directly, without decoding them.
    """

    expr: Expr
    kind: Type | None
    nullable: bool
    fallible: bool
    compute: Run
    code: Callable[[Words, Heap], Coded] | None = None

    @property
    def type(self) -> Type:
        """The type. Raises WrongType for a bare null, which has none."""
        if self.kind is None:
            raise WrongType(problem=f"{self.expr} is null of no type; write e.g. lit(None).cast(vn.Int64)")
        return self.kind

    @property
    def literal(self) -> Literal | None:
        """The literal, if the expression is one, otherwise None."""
        expr = self.expr
        while isinstance(expr, (Alias, Nullability)):
            expr = expr.part
        return expr if isinstance(expr, Literal) else None

    def __str__(self) -> str:
        return f"{self.expr} is {'null' if self.kind is None else spell(self.kind, self.nullable)}"

    def run(self, rows: Words, heap: Heap = None) -> Vector:
        """Compute int64[n, width] -> the n values; `heap` holds the contents of the rows' long texts."""
        return self.compute(rows, heap)

    def coded(self, rows: Words, heap: Heap = None) -> Coded:
        """Compute int64[n, width] -> the n values as words; new long texts are added to the heap."""
        return self.code(rows, heap) if self.code else coded(self.compute(rows, heap), self.type, heap)

    def words(self, rows: Words, heap: Heap = None) -> Words:
        """Compute int64[n, width] -> int64[n, k], where k is the width of a column of this type and nullability."""
        encoded, valid = self.coded(rows, heap)
        if not self.nullable:
            return encoded
        mask = np.ones(len(rows), np.bool_) if valid is None else valid
        return np.hstack((mask[:, None].astype(np.int64), np.where(mask[:, None], encoded, 0)))


def coded(vector: Vector, kind: Type, heap: Heap) -> Coded:
    """The values as words; new long texts are added to the heap."""
    data, valid = vector
    if valid is None or kind.plain:
        return Coded(kind.to_words(data, heap), valid)
    words = np.zeros((len(valid), kind.words), np.int64)
    words[valid] = kind.to_words(data.filter(pa.array(valid)), heap)
    return Coded(words, valid)


def nulls(n: int, kind: Type) -> Vector:
    """n nulls of a type."""
    data = pa.nulls(n, kind.arrow) if not kind.plain else np.zeros(n, kind.numpy)
    return Vector(data, np.zeros(n, np.bool_))


def constant(value: Any, kind: Type, n: int) -> Data:
    """One value of a type, n times."""
    if not kind.plain:
        return pa.repeat(pa.scalar(value, kind.arrow), n)
    return np.broadcast_to(np.array(value, kind.numpy), n)


def both(*vectors: Vector | Coded) -> Values | None:
    """Where none of the vectors is null; None if there are no nulls."""
    valid: Values | None = None
    for vector in vectors:
        if vector.valid is not None:
            valid = vector.valid if valid is None else valid & vector.valid
    return valid


def true(vector: Vector) -> Values:
    """Where a Bool is true: neither false nor null."""
    found: Values = vector.data if vector.valid is None else vector.data & vector.valid
    return found


def false(vector: Vector) -> Values:
    """Where a Bool is false: neither true nor null."""
    found: Values = ~vector.data if vector.valid is None else ~vector.data & vector.valid
    return found


def as_arrow(vector: Vector, kind: Type) -> pa.Array:
    """The values as an Arrow array of the type's `arrow`, with a null exactly where the vector has one."""
    data, valid = vector
    if not kind.plain:
        return data if valid is None else pc.if_else(pa.array(valid), data, pa.scalar(None, data.type))
    mask = None if valid is None else ~valid
    if kind.name == "Date":
        return pa.array(data.astype(np.int32), mask=mask).cast(kind.arrow)
    array = pa.array(data, mask=mask)
    return array if array.type == kind.arrow else array.cast(kind.arrow)


def filled(vector: Vector, kind: Type) -> pa.Array:
    """The values as an Arrow array without nulls; null rows hold the type's zero, or an empty text or list."""
    array = as_arrow(vector, kind)
    return pc.if_else(array.is_valid(), array, pa.scalar(_zero(kind), kind.arrow)) if array.null_count else array


def _zero(kind: Type) -> Any:
    if isinstance(kind, Struct):
        return {name: None if slot.nullable else _zero(slot.type) for name, slot in kind.fields.items()}
    return _ZEROS.get(kind.name, 0)


_ZEROS = {"String": "", "Binary": b"", "List": [], "Bool": False, "Date": datetime.date(1970, 1, 1)}


def slot_array(vector: Vector, slot: Slot) -> pa.Array:
    """The values as the Arrow array of a struct's field or of a list's elements, with nulls only where they are
    permitted."""
    return as_arrow(vector, slot.type) if slot.nullable else filled(vector, slot.type)


def field_of(vector: Vector, name: str, slot: Slot) -> Vector:
    """A field of structs; null where the field, or the struct, is null."""
    data, own = from_arrow(vector.data.field(name), slot.type)
    return Vector(data, both(vector, Vector(data, own)))


def from_arrow(array: pa.Array, kind: Type) -> Vector:
    """The inverse of as_arrow. The array has the type's `arrow`, or another integer width or string type."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)
    if not kind.plain:
        return Vector(array if array.type == kind.arrow else array.cast(kind.arrow), valid)
    if kind.name == "Date":
        array = array.cast(pa.int32())
    elif kind.name == "TimestampNs":
        array = array.cast(pa.int64())
    zero = False if pa.types.is_boolean(array.type) else 0
    data = (array if valid is None else array.fill_null(zero)).to_numpy(zero_copy_only=False)
    return Vector(data.astype(kind.numpy, copy=False), valid)


def joined(*parts: Any, by: str | bytes = "", nulls: str = "emit_null") -> pa.Array:
    """Texts (or bytes) concatenated row by row with `by` in between; a single text stands for all rows."""
    kind = pa.large_binary() if isinstance(by, bytes) else pa.large_string()
    columns = [pa.scalar(part, kind) if isinstance(part, (str, bytes)) else part.cast(kind) for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar(by, kind), null_handling=nulls)


def on_rows(bound: Bound, words: Words, heap: Heap, wanted: Values) -> Vector:
    """The values for all rows. If computing could raise, only the wanted rows are computed, and the others are null."""
    if not bound.fallible or wanted.all():
        return bound.compute(words, heap)
    return spread(bound.compute(words[wanted], heap), wanted)


def spread(some: Vector, wanted: Values) -> Vector:
    """The values of the wanted rows, which `some` holds, at their positions; the other rows are null."""
    n = len(wanted)
    valid = wanted.copy()
    if some.valid is not None:
        valid[wanted] = some.valid
    if isinstance(some.data, np.ndarray):
        data = np.zeros(n, some.data.dtype)
        data[wanted] = some.data
        return Vector(data, valid)
    place = np.cumsum(wanted) - 1
    return Vector(some.data.take(pa.array(place, mask=~wanted)), valid)


def merge(pieces: list[tuple[Values, Vector]], kind: Type, n: int) -> Vector:
    """One vector of n values from pieces (rows bool[n], values for all rows) whose rows do not overlap; rows in no
    piece are null. O(n) for each piece."""
    valid = np.zeros(n, np.bool_)
    for rows, piece in pieces:
        valid[rows] = True if piece.valid is None else piece.valid[rows]
    if kind.plain:
        data = np.zeros(n, kind.numpy)
        for rows, piece in pieces:
            data[rows] = piece.data[rows]
        return Vector(data, valid)
    place = np.zeros(n, np.int64)
    parts, before = [pa.nulls(0, kind.arrow)], 0
    for rows, piece in pieces:
        parts.append(piece.data.filter(pa.array(rows)))
        place[rows] = before + np.arange(len(parts[-1]))
        before += len(parts[-1])
    return Vector(pa.concat_arrays(parts).take(pa.array(place, mask=~valid)), valid)
