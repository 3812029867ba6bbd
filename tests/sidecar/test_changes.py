"""Change streams: complete, cut between data times, resumable at every id, and never holding up the sidecar."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.builder import Change, StateBuilder, ViewModel, row_type
from tests.sidecar.conftest import Served
from vernier.service.sidecar.changes import ChangeStreams
from vernier.service.sidecar.follower import Follower
from vernier.service.sidecar.options import Options
from vernier.service.views.answers import Answers
from vernier.service.views.snapshot_reader import Reader

NODE = {"v": (row_type(node="Int64"), ["node"])}


def events_of(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events as {event, id, data}; comments as {comment}."""
    event: dict[str, Any] = {}
    for line in lines:
        if not line:
            if event:
                yield event
            event = {}
        elif line.startswith(":"):
            event["comment"] = line[1:].strip()
        else:
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value


def listed(data: dict[str, Any]) -> list[Change]:
    return [((change["row"]["node"],), int(change["time"]), change["diff"]) for change in data.get("changes", ())]


async def collect(streams: ChangeStreams, since: int, until: int, with_rows: bool = False) -> list[dict[str, Any]]:
    snapshot = streams.follower.require()
    events = streams.events(snapshot, snapshot.views["v"], "ndjson", since, until, with_rows)
    return [json.loads(event) async for event in events]


histories = st.lists(
    st.tuples(
        st.integers(1, 6),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([-1, 1, 2])), max_size=10),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(histories, st.integers(1, 4), st.sampled_from([0, 100, 1 << 20]), st.integers(0, 12))
def test_resuming_at_any_id_gives_exactly_what_is_missing(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[int, list[tuple[int, int, int]], bool]],
    event_changes: int,
    log_bytes: int,
    start: int,
) -> None:
    builder = StateBuilder(tmp_path_factory.mktemp("state"), NODE)
    model, frontier = ViewModel(), 0
    reader = Reader(builder.path, log_bytes=log_bytes)
    for length, given_changes, merge in history:
        changes = [((node,), frontier + min(at, length - 1), diff) for node, at, diff in given_changes]
        model.changes += changes
        frontier += length
        builder.commit(frontier, {"v": changes}, merge=merge)
        assert reader.poll()
    options = Options(state=builder.path, event_changes=event_changes)
    streams = ChangeStreams(Follower(reader, 5), Answers(), options)
    start = min(start, frontier)

    events = asyncio.run(collect(streams, start, frontier))
    assert [change for event in events for change in listed(event)] == model.between(start, frontier)
    position = start
    for event in events:
        assert int(event["lower"]) == position
        position = int(event["upper"])
        assert event["id"] == event["upper"]
        assert all(int(event["lower"]) <= at < position for _, at, _ in listed(event))
        assert (event["event"] == "progress") == (not listed(event))
        times = [at for _, at, _ in listed(event)]
        assert len(times) <= event_changes or len([at for at in times if at != times[-1]]) < event_changes
        resumed = asyncio.run(collect(streams, position, frontier))
        assert [change for later in resumed for change in listed(later)] == model.between(position, frontier)
    assert position == frontier

    rows: dict[int, int] = {}
    for event in asyncio.run(collect(streams, start, frontier, with_rows=True)):
        for row in event.get("rows", ()):
            rows[row["node"]] = row.get("_diff", 1)
        for (node,), _, diff in listed(event):
            rows[node] = rows.get(node, 0) + diff
    assert {(node,): count for node, count in rows.items() if count} == model.rows(frontier - 1)
    reader.close()
    builder.close()


@pytest.fixture
def url(builder: StateBuilder, serve: Callable[..., Served]) -> str:
    builder.commit(10, {"reach": [((node,), node, 1) for node in range(5)]}, since=2)
    return serve(builder.path, heartbeat_s=0.2, event_changes=3).url + "/v1/views/reach/changes"


def test_snapshot_then_what_happens(url: str, builder: StateBuilder) -> None:
    with httpx.stream("GET", url, timeout=30, trust_env=False) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = events_of(answer.iter_lines())
        first, second = next(events), next(events)
        assert (first["event"], first.get("id"), first["data"]["last"]) == ("snapshot", None, False)
        assert (second["event"], second["id"], second["data"]["last"]) == ("snapshot", "10", True)
        assert [row["node"] for row in first["data"]["rows"] + second["data"]["rows"]] == [0, 1, 2, 3, 4]
        builder.commit(20, {"reach": [((9,), 15, 1), ((1,), 12, -1)]})
        happened = next(event for event in events if "comment" not in event)
        assert (happened["event"], happened["id"]) == ("updates", "20")
        assert listed(happened["data"]) == [((1,), 12, -1), ((9,), 15, 1)]
        builder.commit(30)
        assert next(event for event in events if "comment" not in event)["event"] == "progress"


