"""The schema that producers would register next: the newest one of a subject, with the columns that a source has now.

Nothing else changes: record, namespace and the fields that stay are those of the newest one, so what the registry says
about it is about the columns. A column that the newest schema lacks is added at the end, with null or its default where
it has one; a field whose column was dropped goes; one whose column has another name gets that name. A type is never
changed, since the newest one is read as it is.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File

from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.options import ABSENT
from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String
from vernier.service.ingest.formats.descriptors import parsed_file

_F = descriptor_pb2.FieldDescriptorProto
_AVRO: dict[type[Type], Any] = {
    Int64: "long", Bool: "boolean", Float64: "double", String: "string", Binary: "bytes",
    Date: {"type": "int", "logicalType": "date"}, TimestampNs: {"type": "long", "logicalType": "timestamp-nanos"},
}  # fmt: skip
_PROTOBUF: dict[type[Type], tuple[Any, str, str]] = {
    Int64: (_F.TYPE_INT64, "", ""), Bool: (_F.TYPE_BOOL, "", ""), Float64: (_F.TYPE_DOUBLE, "", ""),
    String: (_F.TYPE_STRING, "", ""), Binary: (_F.TYPE_BYTES, "", ""), Decimal: (_F.TYPE_STRING, "", ""),
    Date: (_F.TYPE_MESSAGE, ".google.type.Date", "google/type/date.proto"),
    TimestampNs: (_F.TYPE_MESSAGE, ".google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}  # fmt: skip
"""By type: that of the field, the message that it is, and the file that has this message."""


def next_avro(text: str, row_type: RowType) -> str | None:
    """The next Avro schema of a subject; None if the newest one has all columns and no others. Raises ValueError."""
    record = json.loads(text)
    fields, changed = [], False
    for field in record["fields"]:
        name = field["name"]
        now = row_type.earlier_names.get(name, name)
        changed |= now != name or name in row_type.dropped
        if name not in row_type.dropped:
            fields.append(field if now == name else field | {"name": now, "aliases": [name]})
    known = {field["name"] for field in fields}
    for one in row_type.fields:
        if one.name not in known:
            changed, default = True, row_type.defaults(one.name)
            kind = _avro(one.slot, one.name)
            fields.append({"name": one.name, "type": kind} | _default(default, one.type))
    return json.dumps(record | {"fields": fields}) if changed else None


def next_protobuf(text: str, name: str, row_type: RowType) -> str | None:
    """The next file of a subject, its serialized descriptor in base64; None if the message has all columns and no
    others. name: the full name of the message. Raises ValueError."""
    file = parsed_file(text)
    message = _message(file, name)
    changed = False
    for field in list(message.field):
        now = row_type.earlier_names.get(field.name, field.name)
        if field.name in row_type.dropped:
            message.reserved_range.add(start=field.number, end=field.number + 1)
            message.reserved_name.append(field.name)
            message.field.remove(field)
            changed = True
        elif now != field.name:
            field.name = field.json_name = now
            changed = True
    known = {field.name for field in message.field}
    for one in row_type.fields:
        if one.name not in known:
            changed = True
            _add_field(file, message, f".{name}", one.name, one.slot)
    return base64.b64encode(file.SerializeToString()).decode() if changed else None


def _avro(slot: Slot, name: str) -> Any:
    """A type in Avro. name: of a record, if it is one."""
    kind = slot.type
    if isinstance(kind, Decimal):
        found: Any = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    elif isinstance(kind, List):
        found = {"type": "array", "items": _avro(kind.element, f"{name}_element")}
    elif isinstance(kind, Struct):
        inner = [{"name": one, "type": _avro(part, f"{name}_{one}")} for one, part in kind.fields.items()]
        found = {"type": "record", "name": name, "fields": inner}
    else:
        found = _AVRO[type(kind)]
    return ["null", found] if slot.nullable else found


def _default(value: Any, kind: Type) -> dict[str, Any]:
    """The default of a field, as Avro has it."""
    if value is ABSENT:
        return {}
    if isinstance(kind, Decimal) and value is not None:
        number = int(value.scaleb(kind.scale)) if hasattr(value, "scaleb") else int(value) * 10**kind.scale
        value = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True).decode("latin-1")
    elif isinstance(kind, Date) and value is not None:
        value = value.toordinal() - 719_163
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"a default of {value} cannot be said in Avro")
    return {"default": value}


def _message(file: File, name: str) -> descriptor_pb2.DescriptorProto:
    """A message of a file. Raises ValueError."""
    inside = name.removeprefix(f"{file.package}.") if file.package else name
    messages, found = file.message_type, None
    for part in inside.split("."):
        found = next((one for one in messages if one.name == part), None)
        if found is None:
            raise ValueError(f"the schema has no message {name}")
        messages = found.nested_type
    assert found is not None
    return found


def _add_field(file: File, message: descriptor_pb2.DescriptorProto, path: str, name: str, slot: Slot) -> None:
    """Add a field behind the others. path: the message's full name, with a point before it. Raises ValueError."""
    used = [one.number for one in message.field] + [one.end - 1 for one in message.reserved_range]
    field = message.field.add(name=name, json_name=name, number=max(used, default=0) + 1, label=_F.LABEL_OPTIONAL)
    kind, nullable = slot.type, slot.nullable
    if isinstance(kind, List):
        if kind.element.nullable or isinstance(kind.element.type, List):
            raise ValueError(f"column {name} is {kind}, which cannot be said in Protobuf")
        field.label, kind, nullable = _F.LABEL_REPEATED, kind.element.type, False
    if isinstance(kind, Struct):
        inner = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")))
        for one, part in kind.fields.items():
            _add_field(file, inner, f"{path}.{inner.name}", one, part)
        field.type, field.type_name = _F.TYPE_MESSAGE, f"{path}.{inner.name}"
        return
    field.type, name_of_type, source = _PROTOBUF[type(kind)]
    if source:
        field.type_name = name_of_type
        if source not in file.dependency:
            file.dependency.append(source)
    if nullable and not source and file.syntax == "proto3":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
