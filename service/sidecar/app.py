"""Builds the FastAPI application of a sidecar: middleware, routes and their shared parts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vernier.service.ask.workers import Workers
from vernier.service.sidecar import control, ingest, problems, rows, scaling, schemas, sql, status
from vernier.service.sidecar.changes import ChangeStreams
from vernier.service.sidecar.context import Context
from vernier.service.sidecar.departed import Departed
from vernier.service.sidecar.follower import Follower
from vernier.service.sidecar.guard import Guard
from vernier.service.sidecar.ingest import Ingest
from vernier.service.sidecar.lookups import PointLookups
from vernier.service.sidecar.metrics import SidecarMetrics, release
from vernier.service.sidecar.openapi import described
from vernier.service.sidecar.options import Options
from vernier.service.sidecar.queries import Queries
from vernier.service.sidecar.replies import reply
from vernier.service.views.answers import Answers
from vernier.service.views.snapshot_reader import Reader

STATIC = Path(__file__).parent / "static"
_ABOUT = """Answers of standing queries, exact at every nanosecond. *since* is inclusive, *until* exclusive; a frontier
`F` means that all times before `F` are final. Times are nanoseconds since 1970: decimal strings in answers; strings,
integers or RFC 3339 with up to nine decimals in requests. A view is a multiset: each distinct row comes once, with
`_diff` when its multiplicity is not 1."""


_PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


class Assets(StaticFiles):
    """The console's files. Browsers revalidate them on each request, so an upgrade shows at once."""

    def file_response(self, *arguments: Any, **about: Any) -> Response:
        response = super().file_response(*arguments, **about)
        response.headers.update(_PAGE_HEADERS)
        return response


class Observed:
    """Counts and times every request by its route. A change stream is observed when it begins."""

    def __init__(self, app: ASGIApp, metrics: SidecarMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other").replace(":path}", "}")
                self.metrics.observe(route, scope["method"], message["status"], time.perf_counter() - started)
            await send(message)

        await self.app(scope, receive, observed)


def build(options: Options) -> FastAPI:
    """Build the application. It follows epochs during its lifespan; `app.state.context` holds its parts."""
    follower = Follower(Reader(options.state, log_bytes=options.log_bytes), options.poll_ms, options.watched)
    answers = Answers(options.cache_bytes)
    queries = Queries(options.query_threads, options.query_ms)
    context = Context(options, follower, answers, ChangeStreams(follower, answers, options), queries)
    workers = Workers(options.sql_workers, options.sql_memory_mb, answers)
    metrics = SidecarMetrics(context)
    taking = None if options.service is None else Ingest(context, options.service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        follower.start(asyncio.get_running_loop())
        yield
        context.streams.close()
        queries.close()
        workers.close()
        if taking is not None:
            taking.close()
        follower.stop()

    app = FastAPI(
        title="Vernier",
        version=release(),
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(problems.check_parameters)],
    )
    app.state.context = context
    app.add_middleware(Observed, metrics=metrics)
    app.add_middleware(PointLookups, context=context, observe=metrics.observe)
    app.add_middleware(
        Guard,
        access=options.access,
        max_body_bytes=options.max_body_bytes,
        open_metrics=options.open_metrics,
        observe=metrics.observe,
    )
    app.add_middleware(Departed)
    problems.install(app)
    app.include_router(rows.router(context))
    app.include_router(sql.router(context, workers))
    app.include_router(status.router(context))
    app.include_router(control.router(context))
    app.include_router(scaling.router(context))
    app.include_router(ingest.router(context, taking))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return reply(await asyncio.to_thread(app.openapi))

    @app.get(
        "/metrics",
        summary="Prometheus metrics; OpenMetrics by Accept",
        tags=["health"],
        responses=schemas.metrics,
        response_class=Response,
    )
    async def exposition(request: Request) -> Response:
        body, content_type = metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    @app.get("/", include_in_schema=False)
    async def console() -> Response:
        return FileResponse(STATIC / "index.html", headers=_PAGE_HEADERS)

    app.mount("/static", Assets(directory=STATIC), name="static")
    app.openapi = lambda: described(app)  # type: ignore[method-assign]
    return app
