"""Change streams: a view's snapshot and then every change, as server-sent events or lines of JSON.

An event covers the data times [lower, upper) completely, and its id is `upper`, a frontier. A client that has handled
an event and resumes with its id receives exactly what is missing. Events are therefore cut between data times, never
inside one. Subscribers have no queues: each holds its position, and an event is encoded once for all of them (feed.py).
A subscriber that reads so slowly that more than `subscriber_bytes` of events wait for it gets the error `slow_consumer`
and is disconnected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import numpy as np
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vernier.operators.language.types.schema import RowType
from vernier.service.sidecar.feed import Feed
from vernier.service.sidecar.follower import Follower
from vernier.service.sidecar.negotiate import MEDIA_TYPES, Format
from vernier.service.sidecar.options import Options
from vernier.service.views.answers import Answers, SizedCache
from vernier.service.views.snapshot_reader import Snapshot
from vernier.service.views.view import Compacted, Interval, View
from vernier.storage.errors import VernierError
from vernier.storage.updates import CLOSED

_INLINE_CHANGES = 50
_INLINE_SORT = 1000
_encode = msgspec.json.encode


def encode_event(form: Format, kind: str, event_id: int | None, data: dict[str, Any]) -> bytes:
    """Encode one event: as SSE, or as a line of JSON that begins with the members `event` and `id`."""
    if form == "ndjson":
        head: dict[str, Any] = {"event": kind}
        if event_id is not None:
            head["id"] = str(event_id)
        return bytes(_encode(head | data)) + b"\n"
    identity = f"id: {event_id}\n" if event_id is not None else ""
    return f"event: {kind}\n{identity}data: ".encode() + _encode(data) + b"\n\n"


def cut(interval: Interval, most: int) -> Iterator[Interval]:
    """Cut the interval into pieces of about `most` changes, each complete for its own data times."""
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
    """All subscriptions of a sidecar. counts: the open ones, by view; dropped: the number that were too
    slow, by view.
    """

    def __init__(self, follower: Follower, answers: Answers, options: Options) -> None:
        self.follower, self.answers, self.options = follower, answers, options
        self.counts: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self._closing = False
        self._encoded = SizedCache(options.log_bytes)
        self._feeds: dict[tuple[str, Format, RowType], tuple[Feed, asyncio.Task[None]]] = {}

    @property
    def open(self) -> int:
        """The number of open subscriptions."""
        return sum(self.counts.values())

    def close(self) -> None:
        """End all streams. Their clients resume elsewhere, or when the sidecar is back."""
        self._closing = True
        self.follower.wake()

    async def events(
        self, snapshot: Snapshot, view: View, form: Format, since: int, until: int | None, with_rows: bool
    ) -> AsyncGenerator[bytes]:
        """Encoded events: optionally the rows as of since - 1, then all changes from `since` on, up to `until`.

        Existing changes come from the view's log or its trace, later ones from the feed that all subscribers share.
        """
        position, last = since, CLOSED + 1 if until is None else until
        if with_rows:
            async for event in self._snapshot_events(view, form, since):
                yield event
        try:
            while position < min(view.frontier, last):
                async for upper, event in self._past(view, form, position, min(view.frontier, last)):
                    yield event
                    position = upper
                newest = self.follower.snapshot
                state = newest.views.get(view.name) if newest is not None else None
                # If the view has changed its type, the feed reports that.
                view = state if state is not None and state.stored == view.stored else view
            if position < last:
                async with self._feed(view, form) as feed:
                    async for event in self._coming(feed, form, position, last):
                        yield event
        except Compacted as error:
            yield encode_event(form, "error", None, _error(error.code, str(error)))

    async def _coming(self, feed: Feed, form: Format, position: int, last: int) -> AsyncIterator[bytes]:
        """Yield what becomes final from the position on, up to `last`."""
        beats = feed.beats
        while position < last and not self._closing:
            chunk = feed.after(position)
            if chunk is not None and chunk.upper <= last:
                yield chunk.events
                position = chunk.upper
            elif position < feed.start:
                self.drop(feed.view.name)
                detail = (
                    "more changes were waiting than are queued for a subscriber; read faster, and resume "
                    "from the last id"
                )
                yield encode_event(form, "error", None, _error("slow_consumer", detail))
                return
            elif position < feed.frontier:
                async for upper, event in self._past(feed.view, form, position, min(feed.frontier, last)):
                    yield event
                    position = upper
            elif feed.ended is not None:
                yield encode_event(form, "error", None, _error(*feed.ended))
                return
            elif feed.beats != beats:
                beats = feed.beats
                yield feed.beat
            else:
                await feed.news()

    def drop(self, view: str) -> None:
        """Count a subscriber that was disconnected as too slow."""
        self.dropped[view] = self.dropped.get(view, 0) + 1

    @asynccontextmanager
    async def _feed(self, view: View, form: Format) -> AsyncIterator[Feed]:
        """The feed of a view, which runs while it has readers."""
        key = (view.name, form, view.stored)
        if key not in self._feeds or self._feeds[key][0].ended is not None:
            options = self.options
            feed = Feed(
                view,
                self.follower,
                lambda state, lower, upper: self._past(state, form, lower, upper),
                lambda: self._heartbeat(form),
                heartbeat_s=options.heartbeat_s,
                kept_bytes=options.subscriber_bytes,
            )
            self._feeds[key] = feed, asyncio.create_task(feed.run())
        feed, task = self._feeds[key]
        feed.readers += 1
        try:
            yield feed
        finally:
            feed.readers -= 1
            if not feed.readers:
                task.cancel()
                if self._feeds.get(key) == (feed, task):
                    del self._feeds[key]

    async def _past(self, view: View, form: Format, lower: int, upper: int) -> AsyncIterator[tuple[int, bytes]]:
        """The events of a final interval, each with the frontier after it. Raises Compacted.

        Other requests run in between: work that takes longer than a moment is done in a thread.
        """
        # Changes that the log no longer has cost a search of the trace, and the first reader of the others sorts them.
        long = lower < view.log_start or view.to_order(lower) > _INLINE_SORT
        for interval in await asyncio.to_thread(view.intervals, lower, upper) if long else view.intervals(lower, upper):
            for piece in cut(interval, self.options.event_changes):
                if len(piece.changes) > _INLINE_CHANGES:
                    event = await asyncio.to_thread(self._interval_event, view, form, piece)
                else:
                    event = self._interval_event(view, form, piece)
                    await asyncio.sleep(0)
                yield piece.upper, event

    async def _snapshot_events(self, view: View, form: Format, since: int) -> AsyncIterator[bytes]:
        rows = await asyncio.to_thread(self.answers.rows_as_of, view, since - 1)
        run = await asyncio.to_thread(rows.flat)
        total, most = len(run), self.options.event_changes

        def part(start: int) -> bytes:
            stop = min(total, start + most)
            last = stop == total
            data = {
                "view": view.name,
                "as_of": str(since - 1),
                "frontier": str(since),
                "rows": self.answers.codec(view).dicts(run.rows[start:stop], run.counts[start:stop]),
                "last": last,
            }
            return encode_event(form, "snapshot", since if last else None, data)

        def shared(start: int) -> bytes:
            # Many subscribers start at the same time, after a restart or when many people open the same page.
            key = (view.name, view.incarnation, form, since, "rows", start)
            event: bytes = self._encoded.get(key, lambda: part(start), len)
            return event

        for start in range(0, max(total, 1), most):
            yield await asyncio.to_thread(shared, start)

    def _interval_event(self, view: View, form: Format, interval: Interval) -> bytes:
        key = (view.name, view.incarnation, form, interval.lower, interval.upper)
        event: bytes = self._encoded.get(key, lambda: self._encode(view, form, interval), len)
        return event

    def _encode(self, view: View, form: Format, interval: Interval) -> bytes:
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

    def _heartbeat(self, form: Format) -> bytes:
        """Keeps the connection alive, and tells the age of the newest epoch."""
        age = self.follower.require().age_ns(time.time_ns()) // 1_000_000
        if form == "ndjson":
            return encode_event(form, "heartbeat", None, {"stale_ms": age})
        return f": heartbeat stale_ms={age}\n\n".encode()


def _error(code: str, detail: str) -> dict[str, Any]:
    return {"code": code, "detail": detail}


class EventResponse(Response):
    """Streams events until they end, the client disconnects, or the client reads nothing for `stall_s` seconds."""

    def __init__(self, streams: ChangeStreams, view: str, form: Format, events: AsyncGenerator[bytes]) -> None:
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
        stall_s = self.streams.options.stall_s
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async with aclosing(self.events):
                async for event in self.events:
                    async with asyncio.timeout(stall_s):
                        await send({"type": "http.response.body", "body": event, "more_body": True})
        except TimeoutError:
            self.streams.drop(self.view)
            return
        except VernierError as error:
            event = encode_event(self.form, "error", None, _error(error.code, str(error)))
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
