"""Routes that answer with rows: a view, one key, many keys, several views at one time, and a view's changes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from vernier.service.codec.instants import parse_instant
from vernier.service.sidecar import schemas
from vernier.service.sidecar.changes import EventResponse
from vernier.service.sidecar.context import Context, find_view
from vernier.service.sidecar.encoding import Budget, json_rows
from vernier.service.sidecar.lookups import ROUTE, key_body, split_key
from vernier.service.sidecar.negotiate import choose, page_body, page_response
from vernier.service.sidecar.problems import Problem
from vernier.service.views.answers import key_parts, key_words
from vernier.service.views.deadline import Deadline
from vernier.service.views.query import BadCursor, Cursor, RowQuery, split_list
from vernier.service.views.view import Compacted

_JSON = "application/json"
_NO_STORE = {"cache-control": "no-store"}

AsOf = Annotated[
    str | None,
    Query(
        description="Data time: nanoseconds or RFC 3339; the newest final one by default",
        examples=["1767225600000000000"],
    ),
]
WaitMs = Annotated[int, Query(ge=0, le=3_600_000, description="How long to wait for `as_of` to become final")]
Limit = Annotated[int | None, Query(ge=1, description="Rows a page")]
Columns = Annotated[str | None, Query(description="Columns of the answer, comma-separated", examples=["node"])]


class Keys(BaseModel):
    """Many keys of a view; each is a value, a list of values, or an object by key column."""

    keys: list[Any] = Field(examples=[[1, 2, 3]])
    as_of: str | int | None = Field(None, description="Data time; the newest final one by default")
    wait_ms: int = Field(0, ge=0, le=3_600_000)


def router(context: Context) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["rows"])
    options, answers = context.options, context.answers

    def limit_of(limit: int | None) -> int:
        return min(limit or options.default_rows, options.max_rows)

    @routes.get(ROUTE.replace("{key}", "{key:path}"), responses=schemas.rows_of_key, summary="The rows of one key")
    async def one_key(request: Request, view: str, key: str, as_of: AsOf = None, wait_ms: WaitMs = 0) -> Response:
        snapshot, (state,), at = await context.at([view], as_of, wait_ms)
        raw = request.scope["raw_path"].split(b"/rows/", 1)[1].decode("latin-1")
        words, stale_ms = key_words(state, split_key(raw)), context.stale_ms(snapshot)
        found = await context.run(state, at, 1, lambda deadline: answers.key(state, at, words))
        body = await context.run(
            state, at, len(found[0]), lambda deadline: key_body(context, state, at, found, stale_ms, deadline)
        )
        return Response(body, headers=_NO_STORE, media_type=_JSON)

    @routes.get("/v1/views/{view}/rows", responses=schemas.rows, summary="Rows of a view, too", include_in_schema=False)
    @routes.get("/v1/views/{view}", responses=schemas.rows, summary="Rows of a view")
    async def rows_of_view(
        request: Request,
        view: str,
        where: Annotated[
            list[str] | None, Query(description="column:operator:value, repeatable", examples=[["node:lt:100"]])
        ] = None,
        columns: Columns = None,
        order: Annotated[
            str | None, Query(description="Columns, `-` in front for descending", examples=["-node"])
        ] = None,
        limit: Limit = None,
        cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
        as_of: AsOf = None,
        wait_ms: WaitMs = 0,
    ) -> Response:
        form = choose(request.headers.get("accept"), ("json", "ndjson", "csv", "arrow"))
        query, offset = RowQuery(tuple(where or ()), split_list(order)), 0
        if cursor is not None:
            begun = Cursor.decode(cursor)
            query, offset = _go_on(begun, view, query), begun.offset
            as_of = str(begun.as_of)
        snapshot, (state,), at = await context.at([view], as_of, wait_ms)
        most, chosen, stale_ms = limit_of(limit), split_list(columns), context.stale_ms(snapshot)

        def answer(deadline: Deadline) -> Response:
            page = answers.page(state, at, query, offset, most, chosen, deadline)
            return page_response(page, form, stale_ms, context.budget(deadline))

        return await context.run(state, at, min(most, len(state.rows)), answer)

    @routes.post("/v1/views/{view}/rows", responses=schemas.rows_of_keys, summary="The rows of many keys")
    async def many_keys(view: str, body: Keys) -> Response:
        if len(body.keys) > options.max_keys:
            raise Problem.of(413, "too_many_keys", f"{len(body.keys)} keys; at most {options.max_keys} in one request")
        snapshot, (state,), at = await context.at([view], body.as_of, body.wait_ms)
        stale_ms = context.stale_ms(snapshot)

        def answer(deadline: Deadline) -> bytes:
            keys = [key_words(state, key_parts(state, key)) for key in body.keys]
            rows, counts, missing = answers.keys(state, at, keys, deadline)
            answer = {
                "view": state.name,
                "as_of": str(at),
                "since": str(state.since),
                "frontier": str(state.frontier),
                "stale_ms": stale_ms,
                "rows": json_rows(answers.codec(state), rows, counts, context.budget(deadline)),
                "missing": [body.keys[i] for i in missing],
            }
            return msgspec.json.encode(answer)

        made = await context.run(state, at, len(body.keys), answer)
        return Response(made, headers=_NO_STORE, media_type=_JSON)

    @routes.get("/v1/read", responses=schemas.read, summary="Several views at one time")
    async def read(
        views: Annotated[str, Query(description="Names, comma-separated", examples=["reach,by_out_degree"])],
        as_of: AsOf = None,
        wait_ms: WaitMs = 0,
        limit: Limit = None,
    ) -> Response:
        names = list(dict.fromkeys(split_list(views)))
        if not names:
            raise Problem.of(422, "invalid_request", "views= names no view; give one or more, separated by commas")
        snapshot, states, at = await context.at(names, as_of, wait_ms)
        stale_ms, most = context.stale_ms(snapshot), limit_of(limit)

        def answer(deadline: Deadline) -> bytes:
            bodies = {}
            left = options.max_response_bytes
            for state in states:
                page = answers.page(state, at, RowQuery(), 0, most, (), deadline)
                bodies[state.name], _ = page_body(page, stale_ms, Budget(left, deadline, least=0))
                left -= len(bodies[state.name]["rows"])  # type: ignore[arg-type]
            answer = {"as_of": str(at), "frontier": str(snapshot.frontier), "stale_ms": stale_ms, "views": bodies}
            return msgspec.json.encode(answer)

        largest = max(states, key=lambda state: len(state.rows))
        rows = sum(min(most, len(state.rows)) for state in states)
        made = await context.run(largest, at, rows, answer)
        return Response(made, headers=_NO_STORE, media_type=_JSON)

    @routes.get(
        "/v1/views/{view}/changes",
        responses=schemas.changes,
        summary="Every change of a view, as it becomes final",
        response_class=Response,
    )
    async def changes(
        request: Request,
        view: str,
        since: Annotated[
            str | None, Query(description="Frontier to begin at: all changes at times not before it")
        ] = None,
        until: Annotated[str | None, Query(description="End once all changes before this time have been sent")] = None,
        snapshot: Annotated[bool | None, Query(description="Send the rows first; true unless since is given")] = None,
        last_event_id: Annotated[str | None, Header(description="Resume after this event")] = None,
    ) -> Any:
        form = choose(request.headers.get("accept"), ("sse", "ndjson"))
        newest = context.follower.require()
        state = find_view(newest, view)
        begin = last_event_id or since
        start = state.frontier if begin is None else parse_instant(begin)
        end = None if until is None else parse_instant(until)
        if last_event_id and end is not None and start >= end:
            return Response(status_code=204)
        with_rows = (snapshot is True or (snapshot is None and since is None)) and not last_event_id
        if with_rows:
            state.check(start - 1)
        elif start < state.frontier and not state.can_resume(start):
            raise Compacted(view=view, as_of=start, since=state.since)
        if context.streams.open >= options.max_subscribers:
            raise Problem.of(503, "too_many_subscribers", f"{context.streams.open} change streams are open already")
        return EventResponse(
            context.streams, view, form, context.streams.events(newest, state, form, start, end, with_rows)
        )

    return routes


def _go_on(begun: Cursor, view: str, query: RowQuery) -> RowQuery:
    if begun.view != view:
        raise BadCursor(problem=f"belongs to view {begun.view}")
    for given, kept in ((query.where, begun.where), (query.order, begun.order)):
        if given and given != kept:
            raise BadCursor(problem="belongs to a request with a different where or order")
    return RowQuery(begun.where, begun.order)
