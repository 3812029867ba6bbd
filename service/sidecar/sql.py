"""The route that answers a SELECT over the views, all of them as of one data time (service/ask)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from vernier.operators.errors import meant
from vernier.service.ask.errors import BadSql
from vernier.service.ask.frames import Done, Form, Name, Reads
from vernier.service.ask.names import folded
from vernier.service.ask.workers import Workers
from vernier.service.codec.instants import parse_instant
from vernier.service.sidecar import schemas
from vernier.service.sidecar.context import Context
from vernier.service.sidecar.negotiate import MEDIA_TYPES, choose
from vernier.service.sidecar.problems import Problem
from vernier.service.views.deadline import Deadline
from vernier.service.views.snapshot_reader import Snapshot
from vernier.service.views.view import View
from vernier.storage.updates import MIN_TIME

_FORMS: tuple[Form, ...] = ("json", "ndjson", "csv", "arrow")


class Question(BaseModel):
    """A question in SQL. The time may also stand in the text (`AS OF`) or in the header `vernier-as-of`."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(description="One SELECT", examples=["SELECT count(*) AS n FROM reach"])
    as_of: str | int | None = Field(None, description="Data time of all views; the newest final one by default")
    wait_ms: int = Field(0, ge=0, le=3_600_000, description="How long to wait for the time to become final")


def router(context: Context, workers: Workers) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["rows"])
    options = context.options

    @routes.post("/v1/sql", responses=schemas.sql, summary="A SELECT over the views as of one data time")
    async def sql(
        request: Request,
        body: Question,
        vernier_as_of: Annotated[str | None, Header(description="Data time, as in the body")] = None,
    ) -> Response:
        form = choose(request.headers.get("accept"), _FORMS)
        first = context.require([])
        reads = await workers.read(body.sql, Deadline(options.query_ms))
        names = _views_of(first, reads.names)
        wanted = _one_time(reads, body.as_of, vernier_as_of)
        snapshot, states, at = await context.at(list(names.values()), wanted, body.wait_ms)
        views = list(zip(names, states, strict=True))
        limits = (options.max_rows, options.max_response_bytes)
        # Waiting for the time does not count.
        done = await workers.run(body.sql, at, views, form, *limits, Deadline(options.query_ms))
        return _response(done, form, at, snapshot, states, context.stale_ms(snapshot))

    return routes


def _one_time(reads: Reads, *given: str | int | None) -> str | int | None:
    """The time that the question gives in one or several places. Raises BadInstant, and Problem if they differ."""
    times = [one for one in (reads.as_of, *given) if one is not None]
    if len({parse_instant(one) for one in times}) > 1:
        detail = f"there are several times: {', '.join(map(str, times))}; AS OF, as_of and the header must agree"
        raise Problem.of(422, "invalid_request", detail)
    return times[0] if times else None


def _views_of(snapshot: Snapshot, names: list[Name]) -> dict[str, str]:
    """The view that each name of a question means. SQL ignores case; a view of exactly that name comes first. Raises
    Problem unknown_view, BadSql."""
    known = [*snapshot.views, *snapshot.damaged]
    found: dict[str, str] = {}
    for one in names:
        alike = [] if one.qualified else [view for view in known if view.casefold() == one.name.casefold()]
        if one.name in alike:
            view = one.name
        elif len(alike) == 1:
            view = alike[0]
        else:
            listed = f"; there are {', '.join(known)}" if known else "; there are no views"
            where = f"line {one.line}, column {one.column}: " if one.line else ""
            detail = f"{where}there is no view {one.name!r}{meant(one.name, known) or listed}"
            raise Problem.of(404, "unknown_view", detail, view=one.name, line=one.line, column=one.column)
        other = next((name for name in found if folded(name) == folded(one.name)), None)
        if other is None:
            found[one.name] = view
        elif found[other] != view:
            problem = f"{other} and {one.name} differ only in case, and SQL takes them for one"
            raise BadSql(problem=problem, line=one.line, column=one.column)
    return found


def _response(done: Done, form: Form, at: int, snapshot: Snapshot, states: list[View], stale_ms: int) -> Response:
    since = max((state.since for state in states), default=MIN_TIME)
    headers = {
        "vernier-as-of": str(at),
        "vernier-since": str(since),
        "vernier-frontier": str(snapshot.frontier),
        "vernier-stale-ms": str(stale_ms),
        "cache-control": "no-store",
        "vary": "accept",
    }
    body = done.body
    if form == "json":
        answer: dict[str, Any] = {
            "as_of": str(at),
            "since": str(since),
            "frontier": str(snapshot.frontier),
            "stale_ms": stale_ms,
            "columns": done.columns,
            "rows": msgspec.Raw(body),
        }
        body = msgspec.json.encode(answer)
    return Response(body, 200, headers, MEDIA_TYPES[form])
