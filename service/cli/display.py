"""Formats the output of the command line: aligned tables for people; JSON, CSV and Arrow for programs."""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from vernier.service.codec.instants import format_instant
from vernier.service.observability.metrics import LATENCY_BOUNDS
from vernier.storage.errors import CallerError
from vernier.storage.time.lattice import CLOSED, MIN_TIME

if TYPE_CHECKING:
    from vernier.service.client.answers import Event, Rows
    from vernier.service.coordinator.preview import Preview
    from vernier.service.replay.rows_at import RowsAt
    from vernier.storage.state.survey import Survey

_CONDITION = re.compile(r"([A-Za-z_]\w*)(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_COUNTERS = 10**15
_INSTANTS = ("TimestampNs", "TIMESTAMP_NS")
"""Types of nanoseconds: in views, and in answers of SQL."""
_OPERATORS = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class BadCondition(CallerError):
    """A --where condition cannot be parsed."""

    message = "--where {text!r} is not a condition: write column=value, or one of != < <= > >= in place of ="
    text: str


def condition(text: str) -> str:
    """Convert `column=value` to the form of HTTP, `column:eq:value`; that form itself is kept. Raises BadCondition."""
    found = _CONDITION.fullmatch(text)
    if found:
        return f"{found[1]}:{_OPERATORS[found[2]]}:{found[3]}"
    if ":" in text:
        return text
    raise BadCondition(text=text)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format rows as lines with aligned columns, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    widths = [max(len(name), *(len(row[i]) for row in cells)) if cells else len(name) for i, name in enumerate(columns)]
    lines = []
    for row in [list(columns), *cells]:
        aligned = [text.rjust(w) if to_right else text.ljust(w) for text, w, to_right in zip(row, widths, right)]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def json_line(value: object) -> str:
    """Compact JSON."""
    return msgspec.json.encode(value).decode()


def show_rows(view: str, rows: Rows, kinds: Mapping[str, str], columns: Sequence[str], form: str) -> None:
    """Print rows as `table`, `json` (the body of the HTTP answer) or `csv`. kinds: the types of the view's columns."""
    columns = [*columns, *(["_diff"] if any("_diff" in row for row in rows) else [])]
    values = [[row.get(name, 1 if name == "_diff" else None) for name in columns] for row in rows]
    if form == "json":
        about = {"view": view, "as_of": str(rows.as_of), "since": str(rows.since), "frontier": str(rows.frontier)}
        print(json_line(about | {"rows": list(rows)}))
    elif form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(["" if value is None else _cell(value) for value in row] for row in values)
        print(out.getvalue(), end="")
    else:
        print(table(columns, [shown(row, [kinds.get(name, "") for name in columns]) for row in values]))
        plural = "" if len(rows) == 1 else "s"
        print(f"({len(rows)} row{plural} of {view} as of {instant(rows.as_of)})", file=sys.stderr)


def show_views(found: RowsAt) -> None:
    """Print the rows of each view as a table, with the view's name above it if there are several."""
    for i, view in enumerate(found.views):
        if len(found.views) > 1:
            print(f"{chr(10) if i else ''}{view}:")
        kinds = dict(found.views[view][0].to_json())
        show_rows(view, found.rows(view), kinds, found.columns(view), "table")


def show_arrow(rows: pa.Table) -> None:
    """Write an Arrow IPC stream to standard output."""
    with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as writer:
        writer.write_table(rows)
    sys.stdout.buffer.flush()


def event_lines(view: str, event: Event) -> Iterator[str]:
    """One line per change, as in change files but with rows by name. The rows of a snapshot have its time."""
    for change in event.changes:
        yield json_line({"view": view, "data": change.row, "time": change.time, "diff": change.diff})


def instant(ns: int) -> str:
    """A data time for people. Small numbers are shown as they are, because they are counters rather than dates."""
    if ns == CLOSED:
        return "the end"
    if ns <= MIN_TIME + 1:  # the frontier of a view of which nothing is final, or the last time before it
        return "the beginning"
    return str(ns) if abs(ns) < _COUNTERS else f"{ns} ({format_instant(ns)})"


def shown(row: Sequence[object], kinds: Sequence[str]) -> list[object]:
    """A row for people: nanoseconds as dates, as in `instant`; lists and structs as JSON. kinds: its columns' types."""
    return [
        _date(value)
        if kind.partition(" ")[0] in _INSTANTS and value is not None
        else json_line(value)
        if isinstance(value, (list, dict))
        else value
        for value, kind in zip(row, kinds, strict=True)
    ]


def _date(value: object) -> str:
    ns = int(str(value))
    return str(ns) if abs(ns) < _COUNTERS else format_instant(ns)


def status_text(status: Mapping[str, Any]) -> str:
    """The status of a service that has an epoch, on about one screen."""
    lines = [
        f"{status['app']} at {status['url']}: {'ready' if status['ready'] else 'not ready'}",
        f"epoch {status['epoch']}, committed {status['stale_ms'] / 1000:.1f} s ago",
        *([status["change"]] if status.get("change") else []),
        "",
    ]
    views = []
    for view in status["views"]:
        latency = status["latency"].get(view["name"], {})
        spans = (latency, latency.get("all_time", {}))
        quantiles = [_ms(span.get(q)) for span in spans for q in ("0.5", "0.99")]
        views.append([view["name"], view["rows"], ", ".join(view["key"]), instant(int(view["frontier"])), *quantiles])
    lines += [table(["view", "rows", "key", "final before", "p50 ms", "p99 ms", "p50 ever", "p99 ever"], views), ""]
    sources = []
    for name, about in status["sources"].items():
        frontier = about.get("frontier")
        refused = sum((about.get("errors") or {}).values())
        known = [about.get(what) for what in ("topic", "format", "clock")]
        before = "idle" if about.get("state") == "idle" else _frontier(frontier)
        sources.append([name, *known, before, about.get("held"), refused])
    lines += [table(["source", "topic", "format", "clock", "final before", "held", "refused"], sources), ""]
    for name, about in status["sources"].items():
        poison = (about.get("errors") or {}).get("poison")
        if poison:
            warning = f"source {name}: {poison} messages killed or hung their decoder; see `vernier dlq list {name}`"
            lines += [warning, ""]
    sinks = []
    for name, about in status.get("sinks", {}).items():
        messages = sum(about["messages"].values())
        known = [about["topic"], about["format"], _frontier(about["frontier"]), messages, about["problem"] or ""]
        sinks.append([name, *known])
    if sinks:
        lines += [table(["sink", "topic", "format", "sent before", "messages", "problem"], sinks), ""]
    traces = [
        [trace.get("label") or trace["trace"], trace["updates"], trace["bytes"], _shared(trace)]
        for trace in sorted(status.get("traces", ()), key=lambda one: -int(one["bytes"]))
    ]
    lines.append(table(["arrangement", "updates", "bytes", "serves"], traces))
    return "\n".join(lines)


def _shared(trace: Mapping[str, Any]) -> str:
    """The views that depend on an arrangement."""
    return ", ".join(trace.get("views") or ())


def _frontier(frontier: object) -> str:
    if isinstance(frontier, list):
        return instant(int(frontier[0])) if frontier else instant(CLOSED)
    return "unknown" if frontier is None else instant(int(str(frontier)))


def _ms(seconds: float | None) -> float | str:
    """A latency for people. Histograms end at their largest bound, so a quantile there is at least that."""
    if seconds is None:
        return "-"
    return f"> {seconds * 1000:.0f}" if seconds >= LATENCY_BOUNDS[-1] else round(seconds * 1000, 1)


def preview_text(found: Preview) -> str:
    """What a change of programs would do, as a table."""
    rows = [[one.fate, one.kind, one.name, ", ".join(one.columns), one.about] for one in found.lines]
    lines = [table(["", "what", "name", "columns", "why"], rows), ""]
    if found.unfit:
        lines.append("refused: the columns of a source and the schemas of its registry do not go together")
    elif not found.epoch:
        lines.append("the state is empty: the service reads its topics from their beginning")
    elif found.refused:
        lines.append(
            f"refused: the state of epoch {found.epoch} cannot go on with this; revert, or `vernier up --rebuild`"
        )
    else:
        rest = f"{found.rows:,} rows to read, about {found.seconds:g} s beside the epochs" if found.rows else "at once"
        lines.append(f"the state of epoch {found.epoch} can go on: {rest}")
    return "\n".join(lines)


def state_text(found: Survey, sizes: Mapping[str, int]) -> str:
    """Describe a state directory at an epoch: its arrangements and its files. sizes: bytes by segment, all segments."""
    age = (time.time_ns() - found.committed_ns) / 1e9
    views = {trace: view for view, trace in found.views.items()}
    rows: list[list[object]] = []
    for one in found.arrangements:
        times = ["" if time is None else instant(time) for time in (one.since, one.upper)]
        counts = [one.updates, one.bytes, one.batches, one.distinct_times]
        rows.append([one.name, views.get(one.name, ""), *counts, *times])
    older = (
        f"{sum(sizes.values()) - found.bytes:,} bytes in {len(sizes) - found.segments} of them belong to other epochs"
    )
    lines = [
        f"{found.path}: app {found.app}, epoch {found.epoch} of {found.workers} workers, {age:,.0f} s old",
        f"final before {instant(found.upper)}; {len(found.epochs)} epochs kept, the oldest is {min(found.epochs)}",
        f"{len(sizes)} segments, {sum(sizes.values()):,} bytes; {older}",
        f"{found.held_updates:,} updates are stashed until their time",
        "",
        table(["arrangement", "view", "updates", "bytes", "batches", "distinct times", "since", "upper"], rows),
    ]
    return "\n".join(lines)
