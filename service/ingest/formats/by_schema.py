"""Messages that need a schema to be read: one record each, in a binary encoding.

The schema comes from the settings, for messages that are just the record, or by the id with which a message begins (a
zero byte and the id: Confluent's framing), from a registry (registry.py) or from files. A registry's schema is compared
with the source's columns once, before its messages: if it does not fit, each of them is refused with the same reason.
`_time` (ns, or a timestamp) and `_diff` may be fields. Progress is `{"resolved":"<ns>"}` in JSON.

Cost: a call of the encoding's compiled reader for each message, while the columns are made once per batch and schema.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.columns import Gathered, resolved, rows_of
from vernier.service.ingest.formats.json_lines import judge_resolved
from vernier.service.ingest.formats.messages import Ints, Parsed, Progress
from vernier.service.ingest.formats.registry import FRAME, Registry, Schema, ids_of
from vernier.service.ingest.rejects import Refusal
from vernier.storage.strings.string_heap import Heap

Schemas = tuple[tuple[int | None, str], ...]
"""(registry id, text of the schema) pairs; the id is None for the schema of messages without an id."""

R = TypeVar("R")
"""A record as the encoding's reader returns it."""


class Records(Protocol):
    """Records of one kind, as a list or in another form."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Self: ...


class BySchema(ABC, Generic[R]):
    """Reads a topic of records for one source; see messages.Format. schemas: see Schemas; the texts must be valid.
    registry: where schemas with other ids are."""

    form = ""
    """The form in which the registry returns the text of a schema."""
    ending = ""
    """Of the files in `schema_folder`."""
    bare = False
    """Whether no bytes are a record."""

    def __init__(self, sources: Mapping[str, RowType], schemas: Schemas, registry: Registry | None = None) -> None:
        ((self._name, self._row_type),) = sources.items()
        self._texts, self._registry = dict(schemas), registry
        self._plain = None in self._texts
        self._unfit: dict[int, Refusal] = {}

    @abstractmethod
    def _text(self, found: Schema) -> str:
        """A registry's schema, as `schemas` has it. Raises ValueError if it cannot be read, RegistryAway."""

    @abstractmethod
    def _check(self, text: str) -> None:
        """Compare a schema with the source's columns. Raises ValueError if it cannot be read, Refusal."""

    @abstractmethod
    def _read(self, number: int | None, value: bytes, start: int) -> tuple[Hashable, R]:
        """The record of a message that begins at `start`, and which records it shares its columns with. Raises
        Refusal."""

    @abstractmethod
    def _columns(self, kind: Any, records: Any) -> Mapping[str, pa.Array]:
        """The fields of records of one kind as columns, by the fields' names. Raises Refusal."""

    def prepare(self, values: pa.LargeBinaryArray) -> None:
        """Get the schemas of a batch of messages. Raises RegistryAway."""
        if self._registry is None or self._plain:
            return
        self._unfit = {number: why for number, why in self._unfit.items() if number in self._texts}
        for number in ids_of(values):
            if number not in self._texts:
                self._ask(number, self._registry)

    def _ask(self, number: int, registry: Registry) -> None:
        """Get a schema and check that its fields fit the source's columns."""
        found = registry.schema(number, self.form)
        if isinstance(found, str):
            self._unfit[number] = Refusal("decode", f"the registry has no schema {number}: {found}")
            return
        try:
            self._texts[number] = self.fitting(found)
        except Refusal as refusal:
            self._texts[number] = found.text
            self._unfit[number] = refusal

    def fitting(self, found: Schema) -> str:
        """A registry's schema, as `schemas` has it. Raises Refusal if messages of it cannot be rows of the source, and
        RegistryAway."""
        what = f"schema {found.number} of the registry"
        try:
            text = self._text(found)
            self._check(text)
        except ValueError as error:
            raise Refusal("schema", f"{what} cannot be read: {error}") from error
        except Refusal as refusal:
            said = refusal.detail.replace("the message has", "it has")
            raise Refusal("schema", f"{what} does not fit source {self._name}: {said}") from refusal
        return text

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch of messages."""
        self.prepare(values)
        found = Gathered(self._name, self._row_type)
        left = np.ones(len(values), np.bool_)
        for kind, scanned, together in self._scan(values):
            left[scanned] = False
            self._add(found, kind, scanned, together, heap)
        by_kind: dict[Hashable, tuple[list[int], list[R]]] = {}
        others = values if left.all() else values.filter(pa.array(left))
        for message, value in zip(np.flatnonzero(left).tolist(), others.to_pylist(), strict=True):
            try:
                if not value and not (value is not None and self._plain and self.bare):
                    raise Refusal("decode", "the message is empty: it has no value")
                if resolved(value):
                    upper = judge_resolved(value)
                    found.progress.append(Progress(message, upper.lower, upper.upper))
                    continue
                number, start = (None, 0) if self._plain else self._framed(value)
                kind, record = self._read(number, value, start)
            except Refusal as refusal:
                found.refuse(message, refusal)
                continue
            messages, records = by_kind.setdefault(kind, ([], []))
            messages.append(message)
            records.append(record)
        for kind, (messages, records) in by_kind.items():
            self._add(found, kind, np.array(messages, np.int64), records, heap)
        return found.parsed()

    def _scan(self, values: pa.LargeBinaryArray) -> Iterable[tuple[Hashable, Ints, Records]]:
        """The records that the encoding reads many at a time: (kind, their messages, records) for each kind. The other
        messages are read one by one, and explained."""
        return ()

    def _add(self, found: Gathered, kind: Hashable, messages: Ints, records: Records, heap: Heap | None) -> None:
        """Add records of one kind: all together or, if one of them is no row of the source, one by one."""
        try:
            found.add(messages, rows_of(self._columns(kind, records), len(records), self._row_type, heap))
        except Refusal as refusal:
            if len(records) == 1:
                found.refuse(int(messages[0]), refusal)
                return
            middle = len(records) // 2
            self._add(found, kind, messages[:middle], records[:middle], heap)
            self._add(found, kind, messages[middle:], records[middle:], heap)

    def _framed(self, value: bytes) -> tuple[int, int]:
        """The schema id of a message, and where what follows begins. Raises Refusal."""
        if len(value) < FRAME or value[0] != 0:
            raise Refusal("decode", "the message does not begin with a zero byte and the id of its schema")
        number = int.from_bytes(value[1:FRAME], "big")
        if number in self._unfit:
            why = self._unfit[number]
            raise Refusal(why.reason, why.detail)
        if number not in self._texts:
            known = ", ".join(str(one) for one in sorted(filter(None, self._texts)))
            raise Refusal("decode", f"schema {number} is unknown (known: {known}); add {number}.{self.ending}")
        return number, FRAME
