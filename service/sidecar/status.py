"""Routes about the service: views, frontiers, latency, epochs, sources, traces, dead letters, plan, settings."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from vernier.service.codec.instants import format_instant
from vernier.service.config.redaction import masked
from vernier.service.ingest.rejects import Reason
from vernier.service.observability.metrics import LATENCY_BOUNDS, Histogram, quantiles
from vernier.service.observability.recent_latency import recent
from vernier.service.sidecar import schemas, statusschemas
from vernier.service.sidecar.context import Context, frontier_list
from vernier.service.sidecar.guard import GIVEN
from vernier.service.sidecar.problems import Problem, about_damage, problem_response
from vernier.service.sidecar.prompt_files import silent_s
from vernier.service.sidecar.readiness import laggards
from vernier.service.sidecar.replies import reply
from vernier.service.status import change, intake, publisher, trouble
from vernier.service.views.snapshot_reader import EpochNote, Snapshot
from vernier.service.views.view import View
from vernier.storage.errors import Damaged
from vernier.storage.state.manifest import BatchRef, SourceEntry

_QUANTILES = (0.5, 0.9, 0.99, 0.999)


def router(context: Context) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["status"])
    follower = context.follower

    @routes.get("/healthz", summary="The process lives", tags=["health"], responses=statusschemas.healthz)
    async def healthz() -> Response:
        uptime = (time.time_ns() - context.started_ns) / 1e9
        return reply({"status": "ok", "pid": os.getpid(), "uptime_seconds": round(uptime, 3)})

    @routes.get("/readyz", summary="Every view is caught up", tags=["health"], responses=statusschemas.readyz)
    async def readyz(request: Request) -> Response:
        snapshot = follower.snapshot
        files = follower.files
        found, observed = trouble.read(files), intake.observed(files)
        damage, problem = list(follower.reader.damage.values()), follower.reader.problem
        if isinstance(problem, Damaged):
            damage.append(problem)
        reasons = laggards(
            snapshot,
            None if isinstance(problem, Damaged) else follower.failure,
            found,
            context.options,
            time.time_ns(),
            observed,
            damage,
            context.free_bytes(),
            silent_s(files),
        )
        if request.scope.get(GIVEN) == "none":
            # The reasons can contain rows, which a request without a token may not read.
            reasons = [reason | {"why": "send a token to see the reason"} for reason in reasons]
        if snapshot is None or reasons:
            detail = "; ".join(f"{reason['laggard']}: {reason['why']}" for reason in reasons)
            code = "damaged" if damage else "no_epoch" if snapshot is None else "not_ready"
            return problem_response(503, code, detail, {"ready": False, "laggards": reasons}, {"retry-after": "1"})
        return reply({
            "ready": True,
            "epoch": snapshot.manifest.epoch,
            "stale_ms": context.stale_ms(snapshot),
            "views": {name: frontier_list(view.frontier) for name, view in snapshot.views.items()},
        })  # fmt: skip

    @routes.get("/v1/views", summary="All views", responses=schemas.views)
    async def views() -> Response:
        if (announced := context.announced()) is not None:
            listed = [_to_come(name, about) for name, about in announced.items()]
            return reply({"views": listed, "app": (context.plan() or {}).get("app"), "epoch": 0, "stale_ms": None})
        snapshot = follower.require()
        return reply({
            "views": [_about(view) for view in snapshot.views.values()],
            "damaged": {name: about_damage(problem) for name, problem in snapshot.damaged.items()},
            "app": snapshot.manifest.app,
            "epoch": snapshot.manifest.epoch,
            "stale_ms": context.stale_ms(snapshot),
            "change": change.described(follower.files),
        })  # fmt: skip

    @routes.get(
        "/v1/frontiers", summary="Frontiers of sources, partitions and views", responses=statusschemas.frontiers
    )
    async def frontiers() -> Response:
        snapshot = follower.require()
        manifest = snapshot.manifest
        return reply({
            "epoch": manifest.epoch,
            "lower": frontier_list(manifest.lower),
            "upper": frontier_list(manifest.upper),
            "message_time": format_instant(manifest.committed_ns),
            "committed": str(manifest.committed_ns),
            "stale_ms": context.stale_ms(snapshot),
            "views": {name: frontier_list(view.frontier) for name, view in snapshot.views.items()},
            "since": {name: frontier_list(view.since) for name, view in snapshot.views.items()},
            "sources": {name: _source_frontiers(entry) for name, entry in manifest.sources.items()},
        })  # fmt: skip

    @routes.get("/v1/latency", summary="Received to visible, by view", responses=statusschemas.latency)
    async def latency(
        window_seconds: Annotated[int, Query(ge=1, le=86_400, description="How far back the series goes")] = 300,
        points: Annotated[int, Query(ge=1, le=1_000, description="Points of the series")] = 150,
    ) -> Response:
        snapshot = follower.require()
        totals = {labels[0]: h for labels, h in snapshot.stats.histograms.get("view_latency_seconds", {}).items()}
        series = _series(snapshot.history, window_seconds, points)
        seconds, recently = recent(snapshot.marks, snapshot.stats, time.time_ns())
        noticed = [(n.noticed_ns - n.committed_ns) / 1e9 for n in snapshot.history if n.noticed_ns is not None]
        return reply({
            "unit": "seconds",
            "meaning": "per update, from its arrival in the source's topic to the commit that makes it visible",
            "bounds": list(LATENCY_BOUNDS),
            "recent_seconds": round(seconds, 3),
            "views": {
                name: _observed(total) | {"recent": _observed(recently[name]), "series": series.get(name, [])}
                for name, total in totals.items()
            },
            "notice_seconds": {"median": median(noticed) if noticed else None, "epochs": len(noticed)},
        })  # fmt: skip

    @routes.get("/v1/epochs", summary="The newest epochs", responses=statusschemas.epochs)
    async def epochs(
        after: Annotated[int, Query(ge=0, description="Only epochs after this one")] = 0,
        limit: Annotated[int, Query(ge=1, le=1_200)] = 100,
    ) -> Response:
        snapshot = follower.require()
        notes = [note for note in snapshot.history if note.epoch > after][-limit:]
        return reply({
            "epochs": [_epoch(note) for note in notes],
            "stale_ms": context.stale_ms(snapshot),
            "change": change.described(follower.files),
        })  # fmt: skip

    @routes.get("/v1/sources", summary="Sources with partitions, offsets, counts", responses=statusschemas.sources)
    async def sources() -> Response:
        snapshot = follower.require()
        return reply({"sources": _source_details(snapshot), "stale_ms": context.stale_ms(snapshot)})

    @routes.get(
        "/v1/sinks", summary="Output topics: how far each view has been published", responses=statusschemas.sinks
    )
    async def sinks() -> Response:
        snapshot = follower.require()
        found = publisher.read(follower.files)
        if found is None:
            return reply({"sinks": {}, "behind_epochs": None, "problem": None})
        return reply({
            "sinks": {name: _sink(sink) for name, sink in found.sinks.items()},
            "behind_epochs": max(0, snapshot.manifest.epoch - found.epoch),
            "problem": found.problem,
            "told_ms": max(0, time.time_ns() - found.at_ns) // 1_000_000,
        })  # fmt: skip

    @routes.get("/v1/traces", summary="Arrangements with their batches", responses=statusschemas.traces)
    async def traces() -> Response:
        snapshot = follower.require()
        listed = []
        plan = context.plan()
        known = {one["trace"]: one for one in plan["arrangements"]} if plan else {}
        for name, trace in snapshot.manifest.traces.items():
            refs = [ref for shard in trace.shards for ref in shard]
            listed.append({
                "trace": name,
                **{what: known[name].get(what) for what in ("label", "readers", "views") if name in known},
                "key_words": trace.key_width,
                "val_words": trace.val_width,
                "depth": trace.depth,
                "updates": sum(ref.updates for ref in refs),
                "bytes": sum(ref.nbytes for ref in refs),
                "shards": [[_batch(ref) for ref in shard] for shard in trace.shards],
            })  # fmt: skip
        return reply({"traces": listed, "stale_ms": context.stale_ms(snapshot)})

    @routes.get("/v1/dead-letters", summary="The newest refused messages", responses=statusschemas.letters)
    async def dead_letters(
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
        source: Annotated[str | None, Query(description="Only of this source", examples=["edges"])] = None,
        topic: Annotated[str | None, Query(description="Only of this topic", examples=["edges"])] = None,
        reason: Annotated[Reason | None, Query(description="Only refused for this reason")] = None,
        after: Annotated[int, Query(ge=0, description="Only of epochs after this one")] = 0,
    ) -> Response:
        snapshot = follower.require()
        if follower.reader.dead_letters_damaged is not None:
            raise follower.reader.dead_letters_damaged
        wanted = {"source": source, "topic": topic, "reason": reason}
        letters = follower.reader.letters.newest(
            limit,
            lambda letter: (
                letter["epoch"] > after
                and all(value is None or letter.get(name) == value for name, value in wanted.items())
            ),
        )
        totals = _numbers(snapshot, "source_errors_total", ("source", "reason"))
        return reply({"dead_letters": letters, "totals": totals, "stale_ms": context.stale_ms(snapshot)})

    @routes.get("/v1/dataflow", summary="The plan with counters", responses=statusschemas.dataflow)
    async def dataflow() -> Response:
        snapshot = follower.require()
        plan = context.plan()
        if plan is None:
            raise Problem.of(404, "no_plan", f"the service has not written a plan to {context.options.state}")
        operators = {
            "updates": _numbers(snapshot, "operator_updates_total", ("operator", "direction")),
            "seconds": {
                labels[0]: {"total": h.total, "epochs": h.observations}
                for labels, h in snapshot.stats.histograms.get("operator_duration_seconds", {}).items()
            },
            "rounds": _numbers(snapshot, "fixpoint_rounds", ("operator",)),
            "hot_keys": _numbers(snapshot, "operator_hot_key_share", ("operator", "key")),
        }
        return reply({"program": snapshot.manifest.program, "plan": plan, "operators": operators})

    @routes.get("/v1/config", summary="Settings, secrets masked", responses=statusschemas.config)
    async def config() -> Response:
        options = context.options
        own: dict[str, Any] = {
            name: found
            for name in options.__dataclass_fields__
            if isinstance(found := getattr(options, name), (bool, int, float, str))
        }
        own |= {"state": str(options.state), "anonymous": options.access.anonymous}
        answer = {"sidecar": own, "service": options.settings, "origins": dict(options.origins)}
        return reply(masked(answer))

    return routes


def _about(view: View) -> dict[str, Any]:
    return {
        "name": view.name,
        "columns": [{"name": name, "type": spelled} for name, spelled in view.schema.to_json()],
        "key": list(view.key),
        "rows": len(view.rows),
        "since": str(view.since),
        "frontier": str(view.frontier),
    }


def _to_come(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """A view before the first epoch: nothing of it is final."""
    columns = [{"name": column, "type": spelled} for column, spelled in about["schema"]]
    return {"name": name, "columns": columns, "key": about["key"], "rows": 0, "since": None, "frontier": None}


def _sink(sink: publisher.Sink) -> dict[str, Any]:
    about = {"topic": sink.topic, "format": sink.format, "frontier": frontier_list(sink.frontier)}
    return about | {"messages": sink.messages, "problem": sink.problem}


def _source_frontiers(entry: SourceEntry) -> dict[str, Any]:
    return {
        "frontier": frontier_list(entry.frontier),
        "partitions": {
            str(number): None if part.idle else frontier_list(part.frontier)
            for number, part in entry.partitions.items()
        },
    }


def _source_about(entry: SourceEntry) -> dict[str, Any]:
    frontier = entry.frontier
    if entry.idle:
        # An idle source does not hold the others back; show how far it got.
        frontier = min((part.frontier for part in entry.partitions.values() if part.frontier is not None), default=None)
    about: dict[str, Any] = {name: getattr(entry, name) for name in ("topic", "format", "clock", "on_late", "rounding")}
    about["resolution"] = entry.rounding  # its earlier name
    return about | {
        "frontier": _spelled(frontier),
        "state": _state(entry.idle),
        "partitions": {
            str(number): {"frontier": _spelled(part.frontier), "state": _state(part.idle), "lag": part.lag}
            for number, part in entry.partitions.items()
        },
        "held": entry.held,
    }


def _spelled(frontier: int | None) -> str | None:
    return None if frontier is None else str(frontier)


def _state(idle: bool) -> str:
    return "idle" if idle else "active"


def _source_details(snapshot: Snapshot) -> dict[str, Any]:
    counted = {
        "updates": _numbers(snapshot, "source_updates_total", ("source", "sign")),
        "errors": _numbers(snapshot, "source_errors_total", ("source", "reason")),
        "late": _numbers(snapshot, "source_late_updates_total", ("source", "action")),
    }
    details = {name: _source_about(entry) for name, entry in snapshot.manifest.sources.items()}
    for what, rows in counted.items():
        for row in rows:
            name, kind = list(row.values())[:2]
            details.setdefault(name, {}).setdefault(what, {})[kind] = row["value"]
    for topic, offsets in snapshot.manifest.offsets.items():
        for about in details.values():
            if about.get("topic") == topic:
                about["offsets"] = {str(partition): offset for partition, offset in offsets.items()}
    return details


def _numbers(snapshot: Snapshot, metric: str, labels: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = snapshot.stats.numbers.get(metric, {})
    return [dict(zip(labels, values, strict=True)) | {"value": number} for values, number in rows.items()]


def _observed(histogram: Histogram) -> dict[str, Any]:
    return {
        "count": histogram.observations,
        "mean": histogram.total / histogram.observations if histogram.observations else None,
        "quantiles": _quantiles(histogram),
        "histogram": histogram.counts,
    }


def _quantiles(histogram: Histogram) -> dict[str, float | None]:
    return {str(q): histogram.quantile(q) for q in _QUANTILES}


def _series(history: Sequence[EpochNote], window_seconds: int, points: int) -> dict[str, list[dict[str, Any]]]:
    """By view: p50, p99 and count per time step, oldest first; steps without updates are left out."""
    step_ns = max(1, window_seconds * 1_000_000_000 // points)
    begin = history[-1].committed_ns - window_seconds * 1_000_000_000
    notes = [note for note in history if note.committed_ns >= begin]
    series: dict[str, list[dict[str, Any]]] = {}
    for view in notes[-1].latency:
        own = [note for note in notes if view in note.latency]
        steps = np.array([note.committed_ns // step_ns for note in own])
        first = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1))
        totals = np.add.reduceat(np.stack([note.latency[view] for note in own]), first, axis=0)
        seen = totals.sum(axis=1)
        p50, p99 = (quantiles(LATENCY_BOUNDS, totals, q).tolist() for q in (0.5, 0.99))
        series[view] = [
            {"at": str(at * step_ns), "p50": p50[i], "p99": p99[i], "count": count}
            for i, (at, count) in enumerate(zip(steps[first].tolist(), seen.tolist(), strict=True))
            if count
        ]
    return series


def _epoch(note: EpochNote) -> dict[str, Any]:
    return {
        "epoch": note.epoch,
        "lower": str(note.lower),
        "upper": str(note.upper),
        "committed": str(note.committed_ns),
        "changes": dict(note.changes),
    }


def _batch(ref: BatchRef) -> dict[str, Any]:
    return {
        "segment": ref.segment,
        "updates": ref.updates,
        "bytes": ref.nbytes,
        "lower": str(ref.lower),
        "upper": str(ref.upper),
        "since": str(ref.since),
    }
