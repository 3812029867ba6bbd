"""Routes that accept updates, and the read tokens that tell when these are visible."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from vernier.operators.errors import meant
from vernier.operators.language.types.duration import nanoseconds
from vernier.operators.language.types.schema import RowType
from vernier.service.config.settings import Settings
from vernier.service.ingest.watermarks import round_up_one
from vernier.service.sidecar import statusschemas
from vernier.service.sidecar.context import Context, find_view, frontier_list
from vernier.service.sidecar.problems import Problem, UnknownSource
from vernier.service.sidecar.replies import reply
from vernier.service.sidecar.writes.delivery import Delivery
from vernier.service.sidecar.writes.parse import READERS, BadBody, Submission, Target, read_body
from vernier.service.sidecar.writes.read_tokens import ReadToken, as_json
from vernier.service.views.query import split_list

_BOUNDS = 4_096
"""Number of receipts whose time bounds are remembered between requests."""


class Ingest:
    """Accepts updates for the sources of a service, at most `max_ingests` requests at once."""

    def __init__(self, context: Context, settings: Settings) -> None:
        self._context, self._settings = context, settings
        options = context.options
        self._free = options.max_ingests
        self._delivery = Delivery(settings.kafka_client(), options.ingest_ms)
        self._pool = ThreadPoolExecutor(max(1, self._free), thread_name_prefix="ingest")

    async def take(self, source: str, kind: str, body: bytes, after: ReadToken | None) -> tuple[ReadToken, int]:
        """Send the updates in a body; returns their receipt and their number.

        Raises Problem, BadBody, BadSubmission, KafkaAway.
        """
        if kind not in READERS:
            known = ", ".join(kind for kind in READERS if kind not in ("application/ndjson", "application/jsonl"))
            raise Problem.of(415, "unknown_content_type", f"updates are sent as {known}, not as {kind or 'nothing'}")
        if not body or body.isspace():
            # A producer that sends an empty body has a defect; `[]` says that there are no updates.
            raise BadBody(what="list of updates", problem="it is empty")
        # The plan may be in an object store, so it is read in a thread.
        target = await asyncio.to_thread(self._target, source)
        if self._free < 1:
            detail = "too many requests with updates are waiting for Kafka (http.max_ingests); try again"
            raise Problem.of(429, "too_many_ingests", detail, headers={"retry-after": "1"})
        self._free -= 1
        try:
            receipt, count = await asyncio.get_running_loop().run_in_executor(
                self._pool, lambda: self._send(read_body(kind, body, target))
            )
        finally:
            self._free += 1
        return receipt if after is None else receipt.after(after), count

    def close(self) -> None:
        """Accept no more updates."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._delivery.close()

    def _send(self, given: Submission) -> tuple[ReadToken, int]:
        target, offsets = given.target, {}
        if len(given) or given.resolved:
            now_ns = time.time_ns()
            offsets = self._delivery.deliver(target.topic, lambda count: given.messages(count, now_ns))
        return ReadToken(target.name, target.topic, offsets, given.latest, target.rounding), len(given)

    def _target(self, source: str) -> Target:
        """The source as the newest epoch describes it; before the first epoch, as the settings do."""
        plan = self._context.plan()
        if plan is None:
            raise Problem.of(503, "no_plan", "the service has not published its sources yet; try again when it runs")
        sources = plan["sources"]
        if source not in sources:
            known = f"; there are {', '.join(sources)}" if sources else "; there are no sources"
            raise UnknownSource(source=source, hint=meant(source, sources) or known)
        snapshot = self._context.follower.snapshot
        entry = None if snapshot is None else snapshot.manifest.sources.get(source)
        options = plan.get("column_options", {}).get(source)
        former = [RowType.from_json(one) for one in (() if entry is None else entry.earlier)]
        said = self._settings.source(source)
        form, clock = (said.format, said.clock) if entry is None else (entry.format, entry.clock)
        if form not in ("vernier", "json"):
            detail = f"source {source} has the format {form}; over HTTP only sources of vernier and json accept updates"
            raise Problem.of(409, "not_writable", detail)
        late = clock == "event" and entry is not None and entry.on_late == "reject"
        return Target(
            source,
            RowType.from_json(sources[source], options).after(former),
            self._settings.topic(source) if entry is None else entry.topic,
            cast(Literal["vernier", "json"], form),
            clock,
            said.rounding if entry is None else entry.rounding,
            snapshot.frontier if late and snapshot is not None else None,
            self._settings.max_message_bytes,
            self._settings.max_decoded_bytes,
            self._settings.diff_range,
            None if clock == "arrival" or said.max_ahead is None else time.time_ns() + nanoseconds(said.max_ahead),
        )


