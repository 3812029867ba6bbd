"""Point look-ups: the rows of one key, answered before the request reaches the web framework.

A look-up itself costs microseconds, so routing, dependencies and response classes would be most of its cost. This ASGI
batch answers `GET /v1/views/{view}/rows/{key}` at the newest time in the ordinary case. It passes on everything else:
other routes, query parameters, and requests that will end in an error. Both ways produce the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from vernier.service.sidecar.context import SMALL_ROWS, Context
from vernier.service.sidecar.encoding import json_rows
from vernier.service.views.answers import key_words
from vernier.service.views.deadline import NEVER, Deadline
from vernier.service.views.view import View
from vernier.storage.errors import CallerError
from vernier.storage.updates import Ints

ROUTE = "/v1/views/{view}/rows/{key}"
_PREFIX = b"/v1/views/"
_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


def split_key(raw: str) -> list[str]:
    """The parts of a key in a path. Splits before unquoting, so that a comma inside a value can be written %2C."""
    return [unquote_to_bytes(part).decode("utf-8", "replace") for part in raw.split(",")]


def key_body(
    context: Context, view: View, as_of: int, found: tuple[Ints, Ints], stale_ms: int, deadline: Deadline
) -> bytes:
    """The JSON answer for one key whose rows and counts were found. Raises TooSlow, TooLarge."""
    rows, counts = found
    answer = {
        "view": view.name,
        "as_of": str(as_of),
        "since": str(view.since),
        "frontier": str(view.frontier),
        "stale_ms": stale_ms,
        "rows": json_rows(context.answers.codec(view), rows, counts, context.budget(deadline)),
    }
    return msgspec.json.encode(answer)


class PointLookups:
    """Answers plain look-ups, and reports each to `observe(route, method, status, seconds)`."""

    def __init__(self, app: ASGIApp, context: Context, observe: Callable[[str, str, int, float], None]) -> None:
        self.app, self.context, self.observe = app, context, observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and not scope["query_string"]:
            started = time.perf_counter()
            body = self._answer(scope["raw_path"])
            if body is not None:
                length = (b"content-length", str(len(body)).encode())
                await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, length]})
                await send({"type": "http.response.body", "body": body})
                self.observe(ROUTE, "GET", 200, time.perf_counter() - started)
                return
        await self.app(scope, receive, send)

    def _answer(self, path: bytes) -> bytes | None:
        if not path.startswith(_PREFIX):
            return None
        name, found, key = path[len(_PREFIX) :].partition(b"/rows/")
        snapshot = self.context.follower.snapshot
        if not found or snapshot is None:
            return None
        view = snapshot.views.get(unquote_to_bytes(name).decode("utf-8", "replace"))
        if view is None:
            return None
        try:
            words = key_words(view, split_key(key.decode("latin-1")))
            rows = self.context.answers.key(view, view.frontier - 1, words)
            if len(rows[0]) > SMALL_ROWS:
                return None
            stale_ms = self.context.stale_ms(snapshot)
            return key_body(self.context, view, view.frontier - 1, rows, stale_ms, NEVER)
        except CallerError:
            return None
