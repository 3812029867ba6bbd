"""Descriptors of Protobuf messages: from the output of `protoc --descriptor_set_out --include_imports`, or from a
registry, whose files refer to others by name.

The text of a schema is a FileDescriptorSet in base64; the last file is the one whose messages are meant. Each text has
a pool of its own, so versions of a message exist side by side. Google's files that come with the package, and those
that a registry of Confluent's has built in, need not be in the set.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from vernier.service.ingest.formats.registry import Registry, Schema

FORM = "serialized"
"""The form in which a registry has the descriptor of a Protobuf file."""
_GOOGLE = "google/protobuf/"
_MODULES = ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
            "type", "wrappers")  # fmt: skip
_INT32, _BYTES, _UINT32 = 5, 12, 13
_BUILT_IN: dict[str, tuple[str, str, tuple[tuple[str, int], ...]]] = {
    "google/type/date.proto": ("google.type", "Date", (("year", _INT32), ("month", _INT32), ("day", _INT32))),
    "confluent/type/decimal.proto": (
        "confluent.type", "Decimal", (("value", _BYTES), ("precision", _UINT32), ("scale", _INT32)),
    ),
    "confluent/meta.proto": ("confluent", "Meta", (("doc", 9),)),
}  # fmt: skip
"""By file: its package, its message, and the message's fields with their types."""


def text_of(data: bytes) -> str:
    """The text of a descriptor set. Raises ValueError."""
    text = base64.b64encode(data).decode()
    main_file(text)
    return text


def text_of_registry(found: Schema, registry: Registry) -> str:
    """The text of a registry's schema with all that it refers to. Raises ValueError, RegistryAway."""
    if found.kind != "PROTOBUF":
        raise ValueError(f"it is {found.kind}; only messages of Protobuf are read")
    files: dict[str, File] = {}
    _gather("main.proto", found, registry, files)
    names = [*files][1:] + [*files][:1]
    return base64.b64encode(FileDescriptorSet(file=[files[name] for name in names]).SerializeToString()
                            ).decode()  # fmt: skip


def _gather(name: str, found: Schema, registry: Registry, files: dict[str, File]) -> None:
    """Put a schema's file, and those that it refers to, into `files`."""
    files[name] = file = parsed_file(found.text)
    file.name = name
    for one in found.references:
        if one.name in files:
            continue
        other = registry.referenced(one, FORM)
        if isinstance(other, str):
            raise ValueError(f"it refers to {one.name}, which the registry does not have: {other}")
        _gather(one.name, other, registry, files)


def parsed_file(text: str) -> File:
    """A file from its serialized descriptor in base64. Raises ValueError."""
    try:
        file: File = File.FromString(base64.b64decode(text, validate=True))
        return file
    except (binascii.Error, DecodeError) as error:
        problem = "the registry did not return a serialized descriptor"
        raise ValueError(f"{problem}; put descriptor sets as <id>.desc into sources.….schema_folder") from error


@cache
def main_file(text: str) -> FileDescriptor:
    """The file that is meant, in a pool of its own. Raises ValueError, with a one-line text."""
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(text)).file
    except DecodeError as error:
        raise ValueError("not a descriptor set; write it with protoc --descriptor_set_out --include_imports") from error
    if not files:
        raise ValueError("a descriptor set without files")
    pool = DescriptorPool()
    _add(pool, files[-1].name, {file.name: file for file in files}, set())
    return pool.FindFileByName(files[-1].name)


def _add(pool: DescriptorPool, name: str, files: Mapping[str, File], done: set[str], above: Sequence[str] = ()) -> None:
    """Add a file to a pool, after those that it imports. Raises ValueError."""
    if name in done:
        return
    if name in above:
        raise ValueError(f"{name} imports itself")
    file = files.get(name) or _own(name)
    if file is None:
        raise ValueError(f"{name} is not in the descriptor set; write it with protoc --include_imports")
    for other in file.dependency:
        _add(pool, other, files, done, (*above, name))
    try:
        pool.Add(file)
    except (TypeError, ValueError) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{name} cannot be used: {said}") from error
    done.add(name)


def _own(name: str) -> File | None:
    """A file that is known without a set."""
    stem = name.removeprefix(_GOOGLE).removesuffix(".proto")
    if name == f"{_GOOGLE}{stem}.proto" and stem in _MODULES:
        module = import_module(f"google.protobuf.{stem}_pb2")
        known: File = File.FromString(module.DESCRIPTOR.serialized_pb)
        return known
    if name not in _BUILT_IN:
        return None
    package, message, fields = _BUILT_IN[name]
    file = File(name=name, package=package, syntax="proto3")
    built = file.message_type.add(name=message)
    for number, (field, kind) in enumerate(fields, 1):
        built.field.add(name=field, number=number, type=kind, label=1)
    return file


def by_name(text: str, name: str | None) -> Descriptor:
    """The message of a name (its full one, or without the package); without a name, the only message of the file.
    Raises ValueError."""
    file = main_file(text)
    every = {one.full_name: one for one in _nested(file.message_types_by_name.values())}
    if name is None:
        if len(file.message_types_by_name) == 1:
            return next(iter(file.message_types_by_name.values()))
        raise ValueError(f"{file.name} has the messages {', '.join(every)}; set `message` to one of them")
    found = every.get(name) or every.get(f"{file.package}.{name}")
    if found is None:
        raise ValueError(f"{file.name} has no message {name} (it has {', '.join(every)})")
    return found


def by_indexes(text: str, indexes: Sequence[int]) -> Descriptor:
    """The message at a place of the file: the number of a message, then of one in it, and so on. Raises ValueError."""
    messages, found = list(main_file(text).message_types_by_name.values()), None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"the schema has no message at {list(indexes)}")
        found = messages[index]
        messages = list(found.nested_types)
    if found is None:
        raise ValueError("the message does not say which one of its schema it is")
    return found


def message_class(descriptor: Descriptor) -> type[Message]:
    """The class that reads messages."""
    found: type[Message] = GetMessageClass(descriptor)
    return found


def _nested(messages: Iterable[Descriptor]) -> Iterable[Descriptor]:
    """The messages with those inside them."""
    for one in messages:
        yield one
        yield from _nested(one.nested_types)
