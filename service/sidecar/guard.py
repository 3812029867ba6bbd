"""Checks every request before routing: it requires tokens, and limits the size of bodies.

The health routes and the console's own files are open to everyone, because they reveal nothing about the data. Reading
needs the scope `read`. /v1/config and every request that may change something need `admin`; this includes routes that
are not listed here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vernier.service.config.loopback import is_loopback
from vernier.service.sidecar import auth as access
from vernier.service.sidecar.auth import Access, includes
from vernier.service.sidecar.problems import problem_response

GIVEN = "vernier.scope"
"""The key in a request's ASGI scope for the access scope of its sender."""
_OPEN = frozenset({"/", "/healthz", "/readyz"})
_ADMIN = frozenset({"/v1/config"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_BODY_SECONDS = 30.0


def needed(method: str, path: str, *, open_metrics: bool) -> access.Scope:
    """The scope that a request needs. path: as routed, or a route's template."""
    if path in _OPEN or path.startswith("/static/") or (open_metrics and path == "/metrics"):
        return "none"
    reads = path == "/v1/sql" or (path.startswith("/v1/views/") and path.endswith("/rows"))
    if path in _ADMIN or not (method in _SAFE or (method == "POST" and reads)):
        return "admin"
    return "read"


class Guard:
    """Refuses requests that are not allowed, and reports each refusal to `observe(route, method, status, seconds)`."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        max_body_bytes: int,
        open_metrics: bool,
        observe: Callable[[str, str, int, float], None],
    ) -> None:
        self.app, self.access, self.observe = app, access, observe
        self.max_body_bytes, self.open_metrics = max_body_bytes, open_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        refusal = self._refusal(scope)
        if refusal is None and scope["method"] not in _SAFE:
            body = await self._body(scope, receive)
            if body is None:
                return  # the client disconnected while it sent its body, so there is no client to answer
            if isinstance(body, Response):
                refusal = body
            else:
                receive = _replayed(body, receive)
        if refusal is None:
            await self.app(scope, receive, send)
            return
        await refusal(scope, receive, send)
        self.observe("refused", scope["method"], refusal.status_code, time.perf_counter() - started)

    # --- authentication -----------------------------------------------------------------------------------------------

    def _refusal(self, scope: Scope) -> Response | None:
        method, path = scope["method"], scope["path"]
        wanted = needed(method, path, open_metrics=self.open_metrics)
        token = _bearer(Headers(scope=scope).get("authorization"))
        given = self.access.scope(token)
        scope[GIVEN] = given or "none"
        if wanted == "none":
            return None
        if given is None:
            detail = "this token is unknown; ask the operator of the service for one"
            return _unauthenticated("token_unknown", detail, 'error="invalid_token"')
        if not includes(given, wanted):
            if token is None:
                detail = f"{method} {path} needs a token of scope {wanted}, as `Authorization: Bearer TOKEN`"
                return _unauthenticated("token_missing", detail)
            detail = f"{method} {path} needs the scope {wanted}, but this token has the scope {given}"
            challenge = f'Bearer realm="vernier", error="insufficient_scope", scope="{wanted}"'
            return problem_response(403, "scope_missing", detail, {"scope": wanted}, {"www-authenticate": challenge})
        return self._foreign(scope) if token is None else None

    def _foreign(self, scope: Scope) -> Response | None:
        """Refuse requests that a browser on this machine sends for pages of other sites (foreign Host or Origin
        header).
        """
        headers = Headers(scope=scope)
        host, origin = headers.get("host"), headers.get("origin")
        if self.access.local and host is not None and not is_loopback(_name(host)):
            detail = (
                f"this sidecar serves only its own machine, and {host} is not a name of that machine; set "
                f"tokens to allow other clients"
            )
            return problem_response(403, "foreign_host", detail)
        if origin is not None and scope["method"] not in _SAFE and urlsplit(origin).netloc != host:
            return problem_response(403, "foreign_origin", f"pages from {origin} may not send requests here")
        return None

    # --- size of the body ---------------------------------------------------------------------------------------------

    async def _body(self, scope: Scope, receive: Receive) -> list[Message] | Response | None:
        """The whole body as received, or a refusal; None if the client disconnected before the end."""
        declared = Headers(scope=scope).get("content-length")
        if declared is not None and declared.isdecimal() and int(declared) > self.max_body_bytes:
            return self._too_large(int(declared))
        messages: list[Message] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while True:
                    message = await receive()
                    messages.append(message)
                    size += len(message.get("body", b""))
                    if size > self.max_body_bytes:
                        return self._too_large(size)
                    if message["type"] != "http.request":
                        return None
                    if not message.get("more_body", False):
                        return messages
        except TimeoutError:
            detail = f"the body did not arrive within {_BODY_SECONDS:g} s"
            return problem_response(408, "body_too_slow", detail, headers={"connection": "close"})

    def _too_large(self, size: int) -> Response:
        detail = (
            f"the body has {size} bytes or more; http.max_body_bytes allows {self.max_body_bytes}: send it in parts"
        )
        return problem_response(413, "body_too_large", detail, headers={"connection": "close"})


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    waiting = iter(messages)

    async def replay() -> Message:
        for message in waiting:
            return message
        return await receive()

    return replay


def _unauthenticated(code: str, detail: str, error: str = "") -> Response:
    challenge = 'Bearer realm="vernier"' + (f", {error}" if error else "")
    return problem_response(401, code, detail, headers={"www-authenticate": challenge})


def _bearer(given: str | None) -> str | None:
    """The token of an Authorization header."""
    if given is None:
        return None
    kind, _, token = given.partition(" ")
    # Credentials of another kind are unknown credentials; they must not be treated as missing ones.
    return token.strip() if kind.lower() == "bearer" else given


def _name(host: str) -> str:
    """A Host header without its port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