class Visibility:
    """Tells whether the updates that a receipt names are visible."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bounds: OrderedDict[str, int] = OrderedDict()

    async def look(self, receipt: ReadToken, names: list[str], wait_ms: int) -> dict[str, Any]:
        """The visibility by view, after waiting for all views. Raises NoEpoch, UnknownView."""
        follower = self._context.follower
        deadline = time.monotonic() + min(wait_ms, self._context.options.max_wait_ms) / 1000
        await follower.after(None, deadline - time.monotonic())
        snapshot = follower.require()
        while True:
            views = [find_view(snapshot, name) for name in names or snapshot.views]
            read, bound = receipt.is_read(snapshot.manifest), None
            if read:
                bound = self._bound(receipt, receipt.bound(snapshot.manifest))
            seen = {view.name: read and receipt.has_passed(bound, view.frontier) for view in views}
            left = deadline - time.monotonic()
            if all(seen.values()) or left <= 0:
                break
            snapshot = await follower.after(snapshot, left) or snapshot
        at = None if bound is None else str(round_up_one(bound, receipt.rounding))
        return {
            "visible": all(seen.values()),
            "source": receipt.source,
            "read": read,
            "as_of": at if all(seen.values()) else None,
            "views": {
                view.name: {"visible": seen[view.name], "frontier": frontier_list(view.frontier)} for view in views
            },
            "stale_ms": self._context.stale_ms(snapshot),
        }

    def _bound(self, receipt: ReadToken, found: int | None) -> int | None:
        """The least bound found so far; a busy source yields ever greater bounds."""
        if receipt.latest is not None or found is None:
            return found
        key = receipt.encode()
        self._bounds[key] = min(found, self._bounds.get(key, found))
        self._bounds.move_to_end(key)
        while len(self._bounds) > _BOUNDS:
            self._bounds.popitem(last=False)
        return self._bounds[key]


def router(context: Context, ingest: Ingest | None) -> APIRouter:
    """The routes; without `ingest`, updates are refused."""
    routes = APIRouter(tags=["updates"])
    visibility = Visibility(context)

    @routes.post(
        "/v1/sources/{source}",
        status_code=202,
        summary="Send updates into a source's topic",
        responses=statusschemas.ingest,
        openapi_extra=statusschemas.updates,
    )
    async def send(
        request: Request,
        source: Annotated[str, Path(examples=["edges"])],
        after: Annotated[str | None, Query(description="A token of earlier updates; the answer's covers both")] = None,
    ) -> Response:
        if ingest is None or context.options.max_ingests < 1:
            raise Problem.of(409, "ingest_off", "this sidecar accepts no updates (http.max_ingests)")
        earlier = None if after is None else ReadToken.decode(after)
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            detail = f"the body has the content-encoding {coding}; send it without content-encoding"
            raise Problem.of(415, "unknown_content_encoding", detail)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        receipt, count = await ingest.take(source, kind, await request.body(), earlier)
        token = receipt.encode()
        answer = {
            "token": token,
            "source": source,
            "topic": receipt.topic,
            "updates": count,
            "offsets": as_json(receipt.offsets),
        }
        return reply(answer, 202, {"location": f"/v1/tokens/{token}"})

    @routes.get(
        "/v1/tokens/{token}", summary="Whether updates that were sent are visible", responses=statusschemas.token
    )
    async def visible(
        token: Annotated[str, Path(description="What the POST answered")],
        views: Annotated[str | None, Query(description="Names, comma-separated; all by default")] = None,
        wait_ms: Annotated[int, Query(ge=0, le=3_600_000, description="How long to wait until they are")] = 0,
    ) -> Response:
        names = list(dict.fromkeys(split_list(views)))
        return reply(await visibility.look(ReadToken.decode(token), names, wait_ms))

    return routes