def test_last_event_id_resumes_and_wins_over_since(url: str, builder: StateBuilder) -> None:
    builder.commit(20, {"reach": [((9,), 15, 1)]})
    with httpx.stream(
        "GET", f"{url}?since=3&until=20&snapshot=true", headers={"last-event-id": "10"}, timeout=30, trust_env=False
    ) as answer:
        found = [event for event in events_of(answer.iter_lines()) if "comment" not in event]
    assert [(event["event"], event["id"], listed(event["data"])) for event in found] == [
        ("updates", "20", [((9,), 15, 1)])
    ]
    done = httpx.get(f"{url}?until=20", headers={"last-event-id": "20"}, trust_env=False)
    assert done.status_code == 204


def test_since_and_until_cut_exactly(url: str) -> None:
    answer = httpx.get(f"{url}?since=3&until=5", headers={"accept": "application/x-ndjson"}, trust_env=False)
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert [change for event in events for change in listed(event)] == [((3,), 3, 1), ((4,), 4, 1)]
    assert events[-1]["id"] == "5"
    answer = httpx.get(
        f"{url}?since=4&until=5&snapshot=true", headers={"accept": "application/x-ndjson"}, trust_env=False
    )
    first, second, third = (json.loads(line) for line in answer.text.splitlines())
    assert [row["node"] for row in first["rows"] + second["rows"]] == [0, 1, 2, 3]
    assert (second["as_of"], second["id"]) == ("3", "4")
    assert listed(third) == [((4,), 4, 1)]


def test_history_that_is_gone(url: str) -> None:
    for query in ("since=2", "since=1&snapshot=true"):
        answer = httpx.get(f"{url}?{query}", trust_env=False)
        assert (answer.status_code, answer.json()["code"]) == (410, "compacted")
    assert httpx.get(f"{url}?since=99&snapshot=true", trust_env=False).json()["code"] == "not_yet_final"
    assert httpx.get(url.replace("reach", "none"), trust_env=False).status_code == 404
    assert httpx.get(url, headers={"accept": "text/html"}, trust_env=False).status_code == 406


def test_heartbeats_say_how_old_the_answers_are(url: str) -> None:
    with httpx.stream("GET", f"{url}?snapshot=false", timeout=30, trust_env=False) as answer:
        events = events_of(answer.iter_lines())
        ages = [int(next(events)["comment"].partition("stale_ms=")[2]) for _ in range(3)]
    assert ages == sorted(ages)
    assert ages[0] < ages[-1]


def test_another_program_ends_the_stream_with_an_error(url: str, builder: StateBuilder) -> None:
    with httpx.stream("GET", f"{url}?snapshot=false", timeout=30, trust_env=False) as answer:
        events = events_of(answer.iter_lines())
        next(events)
        builder.close()
        other = StateBuilder(builder.path, {"w": (row_type(n="Int64"), ["n"])}, program="p2")
        other.commit(40)
        last = [event for event in events if "comment" not in event]
        other.close()
    assert [(event["event"], event["data"]["code"]) for event in last] == [("error", "view_changed")]


def test_a_slow_reader_is_told_and_let_go_and_others_go_on(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(10)
    served = serve(builder.path, subscriber_bytes=50_000, log_bytes=1 << 20)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", served.port))
        slow.sendall(b"GET /v1/views/reach/changes HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n\r\n")
        while b'"id":"10"' not in slow.recv(4096):
            pass
        frontier = 10
        # Until the buffers of both kernels are full and the stream stands still, each epoch is taken off at once.
        for _ in range(60):
            frontier += 5000
            changes = [((node,), frontier - 1 - node, 1 if node % 2 else -1) for node in range(4000)]
            builder.commit(frontier, {"reach": changes}, since=frontier - 6000, merge=True)
            answer = httpx.get(
                f"{served.url}/v1/views/reach/rows/1?as_of={frontier - 1}&wait_ms=30000", trust_env=False
            )
            assert answer.status_code == 200
        slow.settimeout(30)
        received = bytearray()
        while chunk := slow.recv(1 << 16):
            received += chunk
    tail = received[-400:].decode(errors="replace")
    assert '"event":"error","code":"slow_consumer"' in tail
    assert served.context.streams.dropped == {"reach": 1}
    assert served.context.streams.open == 0


def test_subscribers_are_counted_and_limited(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(10)
    served = serve(builder.path, max_subscribers=1, heartbeat_s=0.05)
    path = f"{served.url}/v1/views/reach/changes"
    with httpx.stream("GET", path, timeout=30, trust_env=False) as answer:
        events = events_of(answer.iter_lines())
        next(events)
        refused = httpx.get(path, trust_env=False)
        assert (refused.status_code, refused.json()["code"]) == (503, "too_many_subscribers")
        assert 'vernier_subscribers{view="reach"} 1.0' in httpx.get(f"{served.url}/metrics", trust_env=False).text
    while served.context.streams.open:
        httpx.get(f"{served.url}/healthz", trust_env=False)
    with httpx.stream("GET", path, timeout=30, trust_env=False) as answer:
        assert answer.status_code == 200


def test_no_epoch_yet(tmp_path: Path, serve: Callable[..., Served]) -> None:
    answer = httpx.get(f"{serve(tmp_path / 'none').url}/v1/views/reach/changes", trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_epoch")
