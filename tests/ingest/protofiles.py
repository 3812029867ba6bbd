"""Descriptors of Protobuf files for tests, without a compiler: messages of named fields."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from vernier.service.ingest.formats.descriptors import by_name, message_class

File = descriptor_pb2.FileDescriptorProto
_F = descriptor_pb2.FieldDescriptorProto
TYPES = {name.removeprefix("TYPE_").lower(): number for name, number in _F.Type.items()}


def file(messages: Mapping[str, Mapping[str, str]], enums: Mapping[str, Mapping[str, int]] | None = None,
         imports: tuple[str, ...] = (), name: str = "main.proto", syntax: str = "proto3") -> File:  # fmt: skip
    """A file of the package `shop`. messages: by name, the fields with their types: `int64`, `optional int64`,
    `repeated string`, `required int32`, `shop.Kind` (an enum or a message of that full name), `oneof NAME TYPE`; a
    number may follow, `int64 7`."""
    made = File(name=name, package="shop", syntax=syntax, dependency=imports)
    for kind, given in (enums or {}).items():
        enum = made.enum_type.add(name=kind)
        for value, number in given.items():
            enum.value.add(name=value, number=number)
    enum_names = {f"shop.{kind}" for kind in enums or {}}
    for message, fields in messages.items():
        built = made.message_type.add(name=message)
        late = []
        for place, (field, spelled) in enumerate(fields.items(), 1):
            words = spelled.split()
            number = int(words.pop()) if words[-1].isdecimal() else place
            one = built.field.add(name=field, number=number, label=_F.LABEL_OPTIONAL, json_name=field)
            if words[0] in ("repeated", "required"):
                one.label = _F.Label.Value(f"LABEL_{words[0].upper()}")
            if words[0] == "optional" and syntax == "proto3":
                one.proto3_optional = True
                late.append(one)
            if words[0] == "oneof":
                names = [group.name for group in built.oneof_decl]
                if words[1] not in names:
                    built.oneof_decl.add(name=words[1])
                    names.append(words[1])
                one.oneof_index = names.index(words[1])
            kind = words[-1]
            if kind in TYPES:
                one.type = TYPES[kind]  # type: ignore[assignment]
            else:
                one.type = _F.TYPE_ENUM if kind in enum_names else _F.TYPE_MESSAGE
                one.type_name = f".{kind}"
        for one in late:
            one.oneof_index = len(built.oneof_decl)
            built.oneof_decl.add(name=f"_{one.name}")
    return made


def descriptor_set(*files: File) -> bytes:
    """A descriptor set; the last file is the one that is meant."""
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


def encoded(one: File) -> str:
    """A file as a registry has it."""
    return base64.b64encode(one.SerializeToString()).decode()


def written(files: bytes, name: str | None, /, **fields: Any) -> Message:
    """A message of a descriptor set."""
    return message_class(by_name(base64.b64encode(files).decode(), name))(**fields)
