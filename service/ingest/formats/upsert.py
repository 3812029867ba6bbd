"""The upsert format: the message's key names the row and its value is the row as it is now; no value means deleted.

The key is JSON: an object by name, an array in the order of the settings' key columns, or, for a key of one column, its
value (for a String also the text itself). The value is an object by name, which may leave out the key's columns, or an
array of all columns. Progress is `{"resolved":"<ns>"}` with any key. A message has no time of its own: the clock
`event` uses the record's timestamp.

The diff encodes a message's meaning (operators/physical/upsert.py): its sign says set or deleted, its size the position
in the log, which ingestion fills in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from vernier.operators.language.types.scalars import Int64, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import String
from vernier.service.ingest.formats.columns import Gathered, resolved
from vernier.service.ingest.formats.composed import Huge, Real, exact
from vernier.service.ingest.formats.enveloped import Line
from vernier.service.ingest.formats.json_lines import JsonLines, judge_resolved
from vernier.service.ingest.formats.judge import load
from vernier.service.ingest.formats.messages import Ints, Parsed, Progress, Refused
from vernier.service.ingest.formats.present import present
from vernier.service.ingest.formats.sieve import doubtful
from vernier.service.ingest.rejects import Refusal, shown
from vernier.storage.strings.string_heap import Heap

_NULL = b"null"


@dataclass(frozen=True, slots=True)
class Upserted:
    """One message: the JSON of the whole row, None for a deleted one; the JSON of the key's columns; its time in JSON,
    None if it has none."""

    row: bytes | None
    key: bytes
    time: bytes | None = None


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.encode


class Upserts:
    """Reads a topic of upserts for one source. key: its key columns. `decode_keyed` takes the place of
    messages.Format's `decode`."""

    def __init__(self, sources: Mapping[str, RowType], key: Sequence[str]) -> None:
        ((self._name, self._row_type),) = sources.items()
        self._key = tuple(key)
        self._key_type = self._row_type.take(self._key)
        (kind, *others) = (field.type for field in self._key_type.fields)
        self._plain_text = isinstance(kind, String) and not others
        self._rows, self._keys = JsonLines(sources), JsonLines({self._name: self._key_type})

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Without keys every message is refused."""
        return self.decode_keyed(values, pa.nulls(len(values), pa.binary()), heap)

    def decode_keyed(self, values: pa.LargeBinaryArray, keys: pa.BinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch with its keys. Diffs are 1 for a row that is set and -1 for one that is deleted."""
        found = Gathered(self._name, self._row_type)
        sets: list[tuple[int, bytes]] = []
        gone: list[tuple[int, bytes]] = []
        suspects = zip(doubtful(keys).tolist(), doubtful(values).tolist(), strict=True)
        given = zip(keys.to_pylist(), values.to_pylist(), suspects, strict=True)
        for message, (key, value, (bad_key, bad_value)) in enumerate(given):
            try:
                if bad_value:
                    load(value)
                if value is not None and resolved(value) and "resolved" not in self._row_type:
                    upper = judge_resolved(value)
                    found.progress.append(Progress(message, upper.lower, upper.upper))
                    continue
                opened = self._opened(key, value, bad_key)
                if opened is None:
                    continue
                if opened.row is None:
                    gone.append((message, Line(opened.key, -1, opened.time).encode()))
                else:
                    sets.append((message, Line(opened.row, 1, opened.time).encode()))
            except Refusal as refusal:
                found.refuse(message, refusal)
        self._add(found, sets, self._rows, np.arange(self._row_type.width), heap)
        self._add(found, gone, self._keys, self._row_type.index(self._key), heap)
        return found.parsed()

    def _add(
        self, found: Gathered, lines: list[tuple[int, bytes]], reader: JsonLines, words: Any, heap: Heap | None
    ) -> None:
        """Add what the reader returns for lines of whole rows, or of keys alone, whose words are `words` of a row."""
        parsed = reader.decode(pa.array([line for _, line in lines], pa.large_binary()), heap)
        owners = np.array([message for message, _ in lines], np.int64)
        rows: Ints = np.zeros((len(parsed.time), self._row_type.width), np.int64)
        rows[:, words] = parsed.words[self._name]
        found.add(owners[parsed.message] if len(owners) else parsed.message, (rows, parsed.time, parsed.diff))
        for one in parsed.refused:
            reason = "key" if reader is self._keys else one.reason
            found.refused.append(Refused(int(owners[one.message]), reason, one.detail, self._name))

    def _opened(self, key: bytes | None, value: bytes | None, suspect: bool) -> Upserted | None:
        """What a message says, None for nothing. suspect: whether the key must be checked first. Raises Refusal."""
        if key is not None and suspect:
            self._look(key)
        named = self._named(key)
        row = None if value is None or value == _NULL else self._row(named, value)
        return Upserted(row, _encode(named))

    def _look(self, key: bytes) -> None:
        """Read a key strictly. Raises Refusal with the reason `key`."""
        if self._plain_text and key.lstrip()[:1] not in (b'"', b"[", b"{"):
            return
        try:
            load(key)
        except Refusal as refusal:
            raise Refusal("key", f"the key is {shown(key)}, which is not JSON ({refusal.detail})") from refusal

    def _named(self, key: bytes | None) -> dict[str, msgspec.Raw]:
        """The key's columns by name. Raises Refusal with the reason `key`."""
        columns = ", ".join(self._key)
        if key is None or not key.strip():
            raise Refusal("key", f"the message has no key, but it should have {columns}")
        try:
            if key.lstrip()[:1] == b"{":
                named = _members(key)
            elif self._plain_text and key.lstrip()[:1] not in (b'"', b"["):
                named = {self._key[0]: msgspec.Raw(_encode(key.decode("utf-8")))}
            elif len(self._key) == 1 and key.lstrip()[:1] != b"[":
                self._look(key)
                named = {self._key[0]: msgspec.Raw(key)}
            else:
                items = _items(key)
                if len(items) != len(self._key):
                    raise Refusal("key", f"the key has {len(items)} values for the columns {columns}")
                named = dict(zip(self._key, items, strict=True))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refusal("key", f"the key is {shown(key)}, which is not JSON ({error})") from error
        named = self._present(named, "the key")
        if set(named) != set(self._key):
            raise Refusal("key", f"the key has the columns {', '.join(sorted(named))}, but it should have {columns}")
        return named

    def _present(self, members: dict[str, msgspec.Raw], what: str) -> dict[str, msgspec.Raw]:
        """The members by the present names of the columns. Raises Refusal."""
        return present(members, self._row_type, what) if self._row_type.changed else members

    def _row(self, named: dict[str, msgspec.Raw], value: bytes) -> bytes:
        """The row's JSON with the key's columns in it. Raises Refusal."""
        try:
            if value.lstrip()[:1] == b"[":
                items = _items(value)
                written = self._row_type.of_length(len(items))
                if written is None:
                    return value  # the row's judge says what is wrong
                members = self._present(dict(zip(written.names, items, strict=True)), "the row")
            else:
                members = self._present(_members(value), "the row")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            load(value)  # raises if the value is not legal JSON
            raise Refusal("schema", f"the value is {shown(value)}, but it should be an object or an array") from error
        for name, raw in named.items():
            other = members.setdefault(name, raw)
            if other != raw and not _same(load(bytes(other)), load(bytes(raw)), self._row_type.field(name).type):
                raise Refusal("key", f"{name} is {bytes(raw)[:60]!r} in the key but {bytes(other)[:60]!r} in the row")
        return _encode(members)


def _same(one: object, other: object, kind: Type) -> bool:
    """Whether two JSON values are the same column value; `1` and `1.0` are, except in integer columns."""
    if isinstance(one, bool) or isinstance(other, bool) or isinstance(kind, Int64):
        return type(one) is type(other) and one == other
    if isinstance(one, (int, Real, Huge)) and isinstance(other, (int, Real, Huge)):
        return exact(one) == exact(other)
    return one == other
