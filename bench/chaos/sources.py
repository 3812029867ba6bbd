"""Sources of the chaos program: their topics, and how to write and read their messages.

`SETTINGS` are the service's. `Reader` turns the records of a topic into updates with their data times by separate
code (json, pyarrow) that follows docs/messages.md; the service's results for the same records are compared with it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.chaos.truth import Row, Update
from tests.attack.hostile import AVRO, FORMATS, KEY
from tests.attack.hostile_protobuf import PROTOBUF

PARTITIONS = 2
HOSTILE = "chaos-hostile"
"""The header of messages that must not enter; its value names them."""

_event = {"clock": "event", "idle_timeout_ms": None, "partitions": PARTITIONS}
_arrival = {"clock": "arrival", "partitions": PARTITIONS}
SETTINGS: dict[str, dict[str, Any]] = {
    "links": {**_event, "format": "vernier"},
    "people": {**_arrival, "format": "upsert", "key": ["id"]},
    "orders": {**_event, "format": "json"},
    "payments": {**_event, "format": "debezium", "lateness": "200ms", "partitions": 1},
    "clicks": {**_arrival, "format": "arrow"},
    "notes": {**_arrival, "format": "insert_delete"},
}
ODD = "odd_"
"""Sources of these names, one for each format, get hostile messages and nothing else."""


def odd_settings(folder: Path) -> dict[str, dict[str, Any]]:
    """The settings of the sources for hostile messages. folder: where `write_schemas` has written."""
    more: dict[str, dict[str, Any]] = {
        "upsert": {"key": list(KEY)},
        "avro": {"schema_file": str(folder / "odd.avsc")},
        "protobuf": {"descriptor_file": str(folder / "odd.desc")},
    }
    return {f"{ODD}{form}": {"format": form, "partitions": 1, **more.get(form, {})} for form in FORMATS}


def write_schemas(folder: Path) -> None:
    """Write the schemas of hostile messages."""
    (folder / "odd.avsc").write_text(json.dumps(AVRO), "utf-8")
    (folder / "odd.desc").write_bytes(base64.b64decode(PROTOBUF))


COLUMNS: dict[str, tuple[str, ...]] = {
    "links": ("src", "dst"),
    "people": ("id", "name", "city"),
    "orders": ("id", "person", "item", "amount"),
    "payments": ("id", "order", "method"),
    "clicks": ("person", "page", "at"),
    "notes": ("person", "text", "stars"),
}
CLICKS = pa.schema([("person", pa.int64()), ("page", pa.large_string()), ("at", pa.int64()), ("_diff", pa.int64())])


def partitions(source: str) -> int:
    """The number of partitions of its topic."""
    return int(SETTINGS[source]["partitions"]) if source in SETTINGS else 1


def resolved(source: str, time: int) -> bytes:
    """The message which promises that nothing before `time` follows in its partition."""
    if SETTINGS[source]["format"] == "vernier":
        return json.dumps({"v": 1, "p": {"lower": ["0"], "upper": [str(time)]}}).encode()
    return json.dumps({"resolved": str(time)}).encode()


def clicks(rows: Iterable[tuple[Row, int]]) -> bytes:
    """An Arrow stream of (row, diff)."""
    listed = [(*row, diff) for row, diff in rows]
    batch = pa.record_batch([pa.array(column, kind.type) for column, kind in zip(zip(*listed), CLICKS)], schema=CLICKS)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, CLICKS) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue().to_pybytes())


@dataclass(frozen=True, slots=True)
class Record:
    """A message at its position. ms: the broker's timestamp."""

    topic: str
    partition: int
    offset: int
    ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    @property
    def place(self) -> tuple[str, int, int]:
        """Its position."""
        return self.topic, self.partition, self.offset

    @property
    def hostile(self) -> str | None:
        """Its name, if it must not enter."""
        return next((value.decode() for name, value in self.headers if name == HOSTILE), None)


@dataclass
class Reader:
    """Reads one source's records, each partition in the order of its offsets. updates: at their data times."""

    source: str
    updates: list[Update] = field(default_factory=list)
    _stamps: dict[int, int] = field(default_factory=dict)
    _newest: dict[Any, Row] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """The next record of its partition."""
        if record.hostile is not None:
            return
        read: Callable[[Record], Sequence[tuple[Row, int | None, int]]] = getattr(self, f"_{self.source}")
        for row, time, diff in read(record):
            self.updates.append(Update(self.source, row, self._stamp(record) if time is None else time, diff))

    def _stamp(self, record: Record) -> int:
        """The arrival clock: the broker's time, and later than the stamp before."""
        stamp = max(self._stamps.get(record.partition, -1) + 1, record.ms * 1_000_000)
        self._stamps[record.partition] = stamp
        return stamp

    def _links(self, record: Record) -> Sequence[tuple[Row, int | None, int]]:
        said = json.loads(record.value or b"")
        return [(tuple(row), int(time), diff) for row, time, diff in said.get("u", ())]

    def _orders(self, record: Record) -> Sequence[tuple[Row, int | None, int]]:
        said = json.loads(record.value or b"")
        return [] if "resolved" in said else [(tuple(said["data"]), int(said["time"]), said["diff"])]

    def _payments(self, record: Record) -> Sequence[tuple[Row, int | None, int]]:
        said = json.loads(record.value or b"")
        if "resolved" in said:
            return []
        sides = ((said["before"], -1), (said["after"], 1))
        time = said["source"]["ts_ns"]
        return [(tuple(row[name] for name in COLUMNS["payments"]), time, diff) for row, diff in sides if row]

    def _clicks(self, record: Record) -> Sequence[tuple[Row, int | None, int]]:
        table = pa.ipc.open_stream(record.value).read_all()
        return [(tuple(row[name] for name in COLUMNS["clicks"]), None, row["_diff"]) for row in table.to_pylist()]

    def _notes(self, record: Record) -> Sequence[tuple[Row, int | None, int]]:
        found: list[tuple[Row, int | None, int]] = []
        for event in json.loads(record.value or b""):
            ((what, row),) = event.items()
            found.append((tuple(row[name] for name in COLUMNS["notes"]), None, 1 if what == "insert" else -1))
        return found

    def _people(self, record: Record) -> Sequence[tuple[Row, int | None, int]]:
        ident = json.loads(record.key or b"")["id"]
        said = json.loads(record.value) if record.value is not None else None
        row = None if said is None else (ident, said["name"], said["city"])
        stamp = self._stamp(record)
        before = self._newest.pop(ident, None)
        if row is not None:
            self._newest[ident] = row
        sides = ((before, -1), (row, 1)) if before != row else ()
        return [(one, stamp, diff) for one, diff in sides if one is not None]
