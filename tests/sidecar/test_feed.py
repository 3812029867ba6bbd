"""Feeds: all subscribers get the same events in the same order, each encoded once; a slow one delays no other."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.builder import Change, StateBuilder, ViewModel, row_type
from vernier.service.sidecar.changes import ChangeStreams
from vernier.service.sidecar.feed import Feed
from vernier.service.sidecar.follower import Follower
from vernier.service.sidecar.negotiate import Format
from vernier.service.sidecar.options import Options
from vernier.service.views.answers import Answers
from vernier.service.views.snapshot_reader import Reader
from vernier.service.views.view import Interval, View
from vernier.storage.updates import MIN_TIME

NODE = {"v": (row_type(node="Int64"), ["node"])}
Stream = AsyncGenerator[bytes]


class Counting(ChangeStreams):
    """Counts how often each piece of the changes was encoded."""

    def __init__(self, follower: Follower, options: Options) -> None:
        super().__init__(follower, Answers(), options)
        self.encoded: list[tuple[Format, int, int]] = []

    def _encode(self, view: View, form: Format, interval: Interval) -> bytes:
        self.encoded.append((form, interval.lower, interval.upper))
        return super()._encode(view, form, interval)


class Service:
    """A state that grows by an epoch when asked, and the streams of its one view; without a server."""

    def __init__(self, path: Path, **about: Any) -> None:
        self.builder = StateBuilder(path, NODE)
        self.model = ViewModel()
        self.reader = Reader(path)
        self.follower = Follower(self.reader, 5)
        self.streams = Counting(self.follower, Options(state=path, **about))
        self.frontier = 0
        self.commit([])

    def commit(self, changes: list[Change], length: int = 10) -> None:
        """One more epoch, seen by the streams."""
        self.frontier += length
        self.model.changes += changes
        self.builder.commit(self.frontier, {"v": changes})
        assert self.reader.poll()
        self.follower.wake()

    def stream(self, form: Format = "ndjson", since: int | None = None, until: int | None = None) -> Stream:
        """A subscription, from the newest frontier on unless told otherwise."""
        snapshot = self.follower.require()
        view = snapshot.views["v"]
        return self.streams.events(snapshot, view, form, view.frontier if since is None else since, until, False)

    def close(self) -> None:
        self.reader.close()
        self.builder.close()


@pytest.fixture
def service(tmp_path: Path) -> Any:
    made: list[Service] = []

    def start(**about: Any) -> Service:
        made.append(Service(tmp_path / "state", **about))
        return made[0]

    yield start
    for one in made:
        one.close()


def burst(frontier: int, size: int = 5) -> list[Change]:
    """Changes at the times from the frontier on."""
    return [((node,), frontier + node % 10, 1 if node % 3 else -1) for node in range(size)]


async def nothing(view: View, lower: int, upper: int) -> AsyncGenerator[tuple[int, bytes]]:
    events: list[tuple[int, bytes]] = []
    for event in events:
        yield event


def listed(received: bytes) -> list[Change]:
    events = [json.loads(line) for line in received.splitlines()]
    return [
        ((change["row"]["node"],), int(change["time"]), change["diff"])
        for event in events
        for change in event.get("changes", ())
    ]


async def whole(stream: Stream) -> bytes:
    return b"".join([events async for events in stream])


def test_each_event_is_encoded_once_for_all_and_all_get_the_same(service: Callable[..., Service]) -> None:
    run = service(event_changes=2)
    last = run.frontier + 60

    async def subscribe() -> list[bytes]:
        readers = [asyncio.create_task(whole(run.stream(until=last))) for _ in range(50)]
        late: list[asyncio.Task[bytes]] = []
        first = run.frontier
        for epoch in range(6):
            await asyncio.sleep(0)
            if epoch == 3:
                late = [asyncio.create_task(whole(run.stream(since=first, until=last))) for _ in range(5)]
            run.commit(burst(run.frontier))
        return await asyncio.gather(*readers, *late)

    first = run.frontier
    received = asyncio.run(subscribe())
    assert {listed(one) == run.model.between(first, last) for one in received} == {True}
    assert len(set(received[:50])) == 1
    assert len(run.streams.encoded) == len(set(run.streams.encoded))


def test_the_feed_ends_with_its_last_reader(service: Callable[..., Service]) -> None:
    run = service()

    async def subscribe() -> None:
        streams = [run.stream(), run.stream()]
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0)
        run.commit(burst(run.frontier))
        assert len(set(await asyncio.gather(*waiting))) == 1
        for stream in streams:
            assert len(run.streams._feeds) == 1
            await stream.aclose()
        assert not run.streams._feeds

    asyncio.run(subscribe())


def test_who_is_too_slow_is_told_and_the_others_get_everything(service: Callable[..., Service]) -> None:
    run = service(subscriber_bytes=2_000)
    begin = run.frontier

    async def subscribe() -> tuple[list[bytes], bytes]:
        slow, quick = run.stream(), run.stream()
        asked = [asyncio.ensure_future(anext(one)) for one in (slow, quick)]
        await asyncio.sleep(0)
        run.commit(burst(run.frontier))
        received = await asyncio.gather(*asked)
        taken = [received[1]]
        for _ in range(10):
            run.commit(burst(run.frontier, 20))
            taken.append(await anext(quick))
        feed, _ = next(iter(run.streams._feeds.values()))
        # Beside the newest epoch no more than agreed is kept for anybody.
        assert sum(len(chunk.events) for chunk in feed._chunks.values()) <= 2_000 + len(taken[-1])
        rest = await whole(slow)
        await quick.aclose()
        return taken, rest

    taken, rest = asyncio.run(subscribe())
    assert listed(b"".join(taken)) == run.model.between(begin, run.frontier)
    assert [json.loads(line)["code"] for line in rest.splitlines()] == ["slow_consumer"]
    assert run.streams.dropped == {"v": 1}


def test_one_that_only_waits_is_not_slow_however_large_an_epoch(service: Callable[..., Service]) -> None:
    run = service(subscriber_bytes=100, event_changes=3)

    async def subscribe() -> bytes:
        reader = asyncio.create_task(whole(run.stream(until=run.frontier + 10)))
        await asyncio.sleep(0)
        run.commit(burst(run.frontier, 500))
        return await reader

    begin = run.frontier
    assert listed(asyncio.run(subscribe())) == run.model.between(begin, run.frontier)


def test_a_stream_that_began_before_the_first_data_gets_it(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", NODE)
    builder.commit(MIN_TIME + 2)
    reader = Reader(tmp_path / "state")
    assert reader.poll()
    follower = Follower(reader, 5)
    streams = ChangeStreams(follower, Answers(), Options(state=tmp_path / "state"))

    async def subscribe() -> bytes:
        snapshot = follower.require()
        stream = streams.events(snapshot, snapshot.views["v"], "ndjson", MIN_TIME + 2, 1_000, True)
        task = asyncio.create_task(whole(stream))
        while not streams._feeds:
            await asyncio.sleep(0)
        # The frontier jumps to the wall clock, and the history's begin with it, far beyond where the stream stands.
        builder.commit(1_000, {"v": [((7,), 990, 1)]}, since=900)
        assert reader.poll()
        follower.wake()
        return await task

    assert listed(asyncio.run(subscribe())) == [((7,), 990, 1)]
    reader.close()
    builder.close()


def test_others_have_their_turn_while_many_are_woken(service: Callable[..., Service]) -> None:
    run = service()
    turns: list[str] = []

    async def subscriber(feed: Feed) -> None:
        await feed.news()
        turns.append("subscriber")

    async def look_up(stop: asyncio.Event) -> None:
        while not stop.is_set():
            turns.append("look-up")
            await asyncio.sleep(0)

    async def wake() -> None:
        view = run.follower.require().views["v"]
        feed = Feed(view, run.follower, nothing, bytes, heartbeat_s=60, kept_bytes=0)
        stop = asyncio.Event()
        waiting = [asyncio.create_task(subscriber(feed)) for _ in range(500)]
        other = asyncio.create_task(look_up(stop))
        await asyncio.sleep(0)
        await feed.wake()
        await asyncio.gather(*waiting)
        stop.set()
        await other

    asyncio.run(wake())
    runs = [len(list(group)) for kind, group in itertools.groupby(turns) if kind == "subscriber"]
    assert sum(runs) == 500
    assert max(runs) <= 32
