"""Routes for operators: the number of workers of the running service, and a request for another one.

The sidecar makes no epochs. It writes the desired number to a file in the state directory, where the driver finds it
(service/status/workers.py). The number in force is that of the newest commit.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from vernier.service.sidecar import schemas
from vernier.service.sidecar.context import Context
from vernier.service.sidecar.control import Wait, acknowledged
from vernier.service.sidecar.replies import reply
from vernier.service.status import workers as status
from vernier.service.status.workers import MOST, Desired, Observed


class WorkersBody(BaseModel):
    """The number of workers. acknowledged: what was requested last is done or refused."""

    workers: int | None = Field(description="Workers that have made the newest epoch", examples=[2])
    wanted: int | None = Field(description="Workers that were requested last", examples=[2])
    acknowledged: bool
    refused: str | None = Field(description="Why the driver has refused the request", examples=[None])
    says: str


_answers = schemas.answer(WorkersBody, "Done") | schemas.problems(422, 503)
_asked: dict[int | str, dict[str, Any]] = {
    **_answers,
    202: {"model": WorkersBody, "description": "Requested; no epoch of as many workers is committed yet"},
}
Workers = Annotated[int, Query(ge=1, le=MOST, description="How many workers the next epochs should have")]


def router(context: Context) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["control"])
    files = context.follower.files

    async def found() -> dict[str, Any]:
        desired = await asyncio.to_thread(status.DESIRED.read, files)
        observed = await asyncio.to_thread(status.OBSERVED.read, files)
        snapshot = context.follower.snapshot
        return describe(desired, observed, None if snapshot is None else snapshot.manifest.workers)

    @routes.get("/v1/control/workers", summary="How many workers there are", responses=_answers)
    async def stands() -> Response:
        return reply(await found())

    @routes.post("/v1/control/workers", summary="Go on with another number of workers", responses=_asked)
    async def rescale(workers: Workers, wait_ms: Wait = 0) -> Response:
        await asyncio.to_thread(status.request, files, workers)
        return await acknowledged(found, wait_ms, context)

    return routes


def describe(desired: Desired | None, observed: Observed | None, workers: int | None) -> dict[str, Any]:
    """The body of an answer. workers: those of the newest commit, None if there is none."""
    followed = desired is None or (observed is not None and observed.desired == desired.id)
    wanted = desired.workers if desired is not None and not followed else workers
    refused = None
    if followed and observed is not None:
        wanted = observed.workers
        refused = observed.refused or None
    stays = "no epoch has been committed yet" if workers is None else counted(workers)
    if desired is not None and not followed:
        waits = observed.waits if observed is not None and observed.waits else "the driver has not read the request yet"
        says = f"{stays}; {counted(desired.workers)} requested, but {waits}"
    elif refused is not None and desired is not None:
        says = f"{stays}; {counted(desired.workers)} refused: {refused}"
    elif wanted != workers:
        says = f"{stays}; the next epoch is the first one of {wanted}"
    else:
        says = stays
    done = followed and (refused is not None or wanted == workers)
    return {"workers": workers, "wanted": wanted, "acknowledged": done, "refused": refused, "says": says}


def counted(workers: int) -> str:
    """A number of workers in words."""
    return "1 worker" if workers == 1 else f"{workers} workers"
