"""Functions of lists and structs, and the two that also take texts: contains and reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.errors import WrongType, listed, meant
from vernier.operators.language.expr.compute.calling import literal, need, strict
from vernier.operators.language.expr.compute.coercion import annotation, as_kind, common, meeting
from vernier.operators.language.expr.compute.comparison import compare
from vernier.operators.language.expr.compute.conversion import list_array
from vernier.operators.language.expr.compute.lists import lengths, starts_of
from vernier.operators.language.expr.compute.texts import text_contains
from vernier.operators.language.expr.compute.vector import (
    Bound,
    Heap,
    Vector,
    as_arrow,
    both,
    field_of,
    from_arrow,
    slot_array,
)
from vernier.operators.language.expr.expression import Call
from vernier.operators.language.types.scalars import Bool, Words
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import List

Binder = Callable[[Call, Sequence[Bound]], Bound]


def _struct(expr: Call, arguments: Sequence[Bound]) -> Bound:
    fields = {name: annotation(bound.type, bound.nullable) for name, bound in zip(expr.names, arguments, strict=True)}
    kind = Struct(**fields)

    def run(words: Words, heap: Heap) -> Vector:
        vectors = [bound.compute(words, heap) for bound in arguments]
        columns = [slot_array(vector, slot) for vector, slot in zip(vectors, kind.fields.values(), strict=True)]
        return Vector(pa.StructArray.from_arrays(columns, fields=list(kind.arrow)), None)

    return Bound(expr, kind, False, any(bound.fallible for bound in arguments), run)


def _field(expr: Call, arguments: Sequence[Bound]) -> Bound:
    part = arguments[0]
    kind = part.type
    if not isinstance(kind, Struct):
        raise WrongType(problem=f"{expr} needs a Struct, but {part}")
    name = literal(expr, arguments[1], "the name of a field", str)
    if name not in kind.fields:
        hint = meant(name, kind.fields)
        raise WrongType(problem=f"{part.expr} has no field {name!r}{hint} (it has {listed(kind.fields)})")
    slot = kind.fields[name]

    def run(words: Words, heap: Heap) -> Vector:
        return field_of(part.compute(words, heap), name, slot)

    return Bound(expr, slot.type, part.nullable or slot.nullable, part.fallible, run)


def _array(expr: Call, arguments: Sequence[Bound]) -> Bound:
    if not arguments:
        raise WrongType(problem="array needs at least one value, from which its type follows")
    element = common(arguments, str(expr))
    if element is None:
        raise WrongType(problem=f"all elements of {expr} are null of no type; write e.g. lit(None).cast(vn.Int64)")
    arguments = [as_kind(bound, element) for bound in arguments]
    kind = List(annotation(element, any(bound.nullable for bound in arguments)))

    def run(words: Words, heap: Heap) -> Vector:
        n, k = len(words), len(arguments)
        columns = [slot_array(bound.compute(words, heap), kind.element) for bound in arguments]
        across = np.arange(n * k).reshape(k, n).T.ravel()
        elements = pa.concat_arrays(columns).take(pa.array(across))
        return Vector(list_array(np.full(n, k), elements, kind), None)

    return Bound(expr, kind, False, any(bound.fallible for bound in arguments), run)


def _get(expr: Call, arguments: Sequence[Bound]) -> Bound:
    part, index = arguments
    kind = part.type
    if not isinstance(kind, List):
        hint = '; a field is x["name"]' if isinstance(kind, Struct) else ""
        raise WrongType(problem=f"{expr} needs a List, but {part}{hint}")
    need(expr, index, "Int64")

    def take(lists: pa.Array, at: pa.Array) -> pa.Array:
        sizes = lengths(lists)
        wanted = pc.fill_null(at, -1).to_numpy(zero_copy_only=False)
        there = (wanted >= 0) & (wanted < sizes)
        place = starts_of(sizes) + np.where(there, wanted, 0)
        return lists.flatten().take(pa.array(place, mask=~there))

    return strict(expr, kind.element.type, arguments, take, nulls=True)


def _contains(expr: Call, arguments: Sequence[Bound]) -> Bound:
    part, wanted = arguments
    kind = part.type
    if not isinstance(kind, List):
        return text_contains(expr, arguments)
    met = kind.element.type if wanted.kind is None else meeting(kind.element.type, wanted.type)
    if met is None:
        raise WrongType(problem=f"{expr} looks for a value of another type: {part}, {wanted}")
    lists, wanted = as_kind(part, List(annotation(met, kind.element.nullable))), as_kind(wanted, met)

    def run(words: Words, heap: Heap) -> Vector:
        one, two = lists.compute(words, heap), wanted.compute(words, heap)
        array = as_arrow(one, lists.type)
        sizes = lengths(array)
        parent = np.repeat(np.arange(len(words)), sizes)
        elements = from_arrow(array.flatten(), met)
        data = two.data[parent] if isinstance(two.data, np.ndarray) else two.data.take(pa.array(parent))
        equal = compare("==", met, elements, Vector(data, None), heap)
        hits = equal if elements.valid is None else equal & elements.valid
        found = np.bincount(parent[hits], minlength=len(words)) > 0
        valid = both(one, two)
        if elements.valid is not None:  # a null element might be equal
            unsure = np.bincount(parent[~elements.valid], minlength=len(words)) > 0
            valid = (found | ~unsure) if valid is None else valid & (found | ~unsure)
        return Vector(found, valid)

    nullable = part.nullable or wanted.nullable or kind.element.nullable
    return Bound(expr, Bool(), nullable, lists.fallible or wanted.fallible, run)


def _reverse(expr: Call, arguments: Sequence[Bound]) -> Bound:
    kind = need(expr, arguments[0], "String", "List")
    if not isinstance(kind, List):
        return strict(expr, kind, arguments, pc.utf8_reverse)

    def turn(lists: pa.Array) -> pa.Array:
        sizes = lengths(lists)
        starts = starts_of(sizes)
        place = np.repeat(2 * starts + sizes - 1, sizes) - np.arange(int(sizes.sum()))
        made = list_array(sizes, lists.flatten().take(pa.array(place)), kind)
        return pc.if_else(lists.is_valid(), made, pa.scalar(None, made.type))

    return strict(expr, kind, arguments, turn)


PART_CALLS: dict[str, Binder] = {
    "struct": _struct,
    "field": _field,
    "array": _array,
    "get": _get,
    "contains": _contains,
    "reverse": _reverse,
}
"""Functions by name."""
