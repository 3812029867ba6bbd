"""Casts between types, as in Spark SQL (non-ANSI): text that is no value of the target type becomes null.

Numbers never wrap and never become null: a number that does not fit its target raises. Float64 and Decimal to Int64
truncate towards zero. Decimal to fewer digits after the decimal point, and Float64 to Decimal, round half away from
zero. TimestampNs and Int64 convert as nanoseconds since 1970 (in Spark: seconds). Lists and structs convert part by
part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.expr import arithmetic
from vernier.operators.language.expr.compute import decimals, spelling
from vernier.operators.language.expr.compute.vector import Vector, as_arrow, field_of, from_arrow, slot_array
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Float64, Int64, Type, Values
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import List


class Conversion(NamedTuple):
    """A cast. fallible: it raises for some values; nulls: it turns some values into null."""

    run: Callable[[Vector, Expr], Vector]
    fallible: bool = False
    nulls: bool = False


def conversion(source: Type, target: Type) -> Conversion | None:
    """How values of `source` become values of `target`; None when there is no such cast."""
    if source == target:
        return Conversion(lambda vector, expr: vector)
    if isinstance(source, List) and isinstance(target, List):
        return _list(source, target)
    if isinstance(source, Struct) and isinstance(target, Struct):
        return _struct(source, target)
    if isinstance(target, Decimal):
        return _to_decimal(source, target)
    if isinstance(source, Decimal):
        return _of_decimal(source, target)
    plain = arithmetic.CONVERT.get((source.name, target.name))
    if plain is not None:

        def run(vector: Vector, expr: Expr) -> Vector:
            return Vector(plain(vector.data, vector.valid, expr), vector.valid)

        return Conversion(run, (source.name, target.name) in arithmetic.FALLIBLE)
    return _texts(source, target)


def _texts(source: Type, target: Type) -> Conversion | None:
    """Casts that read or write text, by Arrow arrays. Text may not spell a value, and bytes may not be text."""
    change: Callable[[pa.Array], pa.Array] | None = None
    if source.name == "String":
        change = spelling.READ.get(target.name)
    elif target.name == "String":
        change = spelling.WRITE.get(source.name)
    if change is None:
        return None
    spell = change

    def run(vector: Vector, expr: Expr) -> Vector:
        return from_arrow(spell(as_arrow(vector, source)), target)

    return Conversion(run, nulls=source.name in ("String", "Binary") and target.name != "Binary")


# --- decimals ---------------------------------------------------------------------------------------------------------


def _to_decimal(source: Type, target: Decimal) -> Conversion | None:
    if isinstance(source, Decimal):
        before = source
        grows = target.scale >= before.scale and target.precision - target.scale >= before.precision - before.scale

        def rescale(vector: Vector, expr: Expr) -> Vector:
            values = decimals.rescaled(decimals.unscaled(vector), target.scale - before.scale)
            decimals.check(values, target, vector.valid, expr, vector.data)
            return Vector(decimals.packed(values, target, vector.valid), vector.valid)

        return Conversion(rescale, not grows)
    if source.name in ("Int64", "Bool"):

        def scale(vector: Vector, expr: Expr) -> Vector:
            whole = vector.data.astype(np.int64)
            whole = whole if vector.valid is None else np.where(vector.valid, whole, 0)
            values = decimals.rescaled(whole, target.scale)
            decimals.check(values, target, vector.valid, expr, vector.data)
            return Vector(decimals.packed(values, target, vector.valid), vector.valid)

        return Conversion(scale, target.precision - target.scale < (19 if source.name == "Int64" else 1))
    if source.name == "Float64":
        # As in Spark, by the shortest text of the double, so that 0.1 is 0.1.
        def spell(vector: Vector, expr: Expr) -> Vector:
            finite = np.isfinite(vector.data)
            wanted = finite if vector.valid is None else finite & vector.valid
            text = as_arrow(Vector(np.where(wanted, vector.data, 0.0), None), Float64()).cast(pa.large_string())
            values, fits = spelling.read_decimal(text, target)
            if not (fits & finite).all():
                values = np.where(fits & finite, values.astype(object), decimals.TOO_LARGE)
            decimals.check(values, target, vector.valid, expr, vector.data)
            return Vector(decimals.packed(values, target, vector.valid), vector.valid)

        return Conversion(spell, True)
    if source.name == "String":

        def read(vector: Vector, expr: Expr) -> Vector:
            values, valid = spelling.read_decimal(as_arrow(vector, source), target)
            limit = 10**target.precision
            valid = valid & (values < limit) & (values > -limit)
            return Vector(decimals.packed(values, target, valid), valid)

        return Conversion(read, nulls=True)
    return None


def _of_decimal(source: Decimal, target: Type) -> Conversion | None:
    if target == Int64():

        def cut(vector: Vector, expr: Expr) -> Vector:
            values = decimals.truncated(decimals.unscaled(vector), source.scale, "trunc")
            if values.dtype == object:
                wrong = (values >= 2**63) | (values < -(2**63))
                arithmetic.check(wrong, vector.valid, expr, vector.data)
                values = np.where(wrong, 0, values)
            return Vector(values.astype(np.int64), vector.valid)

        return Conversion(cut, source.precision - source.scale > 18)
    if target == Float64():
        # By its text, which Arrow reads as the nearest double; Arrow's own cast of decimals can be off by one bit.
        def nearest(vector: Vector, expr: Expr) -> Vector:
            text = as_arrow(vector, source).cast(pa.large_string())
            return from_arrow(text.cast(pa.float64()), target)

        return Conversion(nearest)
    if target.name == "Bool":
        return Conversion(lambda vector, expr: Vector(decimals.unscaled(vector) != 0, vector.valid))
    if target.name == "String":

        def write(vector: Vector, expr: Expr) -> Vector:
            # As in Java: plain digits, but with an exponent below -6, such as 1E-7; Arrow writes exactly this.
            return Vector(as_arrow(vector, source).cast(pa.large_string()), vector.valid)

        return Conversion(write)
    return None


# --- parts ------------------------------------------------------------------------------------------------------------


def _list(source: List, target: List) -> Conversion | None:
    have, want = source.element, target.element
    part = conversion(have.type, want.type)
    if part is None or ((have.nullable or part.nulls) and not want.nullable):
        return None

    def run(vector: Vector, expr: Expr) -> Vector:
        array = as_arrow(vector, source)
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        elements = slot_array(part.run(from_arrow(array.flatten(), have.type), expr), want)
        return Vector(list_array(lengths, elements, target), vector.valid)

    return Conversion(run, part.fallible)


def list_array(lengths: Values, elements: pa.Array, kind: List) -> pa.Array:
    """Lists with these lengths, taking the elements in order; without nulls."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.LargeListArray.from_arrays(pa.array(offsets), elements, type=kind.arrow)


def _struct(source: Struct, target: Struct) -> Conversion | None:
    if list(source.fields) != list(target.fields):
        return None
    parts: list[tuple[str, Slot, Slot, Conversion]] = []
    for name, have in source.fields.items():
        want = target.fields[name]
        part = conversion(have.type, want.type)
        if part is None or ((have.nullable or part.nulls) and not want.nullable):
            return None
        parts.append((name, have, want, part))

    def run(vector: Vector, expr: Expr) -> Vector:
        columns = [slot_array(part.run(field_of(vector, name, have), expr), want) for name, have, want, part in parts]
        return Vector(pa.StructArray.from_arrays(columns, fields=list(target.arrow)), vector.valid)

    return Conversion(run, any(part.fallible for *_, part in parts))
