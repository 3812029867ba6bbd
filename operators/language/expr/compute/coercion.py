"""The common type of values in a comparison, in the branches of a `when`, or in the arguments of a function.

Widening never loses anything but digits of a Decimal beyond the 38th. Int64 and Decimal become the Decimal that holds
both; either of them and Float64 become Float64; lists and structs are widened part by part; a bare null takes any type.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence

import numpy as np

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.compute import decimals
from vernier.operators.language.expr.compute.conversion import conversion
from vernier.operators.language.expr.compute.vector import Bound, Coded, Heap, Vector, constant, nulls
from vernier.operators.language.expr.constants import decimal_type
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Float64, Int64, OrNone, Type, Words
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import List

INT, FLOAT = Int64(), Float64()
INT_DECIMAL = Decimal(20, 0)
"""The Decimal that an Int64 counts as beside a Decimal (as in Spark)."""


def meeting(a: Type, b: Type) -> Type | None:
    """The type to which values of both types are widened; None when there is none."""
    if a == b:
        return a
    pair = {a.name, b.name}
    if pair <= {"Int64", "Float64", "Decimal"}:
        if "Float64" in pair:
            return FLOAT
        return decimals.wider(as_decimal_type(a), as_decimal_type(b))
    if isinstance(a, List) and isinstance(b, List):
        element = slots_meet(a.element, b.element)
        return None if element is None else List(element)
    if isinstance(a, Struct) and isinstance(b, Struct) and list(a.fields) == list(b.fields):
        met = {name: slots_meet(slot, b.fields[name]) for name, slot in a.fields.items()}
        return None if None in met.values() else Struct(**met)
    return None


def slots_meet(a: Slot, b: Slot) -> object:
    """The common type of two slots, as an annotation; None when there is none."""
    met = meeting(a.type, b.type)
    return None if met is None else annotation(met, a.nullable or b.nullable)


def annotation(kind: Type, nullable: bool) -> object:
    """The type as a program writes it in a List or a Struct."""
    return OrNone(kind) if nullable else kind


def as_decimal_type(kind: Type) -> Decimal:
    """A Decimal as it is; INT_DECIMAL for Int64."""
    return kind if isinstance(kind, Decimal) else INT_DECIMAL


def common(bounds: Sequence[Bound], what: str) -> Type | None:
    """The type that all values can have; None if all are bare nulls. Raises WrongType, naming `what`, if there is
    none."""
    found: Type | None = None
    decimal = any(bound.kind is not None and bound.kind.name == "Decimal" for bound in bounds)
    for bound in bounds:
        kind = narrowed(bound) if decimal else bound.kind
        if kind is None:
            continue
        met = kind if found is None else meeting(found, kind)
        if met is None:
            shown = "; ".join(str(b) for b in bounds)
            raise WrongType(problem=f"{what} has values of different types ({shown}); {_remedy(bounds)}")
        found = met
    return found


def _remedy(bounds: Sequence[Bound]) -> str:
    """What to write where types do not fit together: a text beside times is usually meant as a constant time."""
    texts = [
        bound.literal.value for bound in bounds if bound.literal is not None and isinstance(bound.literal.value, str)
    ]
    kinds = {bound.kind.name for bound in bounds if bound.kind is not None}
    if texts and "TimestampNs" in kinds:
        return f"a constant time is datetime(...), or lit({texts[0]!r}).cast(vn.TimestampNs)"
    if texts and "Date" in kinds:
        return f"a constant date is date(...), or lit({texts[0]!r}).cast(vn.Date)"
    return "cast one of them"


def narrowed(bound: Bound) -> Type | None:
    """The type of an operand beside a Decimal: an integer literal counts with only as many digits as it has."""
    literal = bound.literal
    if bound.kind == INT and literal is not None and isinstance(literal.value, int):
        return decimal_type(decimal.Decimal(literal.value))
    return bound.kind


def as_kind(bound: Bound, kind: Type) -> Bound:
    """The same values as `kind`, which is either their own type or the result of `meeting` for it and another."""
    if bound.kind == kind:
        return bound
    if bound.kind is None:
        return Bound(bound.expr, kind, True, False, lambda words, heap: nulls(len(words), kind))
    change = conversion(bound.kind, kind)
    if change is None:
        raise WrongType(problem=f"{kind} is needed, but {bound}")

    def widened(words: Words, heap: Heap) -> Vector:
        return change.run(bound.compute(words, heap), bound.expr)

    return Bound(bound.expr, kind, bound.nullable, bound.fallible or change.fallible, widened)


def literal_bound(bound: Bound, value: object, kind: Type) -> Bound:
    """A constant of a type, repeated for every row."""

    def code(words: Words, heap: Heap) -> Coded:
        one = kind.to_words(constant(value, kind, 1), heap)
        return Coded(np.broadcast_to(one, (len(words), kind.words)), None)

    return Bound(
        bound.expr, kind, False, False, lambda words, heap: Vector(constant(value, kind, len(words)), None), code
    )
