"""Struct: a record of named fields."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from vernier.operators.errors import BadValue, WrongType, listed
from vernier.operators.language.types.parts import Composed, Kind, Part, Slot, rebuilt
from vernier.operators.language.types.scalars import as_type


class Struct(Composed):
    """A record of named fields: `vn.Struct(x=vn.Float64, note=vn.String | None)`; ordered by its fields, first to last.

    In Python it is a dict; a tuple in the order of the fields is accepted, too.
    """

    name = "Struct"
    usage = "Struct(a=vn.Int64)"

    def __init__(self, **fields: object) -> None:
        if not fields:
            raise WrongType(problem="a Struct without fields; write e.g. vn.Struct(x=vn.Int64)")
        self.fields = {name: Slot(*as_type(kind, f"field {name!r} of a Struct")) for name, kind in fields.items()}
        self.arrow = pa.struct([slot.arrow(name) for name, slot in self.fields.items()])
        kinds: list[Kind] = []
        for slot in self.fields.values():
            kinds += slot.kinds
        self.set_kinds(kinds)

    def __str__(self) -> str:
        return f"Struct({', '.join(f'{name}={slot}' for name, slot in self.fields.items())})"

    def split(self, array: pa.Array) -> list[Part]:
        if not pa.types.is_struct(array.type) or {field.name for field in array.type} != set(self.fields):
            raise BadValue(column="?", problem=f"values of Arrow type {array.type} are not {self}")
        columns = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        return [part for name, slot in self.fields.items() for part in _named(name, slot.split, columns[name])]

    def join(self, parts: Sequence[Part]) -> pa.Array:
        columns, at = [], 0
        for slot in self.fields.values():
            columns.append(slot.join(parts[at : at + len(slot.kinds)]))
            at += len(slot.kinds)
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow))

    def split_python(self, values: Sequence[Any]) -> list[Part]:
        rows = [self._tuple(value) for value in values]
        return [
            part
            for i, (name, slot) in enumerate(self.fields.items())
            for part in _named(name, slot.split_python, [row[i] for row in rows])
        ]

    def to_arrow(self, values: Any) -> pa.Array:
        return rebuilt(self, values)

    def to_python(self, array: pa.Array) -> list[Any]:
        columns = [slot.to_python(column) for slot, column in zip(self.fields.values(), array.flatten(), strict=True)]
        return [dict(zip(self.fields, row, strict=True)) for row in zip(*columns, strict=True)]

    def _tuple(self, value: Any) -> Sequence[Any]:
        if isinstance(value, Mapping):
            if value.keys() == self.fields.keys():
                return [value[name] for name in self.fields]
        elif isinstance(value, tuple) and len(value) == len(self.fields):
            return value
        raise BadValue(column="?", problem=f"not {self}: {value!r} is not a dict with the keys {listed(self.fields)}")


def _named(name: str, split: Any, values: Any) -> list[Part]:
    """Split one field's values. Errors name the field."""
    try:
        parts: list[Part] = split(values)
        return parts
    except BadValue as error:
        raise BadValue(column=error.column, problem=f"field {name}: {error.problem}") from error
