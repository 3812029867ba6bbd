"""Writes rows of a schema as JSON arrays in column order, as native messages have them.

Rows are checked by the rules of the language's types. Arrow tables are encoded a column at a time. Single Python rows
of integers, truth values and texts, the common case, take a short cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from vernier.operators.language.types.scalars import Bool, Int64
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import String
from vernier.service.codec.arrowjson import joined, json_texts
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Ints

Row = Sequence[Any] | Mapping[str, Any]
Fits = Callable[[Any], bool]

_LEAST, _BEYOND = -(2**63), 2**63


class RowTexts:
    """Encodes rows of one schema. Thread-safe."""

    def __init__(self, schema: RowType) -> None:
        self.schema = schema
        self._fits = [_plain(field.type, field.nullable) for field in schema.fields]
        self._all_plain = all(one is not None for one in self._fits)

    def one(self, row: Row) -> bytes:
        """The text of a row: a sequence in column order, or a mapping by name. Raises BadValue."""
        return self._short(row) or self._encoded(self.schema.encode_rows, [row])[0]

    def many(self, rows: Sequence[Row] | pa.Table | pa.RecordBatch) -> list[bytes]:
        """The texts of rows. Raises BadValue, and then none of them counts."""
        if isinstance(rows, (pa.Table, pa.RecordBatch)):
            columns = {name: rows.column(name) for name in rows.schema.names}
            return self._encoded(self.schema.encode, columns)
        if self._all_plain:
            return [self.one(row) for row in rows]
        return self._encoded(self.schema.encode_rows, list(rows)) if len(rows) else []

    def _short(self, row: Row) -> bytes | None:
        """The text of a row whose values obviously fit; None for any other."""
        if isinstance(row, Mapping):
            if len(row) != len(self._fits):
                return None
            try:
                row = [row[name] for name in self.schema.names]
            except KeyError:
                return None
        if len(row) != len(self._fits):
            return None
        for fits, value in zip(self._fits, row, strict=True):
            if fits is None or not fits(value):
                return None
        try:
            return msgspec.json.encode(list(row))
        except UnicodeEncodeError:
            return None

    def _encoded(self, encode: Callable[..., Ints], values: Any) -> list[bytes]:
        heap = Heap()
        whole = {"whole": False} if isinstance(values, list) else {}
        words = encode(values, heap, **whole)
        parts: list[Any] = ["["]
        for number, field in enumerate(self.schema.fields):
            own = np.ascontiguousarray(words[:, field.offset : field.offset + field.words])
            texts = json_texts(field.slot, field.decode(own, heap))
            parts += [",", texts] if number else [texts]
        return cast(list[bytes], joined(*parts, "]").cast(pa.large_binary()).to_pylist())


def _plain(kind: object, nullable: bool) -> Fits | None:
    """A quick test of a type's usual values; None for types without one."""
    match kind:
        case Int64():
            fits: Fits = lambda value: type(value) is int and _LEAST <= value < _BEYOND  # noqa: E731
        case Bool():
            fits = lambda value: type(value) is bool  # noqa: E731
        case String():
            fits = lambda value: type(value) is str  # noqa: E731
        case _:
            return None
    return (lambda value: value is None or fits(value)) if nullable else fits
