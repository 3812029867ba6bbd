"""What a sidecar answers, as Python has it: rows, and events of a change stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pyarrow as pa

from vernier.service.client.errors import ServerError


class Rows(list[dict[str, Any]]):
    """Rows as dicts. as_of, since, frontier: data times in ns. stale_ms: age of the newest epoch at the time of the
    answer.
    """

    def __init__(self, rows: Iterable[dict[str, Any]], as_of: int, since: int, frontier: int, stale_ms: int) -> None:
        super().__init__(rows)
        self.as_of, self.since, self.frontier, self.stale_ms = as_of, since, frontier, stale_ms

    @staticmethod
    def of(body: dict[str, Any]) -> Rows:
        """The rows of an answer's body."""
        return Rows(body["rows"], int(body["as_of"]), int(body["since"]), int(body["frontier"]), body["stale_ms"])


class Answer(Rows):
    """Rows of a question in SQL. columns: names and SQL types, in order, also when there are no rows."""

    def __init__(self, body: dict[str, Any]) -> None:
        as_of, since, frontier = (int(body[name]) for name in ("as_of", "since", "frontier"))
        super().__init__(body["rows"], as_of, since, frontier, body["stale_ms"])
        self.columns: list[tuple[str, str]] = [(column["name"], column["type"]) for column in body["columns"]]


@dataclass(frozen=True, slots=True)
class Change:
    """A row's multiplicity changed by `diff` at the data time `time` (ns)."""

    row: dict[str, Any]
    time: int
    diff: int


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a view in [lower, frontier).

    A snapshot carries the rows before `frontier` as changes at its `lower`.
    """

    kind: Literal["snapshot", "updates", "progress"]
    lower: int
    frontier: int
    changes: list[Change] = field(default_factory=list)


def events(lines: Iterable[str]) -> Iterator[tuple[Event, str]]:
    """The complete events of a change stream, and their ids; the parts of a snapshot are joined to one event. Raises
    ServerError for an error in the stream."""
    parts: list[Change] = []
    for line in lines:
        data = msgspec.json.decode(line)
        match data["event"]:
            case "snapshot":
                at = int(data["as_of"])
                parts += [Change(row, at, row.pop("_diff", 1)) for row in data["rows"]]
                if data["last"]:
                    yield Event("snapshot", at, at + 1, parts), data["id"]
                    parts = []
            case "updates" | "progress" as kind:
                changes = [Change(c["row"], int(c["time"]), c["diff"]) for c in data.get("changes", ())]
                yield Event(kind, int(data["lower"]), int(data["upper"]), changes), data["id"]
            case "error":
                raise ServerError(status=200, problem=data["code"], title="change stream", detail=data["detail"])


def with_diff(table: pa.Table, names: list[str]) -> pa.Table:
    """The table with the columns `names`: without metadata, and with a `_diff` of ones if it lacks the column."""
    if table.column_names == names:
        return table.replace_schema_metadata(None)
    return table.append_column(
        pa.field("_diff", pa.int64(), nullable=False), pa.array([1] * len(table))
    ).replace_schema_metadata(None)
