"""Rows in the format that the request accepts: JSON, NDJSON, CSV or an Arrow IPC stream.

JSON has what is known about the answer in its body; the other formats have it in headers (`vernier-as-of`, `-since`,
`-frontier`, `-next-cursor`, `-stale-ms`), which JSON has too.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Literal

import msgspec
import pyarrow as pa
from starlette.responses import Response

from service.answers import Page
from service.rowjson import DIFF
from service.sidecar.problems import Problem

Format = Literal["json", "ndjson", "csv", "arrow", "sse"]

MEDIA_TYPES: dict[Format, str] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
    "sse": "text/event-stream",
}
_ALIASES = {"application/ndjson": "application/x-ndjson", "application/jsonl": "application/x-ndjson"}


def choose(accept: str | None, offered: Sequence[Format]) -> Format:
    """The best offered format by an Accept header; the first for none or `*/*`. Raises Problem not_acceptable."""
    if not accept:
        return offered[0]
    best: tuple[float, int, Format] | None = None
    for entry in accept.split(","):
        media, *parameters = (part.strip().lower() for part in entry.split(";"))
        media = _ALIASES.get(media, media)
        quality = _quality(parameters)
        for rank, name in enumerate(offered):
            kind = MEDIA_TYPES[name]
            fits = media in (kind, "*/*") or (media.endswith("/*") and kind.startswith(media[:-1]))
            if fits and quality > 0 and (best is None or (quality, -rank) > (best[0], -best[1])):
                best = (quality, rank, name)
    if best is None:
        types = ", ".join(MEDIA_TYPES[name] for name in offered)
        raise Problem.of(406, "not_acceptable", f"cannot answer as {accept}; there are {types}")
    return best[2]


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def page_headers(page: Page, stale_ms: int) -> dict[str, str]:
    """What is known about an answer, as headers."""
    headers = {
        "vernier-as-of": str(page.as_of),
        "vernier-since": str(page.view.since),
        "vernier-frontier": str(page.view.frontier),
        "vernier-stale-ms": str(stale_ms),
        "cache-control": "no-store",
        "vary": "accept",
    }
    if page.next_cursor is not None:
        headers["vernier-next-cursor"] = page.next_cursor
    return headers


def page_body(page: Page, stale_ms: int) -> dict[str, object]:
    """The JSON body of an answer."""
    return {
        "view": page.view.name,
        "as_of": str(page.as_of),
        "since": str(page.view.since),
        "frontier": str(page.view.frontier),
        "stale_ms": stale_ms,
        "rows": page.dicts(),
        "next_cursor": page.next_cursor,
    }


def page_response(page: Page, form: Format, stale_ms: int) -> Response:
    """The answer in one of the formats."""
    match form:
        case "ndjson":
            body = b"".join(msgspec.json.encode(row) + b"\n" for row in page.dicts())
        case "csv":
            body = _csv(page)
        case "arrow":
            body = _arrow(page)
        case _:
            body = msgspec.json.encode(page_body(page, stale_ms))
    return Response(body, 200, page_headers(page, stale_ms), MEDIA_TYPES[form])


def _csv(page: Page) -> bytes:
    rows = page.dicts()
    names = [*page.columns, *([DIFF] if any(DIFF in row for row in rows) else [])]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval=1, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue().encode()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def _arrow(page: Page) -> bytes:
    batch = page.codec.arrow(page.rows, page.counts)
    metadata = {"vernier.as_of": str(page.as_of), "vernier.view": page.view.name}
    batch = batch.replace_schema_metadata(metadata)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
