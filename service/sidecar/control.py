"""Routes for operators: pause, resume and drain the intake, and show its state.

The sidecar makes no epochs. It writes the desired state to a file in the state directory, where the driver finds it
(service/status/intake.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from vernier.service.codec.instants import format_instant
from vernier.service.sidecar import schemas
from vernier.service.sidecar.context import Context
from vernier.service.sidecar.replies import reply
from vernier.service.status import intake as control
from vernier.service.status.intake import Desired, Observed, Wanted

_POLL_SECONDS = 0.1


class ControlBody(BaseModel):
    """The state of the intake. acknowledged: the driver has done what was requested last."""

    intake: control.Intake
    wanted: Wanted
    acknowledged: bool
    since: str | None = Field(description="Wall clock, RFC 3339", examples=["2026-01-31T12:00:00.000000000Z"])
    left: int = Field(description="While the intake drains: messages still to be read", examples=[0])
    held: int = Field(description="While the intake drains: updates stashed until their data time", examples=[0])
    says: str


_answers = schemas.answer(ControlBody, "Done") | schemas.problems(422, 503)
_asked: dict[int | str, dict[str, Any]] = {
    **_answers,
    202: {"model": ControlBody, "description": "Requested; the driver has not done it yet"},
}
Wait = Annotated[int, Query(ge=0, description="How long to wait until it is done; the sidecar limits it")]


def router(context: Context) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["control"])
    files = context.follower.files

    async def found(desired: Desired | None) -> dict[str, Any]:
        return describe(desired, await asyncio.to_thread(control.observed, files))

    async def ask(wanted: Wanted, wait_ms: int) -> Response:
        desired = await asyncio.to_thread(control.request, files, wanted)
        return await acknowledged(lambda: found(desired), wait_ms, context)

    @routes.get("/v1/control", summary="Whether the intake is open", responses=_answers)
    async def stands() -> Response:
        return reply(await found(await asyncio.to_thread(control.DESIRED.read, files)))

    @routes.post("/v1/control/pause", summary="Stop making epochs; state and answers stay", responses=_asked)
    async def pause(wait_ms: Wait = 0) -> Response:
        return await ask("paused", wait_ms)

    @routes.post("/v1/control/resume", summary="Make epochs again", responses=_asked)
    async def resume(wait_ms: Wait = 0) -> Response:
        return await ask("running", wait_ms)

    @routes.post("/v1/control/drain", summary="Process what is in the topics now, then pause", responses=_asked)
    async def drain(wait_ms: Wait = 0) -> Response:
        return await ask("drained", wait_ms)

    return routes


async def acknowledged(look: Callable[[], Awaitable[dict[str, Any]]], wait_ms: int, context: Context) -> Response:
    """The answer to a request, as soon as the driver has acknowledged it, or with 202 after `wait_ms`. look: makes the
    body."""
    deadline = time.monotonic() + min(wait_ms, context.options.max_wait_ms) / 1000
    while not (body := await look())["acknowledged"]:
        if time.monotonic() >= deadline:
            return reply(body, 202)
        await asyncio.sleep(_POLL_SECONDS)
    return reply(body)


def done(desired: Desired | None, observed: Observed) -> bool:
    """Whether the driver has reached the desired state."""
    return desired is None or (observed.desired == desired.id and observed.intake == desired.wanted)


def describe(desired: Desired | None, observed: Observed) -> dict[str, Any]:
    """The body of an answer."""
    said = observed.describe()
    if desired is not None and observed.desired != desired.id:
        said = f"{said}; {desired.wanted} is requested, but the driver has not read the request yet"
    return {
        "intake": observed.intake,
        "wanted": "running" if desired is None else desired.wanted,
        "acknowledged": done(desired, observed),
        "since": format_instant(observed.since_ns) if observed.since_ns else None,
        "left": observed.left,
        "held": observed.held,
        "says": said,
    }
