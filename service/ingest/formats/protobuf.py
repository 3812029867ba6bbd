"""The protobuf format: a message is one Protobuf message, whose fields are the source's columns.

Where its descriptor comes from: by_schema.py. In the settings it is `descriptor_file` with the name `message`, for
messages that are just that; and `registry`, or `schema_folder` with descriptor sets as `<id>.desc`, for messages that
begin with an id and, behind it, the place of their type in the schema (Confluent's message indexes). What fields
become: protobuf_columns.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from vernier.operators.language.types.options import ABSENT
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.by_schema import BySchema, Schemas
from vernier.service.ingest.formats.columns import DIFF, TIME, rows_of
from vernier.service.ingest.formats.descriptors import (
    FORM,
    by_indexes,
    by_name,
    main_file,
    message_class,
    text_of_registry,
)
from vernier.service.ingest.formats.protobuf_columns import check_known, field_column
from vernier.service.ingest.formats.registry import Registry, Schema
from vernier.service.ingest.rejects import Refusal

Kind = tuple[int | None, tuple[int, ...]]
"""The id of a schema, and the place of a message in it."""

_FIRST = (0,)
_MOST_INDEXES = 100


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the messages of one type. closed: whether a field is required, as in proto2."""

    descriptor: Descriptor
    read: Callable[[bytes], Message]
    closed: bool


class Protobuf(BySchema[Message]):
    """Reads a topic of Protobuf messages for one source. message: the name of their type; with a registry other types
    are then refused. Raises ValueError."""

    form, ending, bare = FORM, "desc", True

    def __init__(
        self,
        sources: Mapping[str, RowType],
        schemas: Schemas,
        registry: Registry | None = None,
        message: str | None = None,
    ) -> None:
        super().__init__(sources, schemas, registry)
        self._message = message
        self._readers: dict[Kind, Reader | Refusal] = {}
        if self._plain:
            self._readers[None, _FIRST] = self._reader(by_name(self._texts[None], message))

    def _text(self, found: Schema) -> str:
        assert self._registry is not None
        return text_of_registry(found, self._registry)

    def _check(self, text: str) -> None:
        if self._message is not None or len(main_file(text).message_types_by_name) == 1:
            self._reader(by_name(text, self._message))

    def _reader(self, descriptor: Descriptor) -> Reader:
        """Compare a message type with the source's columns. Raises Refusal."""
        rows_of(self._arrays(descriptor, []), 0, self._row_type, None)
        required = any(field.is_required for field in descriptor.fields)
        return Reader(descriptor, message_class(descriptor).FromString, required)

    def _read(self, number: int | None, value: bytes, start: int) -> tuple[Hashable, Message]:
        kind: Kind = (number, _FIRST)
        if number is not None:
            kind, start = self._placed(number, value, start)
        reader = self._readers.get(kind)
        if reader is None:
            reader = self._readers[kind] = self._of_place(kind)
        if isinstance(reader, Refusal):
            raise Refusal(reader.reason, reader.detail)
        try:
            record = reader.read(value[start:])
        except Exception as error:  # of a kind that depends on the implementation
            said = (str(error).splitlines() or [""])[0]
            raise Refusal("decode", f"not a message {reader.descriptor.full_name}: {said}".rstrip(": ")) from error
        if reader.closed and not record.IsInitialized():
            missing = ", ".join(record.FindInitializationErrors())
            raise Refusal("decode", f"not a message {reader.descriptor.full_name}: without {missing}")
        return kind, record

    def _columns(self, kind: Any, records: list[Message]) -> Mapping[str, pa.Array]:
        reader = self._readers[kind]
        assert isinstance(reader, Reader)
        check_known(records, reader.descriptor)
        return self._arrays(reader.descriptor, records)

    def _arrays(self, descriptor: Descriptor, records: list[Message]) -> dict[str, pa.Array]:
        """The fields that concern the source, and, with nothing in them, those that it does not have."""
        found = {}
        for field in descriptor.fields:
            column = self._row_type.earlier_names.get(field.name, field.name)
            if field.name in self._row_type.dropped:
                continue
            if field.name in (TIME, DIFF):
                found[field.name] = field_column(records, field, pa.int64(), field.name)
            elif column not in self._row_type:
                found[field.name] = pa.nulls(len(records))
            else:
                want = self._row_type.field(column).type.arrow
                found[field.name] = self._completed(column, field_column(records, field, want, repr(field.name)))
        return found

    def _completed(self, column: str, array: pa.Array) -> pa.Array:
        """A column with its default where the field is absent."""
        value = self._row_type.defaults(column)
        if not array.null_count or value is ABSENT or value is None:
            return array
        return pc.fill_null(array, pa.array([value], array.type)[0])

    def _placed(self, number: int, value: bytes, start: int) -> tuple[Kind, int]:
        """Which type of its schema a message has, and where it begins. Raises Refusal."""
        if value[start : start + 1] == b"\0":
            return (number, _FIRST), start + 1
        count, start = _varint(value, start)
        if not 0 <= count <= _MOST_INDEXES:
            raise Refusal("decode", f"the message has {count} message indexes")
        places = []
        for _ in range(count):
            place, start = _varint(value, start)
            places.append(place)
        return (number, tuple(places)), start

    def _of_place(self, kind: Kind) -> Reader | Refusal:
        """The reader of a type that is new, or why there is none."""
        number, places = kind
        what = f"schema {number} of the registry"
        try:
            text = self._texts[number]
            descriptor = by_indexes(text, places)
            if self._message is not None and descriptor != by_name(text, self._message):
                return Refusal("schema", f"the message is {descriptor.full_name}, not {self._message}")
            return self._reader(descriptor)
        except ValueError as error:
            return Refusal("decode", f"{what} cannot be used: {error}")
        except Refusal as refusal:
            said = refusal.detail.replace("the message has", "it has")
            whose = f"{descriptor.full_name} of {what}"
            return Refusal("schema", f"{whose} does not fit source {self._name}: {said}")


def _varint(value: bytes, start: int) -> tuple[int, int]:
    """A zigzag integer, and where it ends. Raises Refusal."""
    found = 0
    for at in range(start, min(len(value), start + 5)):
        found |= (value[at] & 127) << 7 * (at - start)
        if value[at] < 128:
            return found >> 1 ^ -(found & 1), at + 1
    raise Refusal("decode", "the message's indexes cannot be read")
