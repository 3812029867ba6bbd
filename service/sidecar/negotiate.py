"""Encodes rows in the format that the request accepts: JSON, NDJSON, CSV or an Arrow IPC stream.

JSON carries the metadata of the answer in its body. All formats carry it in headers (`vernier-as-of`, `-since`,
`-frontier`, `-next-cursor`, `-stale-ms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec
from starlette.responses import Response

from vernier.service.sidecar.encoding import Budget, arrow_stream, csv_text, json_parts
from vernier.service.sidecar.problems import Problem
from vernier.service.views.answers import Page

Format = Literal["json", "ndjson", "csv", "arrow", "sse"]
Offered = TypeVar("Offered", bound=Format)

MEDIA_TYPES: dict[Format, str] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
    "sse": "text/event-stream",
}
_ALIASES = {"application/ndjson": "application/x-ndjson", "application/jsonl": "application/x-ndjson"}


def choose(accept: str | None, offered: Sequence[Offered]) -> Offered:
    """The best offered format for an Accept header; the first one for none or `*/*`. Raises Problem not_acceptable."""
    if not accept:
        return offered[0]
    best: tuple[float, int, Offered] | None = None
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


def page_response(page: Page, form: Format, stale_ms: int, budget: Budget) -> Response:
    """The answer in one of the formats. A page that is too long ends early. Raises TooSlow, TooLarge."""
    match form:
        case "csv":
            body, shown = csv_text(page, budget)
        case "arrow":
            body, shown = arrow_stream(page, budget)
        case "ndjson":
            parts, shown = json_parts(page.codec, page.rows, page.counts, budget)
            body = b"".join(part + b"\n" for part in parts)
        case _:
            head, shown = page_body(page, stale_ms, budget)
            body = msgspec.json.encode(head)
    headers = {
        "vernier-as-of": str(page.as_of),
        "vernier-since": str(page.view.since),
        "vernier-frontier": str(page.view.frontier),
        "vernier-stale-ms": str(stale_ms),
        "cache-control": "no-store",
        "vary": "accept",
    }
    next_cursor = page.next_after(shown)
    if next_cursor is not None:
        headers["vernier-next-cursor"] = next_cursor
    return Response(body, 200, headers, MEDIA_TYPES[form])


def page_body(page: Page, stale_ms: int, budget: Budget) -> tuple[dict[str, object], int]:
    """The JSON body of an answer, and its number of rows. Raises TooSlow, TooLarge."""
    parts, shown = json_parts(page.codec, page.rows, page.counts, budget)
    body = {
        "view": page.view.name,
        "as_of": str(page.as_of),
        "since": str(page.view.since),
        "frontier": str(page.view.frontier),
        "stale_ms": stale_ms,
        "rows": msgspec.Raw(b"[" + b",".join(parts) + b"]"),
        "next_cursor": page.next_after(shown),
    }
    return body, shown
