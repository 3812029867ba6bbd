"""Plain JSON answers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response


def reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer that must not be cached."""
    return Response(
        msgspec.json.encode(body), status, {"cache-control": "no-store", **(headers or {})}, "application/json"
    )
