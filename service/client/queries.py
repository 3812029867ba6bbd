"""How queries are written: paths and parameters of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from vernier.service.client.bodies import Time

PAGE = 10_000
"""Rows a page."""


def view_path(view: str) -> str:
    """The path of a view."""
    return f"/v1/views/{quote(view, safe='')}"


def given(**parameters: object) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in parameters.items() if value is not None}


def query_of(
    where: Sequence[str] | str,
    columns: Sequence[str] | str | None,
    order: Sequence[str] | str | None,
    limit: int,
    as_of: Time | None,
    wait_ms: int,
    cursor: str | None,
) -> dict[str, Any]:
    """The parameters of one page of a view's rows. A cursor already stands for the conditions, order and time."""
    shape = given(columns=_joined(columns) or None, limit=limit, cursor=cursor)
    if cursor is not None:
        return shape
    tests = [where] if isinstance(where, str) else list(where)
    return shape | given(where=tests or None, order=_joined(order), as_of=as_of, wait_ms=wait_ms or None)


def _joined(names: Sequence[str] | str | None) -> str | None:
    """Names as a parameter has them."""
    return names if names is None or isinstance(names, str) else ",".join(names)


def page_size(left: int | None) -> int:
    """The limit of a page, of `left` rows that are still to be read (None: of all)."""
    return PAGE if left is None else max(1, min(left, PAGE))


def key_text(part: object) -> str:
    """A value of a key as the path of a request has it, before quoting."""
    if part is None:
        return "null"
    return str(part).lower() if isinstance(part, bool) else str(part)
