"""Change streams: a view's snapshot and then every change, as server-sent events or lines of JSON, resumable at any
event.

An event covers the data times [lower, upper) completely and its id is `upper`, a frontier: whoever has handled an event
and resumes with its id gets exactly what is missing. So events are cut between data times, never inside one.
Subscribers have no queues: each holds its position in the view's shared log, and an event is encoded once for all of
them. One that reads so slowly that more than `subscriber_bytes` of changes wait for it is told `slow_consumer` and let
go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import numpy as np
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.answers import Answers, SizedCache
from service.reader import Snapshot
from service.sidecar.follower import Follower
from service.sidecar.negotiate import MEDIA_TYPES, Format
from service.sidecar.options import Options
from service.viewstate import Compacted, Interval, ViewState
from storage.errors import VernierError

_encode = msgspec.json.encode


def encode_event(form: Format, kind: str, event_id: int | None, data: dict[str, Any]) -> bytes:
    """One event: as SSE, or as a line of JSON with the members `event` and `id` in front."""
    if form == "ndjson":
        head: dict[str, Any] = {"event": kind}
        if event_id is not None:
            head["id"] = str(event_id)
        return bytes(_encode(head | data)) + b"\n"
    identity = f"id: {event_id}\n" if event_id is not None else ""
    return f"event: {kind}\n{identity}data: ".encode() + _encode(data) + b"\n\n"


def cut(interval: Interval, most: int) -> Iterator[Interval]:
    """The interval in pieces of about `most` changes, each complete for its own data times."""
    time_column = interval.changes.time
    count, start, lower = len(interval.changes), 0, interval.lower
    while count - start > most:
        stop = int(np.searchsorted(time_column, time_column[start + most - 1], side="right"))
        if stop >= count:
            break
        upper = int(time_column[stop])
        yield Interval(lower, upper, interval.changes.take(slice(start, stop)), interval.committed_ns, interval.texts)
        start, lower = stop, upper
    yield Interval(
        lower, interval.upper, interval.changes.take(slice(start, count)), interval.committed_ns, interval.texts
    )


class ChangeStreams:
    """All subscriptions of a sidecar. counts: by view, how many are open."""

    def __init__(self, follower: Follower, answers: Answers, options: Options) -> None:
        self.follower, self.answers, self.options = follower, answers, options
        self.counts: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self._closing = False
        self._encoded = SizedCache(options.log_bytes)

    @property
    def open(self) -> int:
        """How many subscriptions are open."""
        return sum(self.counts.values())

    def close(self) -> None:
        """End all streams; their clients resume elsewhere, or when the sidecar is back."""
        self._closing = True
        self.follower.wake()

    async def events(
        self, snapshot: Snapshot, view: ViewState, form: Format, since: int, until: int | None, with_rows: bool
    ) -> AsyncIterator[bytes]:
        """Encoded events: the rows as of since - 1 if asked for, then all changes from `since` on, up to `until`.

        Each yield returns when the bytes are on their way, so the time in between tells how fast the subscriber reads.
        """
        position, caught_up = since, False
        if with_rows:
            async for event in self._snapshot_events(view, form, since):
                yield event
        seen: Snapshot = snapshot
        while True:
            stop = view.frontier if until is None else min(until, view.frontier)
            if caught_up and self._is_slow(view, position, stop):
                self.dropped[view.name] = self.dropped.get(view.name, 0) + 1
                detail = (
                    "more changes were waiting than are kept for a subscriber; read faster, and resume at the last id"
                )
                yield encode_event(form, "error", None, _error("slow_consumer", detail))
                return
            try:
                # What the log does not have costs a look through the trace.
                old = min(position, stop) < view.log_start
                intervals = (
                    await asyncio.to_thread(view.intervals, position, stop) if old else view.intervals(position, stop)
                )
            except Compacted as error:
                yield encode_event(form, "error", None, _error(error.code, str(error)))
                return
            for interval in intervals:
                for piece in cut(interval, self.options.event_changes):
                    yield self._interval_event(view, form, piece)
            position = max(position, intervals[-1].upper) if intervals else position
            if until is not None and position >= until:
                return
            newest = self.follower.snapshot
            caught_up = caught_up or newest is seen
            if newest is seen and not self._closing:
                await self.follower.woken(self.options.heartbeat_s)
                newest = self.follower.snapshot
            if self._closing or newest is None:
                return
            if newest is seen:
                yield self._heartbeat(form, newest)
                continue
            state = newest.views.get(view.name)
            if state is None or state.stored != view.stored:
                detail = f"the program has changed; view {view.name} is another one now, or gone"
                yield encode_event(form, "error", None, _error("view_changed", detail))
                return
            seen, view = newest, state

    def _is_slow(self, view: ViewState, position: int, stop: int) -> bool:
        """Whether a subscriber that once had everything now has too much before it, not counting the newest epoch."""
        if position >= stop:
            return False
        if position < view.log_start:
            return True
        waiting = view.intervals(position, stop)[:-1]
        return sum(interval.changes.data.nbytes for interval in waiting) > self.options.subscriber_bytes

    async def _snapshot_events(self, view: ViewState, form: Format, since: int) -> AsyncIterator[bytes]:
        rows = await asyncio.to_thread(self.answers.rows_as_of, view, since - 1)
        run, codec = rows.flat(), self.answers.codec(view)
        total, most = len(run), self.options.event_changes
        for start in range(0, max(total, 1), most):
            stop = min(total, start + most)
            last = stop == total
            data = {
                "view": view.name,
                "as_of": str(since - 1),
                "frontier": str(since),
                "rows": codec.dicts(run.rows[start:stop], run.counts[start:stop]),
                "last": last,
            }
            yield encode_event(form, "snapshot", since if last else None, data)

    def _interval_event(self, view: ViewState, form: Format, interval: Interval) -> bytes:
        key = (view.name, view.incarnation, form, interval.lower, interval.upper)
        event: bytes = self._encoded.get(key, lambda: self._encode(view, form, interval), len)
        return event

    def _encode(self, view: ViewState, form: Format, interval: Interval) -> bytes:
        data: dict[str, Any] = {"view": view.name, "lower": str(interval.lower), "upper": str(interval.upper)}
        if interval.committed_ns:
            data["committed"] = str(interval.committed_ns)
        changes = interval.changes
        if not len(changes):
            return encode_event(form, "progress", interval.upper, data)
        rows = self.answers.codec(view).dicts(changes.rows)
        data["changes"] = [
            {"row": row, "time": str(at), "diff": diff}
            for row, at, diff in zip(rows, changes.time.tolist(), changes.diff.tolist(), strict=True)
        ]
        return encode_event(form, "updates", interval.upper, data)

    def _heartbeat(self, form: Format, snapshot: Snapshot) -> bytes:
        """Keeps the connection alive, and says how old the newest epoch is."""
        age = snapshot.age_ns(time.time_ns()) // 1_000_000
        if form == "ndjson":
            return encode_event(form, "heartbeat", None, {"stale_ms": age})
        return f": heartbeat stale_ms={age}\n\n".encode()


def _error(code: str, detail: str) -> dict[str, Any]:
    return {"code": code, "detail": detail}


class EventResponse(Response):
    """An answer that streams events until they end, the client goes, or it reads nothing for `stall_s`."""

    def __init__(self, streams: ChangeStreams, view: str, form: Format, events: AsyncIterator[bytes]) -> None:
        super().__init__(media_type=MEDIA_TYPES[form], headers={"cache-control": "no-store", "vary": "accept"})
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self.streams, self.view, self.form, self.events = streams, view, form, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        counts = self.streams.counts
        counts[self.view] = counts.get(self.view, 0) + 1
        sender = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((sender, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            counts[self.view] -= 1
            for task in (sender, gone):
                task.cancel()
            await asyncio.gather(sender, gone, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for event in self.events:
                message = {"type": "http.response.body", "body": event, "more_body": True}
                await asyncio.wait_for(send(message), self.streams.options.stall_s)
        except TimeoutError:
            self.streams.dropped[self.view] = self.streams.dropped.get(self.view, 0) + 1
            return
        except VernierError as error:
            event = encode_event(self.form, "error", None, _error(error.code, str(error)))
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
