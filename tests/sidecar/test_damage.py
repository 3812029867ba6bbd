"""Damaged files of a state: whatever bits flip, a sidecar's answer is right or a 503 `damaged` that names the file."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.conftest import Served
from vernier.service.sidecar.app import build
from vernier.service.sidecar.options import Options
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.blob import segment
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.segment import Entry, open_segment, segment_file
from vernier.storage.errors import Damaged
from vernier.storage.state.manifest import BatchRef

VIEWS = {
    "reach": (row_type(node="Int64"), ["node"]),
    "edges": (row_type(src="Int64", dst="Int64", weight="Float64 | None"), ["src", "dst"]),
    "notes": (row_type(node="Int64", note="String"), ["node"]),
}
LETTER = {
    "reason": "decode", "detail": "no JSON", "source": "edges", "topic": "edges", "partition": 0, "offset": 7,
    "frontier": 1, "key": None, "value": "eA==", "headers": [], "bytes": 1,
}  # fmt: skip
ASKED = [
    "/v1/views",
    "/v1/views/reach",
    "/v1/views/reach?as_of=15&order=-node&limit=7",
    "/v1/views/reach?as_of=25",
    "/v1/views/edges?where=src:lt:4",
    "/v1/views/edges?as_of=12",
    "/v1/views/notes",
    "/v1/views/notes?as_of=33&where=node:ge:3",
    "/v1/views/notes/rows/5",
    "/v1/views/reach/rows/5",
    "/v1/views/edges/rows/3,4?as_of=18",
    "/v1/read?views=reach,edges,notes&as_of=31",
    "/v1/views/reach/changes?since=11&until=30",
    "/v1/views/notes/changes?since=11&until=39",
    "/v1/frontiers",
    "/v1/dead-letters",
    "/v1/traces",
]
"""What is asked of each damaged state: newest rows, the past, keys, changes, and what manifests say."""


def build_state(path: Path) -> None:
    """Three views over four epochs: of one word, of several, and of long texts; and dead letters."""
    made = StateBuilder(path, VIEWS, shards=2)
    numbers = random.Random(7)
    for upper in (10, 20, 30, 40):
        times = range(upper - 10, upper)
        meta = {"updates": 1, "lower": upper - 10, "upper": upper, "since": upper - 10}
        made.commit(
            upper,
            {
                "reach": [((node,), numbers.choice(times), 1) for node in numbers.sample(range(40), 9)],
                "edges": [((node, node + 1, node / 2), numbers.choice(times), 1) for node in range(9)],
                "notes": [((node, f"a note on {node} that is long, at {upper}"), upper - 5, 1) for node in range(9)],
            },
            merge=upper == 30,
            dead=[Entry("dead-letters", {**meta, "letters": [LETTER]}, {})],
            keep=4,
        )
    made.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state without damage; not to be changed."""
    path = tmp_path_factory.mktemp("whole") / "state"
    build_state(path)
    return path


def answers(state: Path) -> list[tuple[int, Any]]:
    """What a fresh sidecar says to each of ASKED, without what depends on the clock."""
    app = build(Options(state, poll_ms=3_600_000))

    async def ask() -> list[tuple[int, Any]]:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
        ):
            found = []
            for path in ASKED:
                answer = await client.get(path, headers={"accept": "application/x-ndjson"} if "changes" in path else {})
                found.append((answer.status_code, tidy(answer)))
            return found

    return asyncio.run(ask())


def tidy(answer: httpx.Response) -> Any:
    """The body, times of the clock left out."""
    if "ndjson" in answer.headers["content-type"]:
        return answer.text
    body = answer.json()
    for part in (body, *body.get("views", {}).values()) if isinstance(body.get("views"), dict) else (body,):
        if isinstance(part, dict):
            part.pop("stale_ms", None)
    return body


def files_of(state: Path) -> list[Path]:
    """Everything that the state is: manifests, segments, HEAD."""
    return [*sorted(path for path in (state / "epochs").iterdir() if path.is_file()), state / "HEAD"]


@pytest.fixture(scope="module", params=["small", "large"])
def expected(request: pytest.FixtureRequest, whole: Path) -> Iterator[list[tuple[int, Any]]]:
    """The right answers; with `large`, all entries count as large, so that they are verified when first read."""
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "large":
            patched.setattr(segment, "LARGE", 1)
        found = answers(whole)
        assert {status for status, _ in found} == {200}
        yield found


@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**9)), min_size=1, max_size=6))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_answers_are_right_or_say_that_a_file_is_damaged(
    whole: Path, expected: list[tuple[int, Any]], tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    state = tmp_path_factory.mktemp("flipped") / "state"
    shutil.copytree(whole, state)
    files = files_of(state)
    for which, bit in flips:
        path = files[which % len(files)]
        data = bytearray(path.read_bytes())
        data[bit // 8 % len(data)] ^= 1 << bit % 8
        path.write_bytes(data)
    for path, wanted, (status, body) in zip(ASKED, expected, answers(state), strict=True):
        if status == 503:
            assert body["code"] == "damaged", (path, body)
            assert body["file"].startswith("epochs/")
            assert "docs/state.md" in body["detail"]
        elif path == "/v1/views":
            known = {view["name"]: view for view in wanted[1]["views"]}
            assert all(view == known[view["name"]] for view in body["views"])
            assert {view["name"] for view in body["views"]} | body["damaged"].keys() == known.keys()
        elif path == "/v1/frontiers":
            assert body["upper"] == wanted[1]["upper"]
            assert all(body["views"][name] == wanted[1]["views"][name] for name in body["views"])
        elif "/changes" in path and '"damaged"' in body:
            assert wanted[1].startswith(body[: body.rindex('{"event":"error"')]), path
        else:
            assert (status, body) == wanted, path
    shutil.rmtree(state.parent)


def flip(state: Path, ref: BatchRef, array: str = "hashes") -> Path:
    """Flip a bit in an array of a stored entry; returns the file."""
    path = state / segment_file(ref.segment)
    stored = open_segment(LocalBlob(state), ref.segment).entry(ref.label).arrays[array].tobytes()
    data = bytearray(path.read_bytes())
    data[data.index(stored) + 3] ^= 4
    path.write_bytes(data)
    return path


def test_a_damaged_view_leaves_the_others_and_comes_back_when_its_file_does(
    tmp_path: Path, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vernier.service.views.snapshot_reader._AGAIN_NS", 0)
    builder = StateBuilder(tmp_path / "state", VIEWS)
    builder.commit(10, {"reach": [((node,), 1, 1) for node in range(50)]})
    (kept,) = builder.traces["reach"][0]
    builder.commit(20, {"edges": [((1, 2, None), 11, 1)]})
    whole = (builder.path / segment_file(kept.ref.segment)).read_bytes()
    file = flip(builder.path, kept.ref)
    served = serve(builder.path)
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        answer = client.get("/v1/views/reach")
        assert (answer.status_code, answer.json()["code"]) == (503, "damaged")
        assert answer.json()["file"] == segment_file(kept.ref.segment)
        assert client.get("/v1/views/edges").json()["rows"] == [{"src": 1, "dst": 2, "weight": None}]
        assert client.get("/v1/views/nothing").status_code == 404
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["laggards"][0]["laggard"] == f"file {segment_file(kept.ref.segment)}"
        file.write_bytes(whole)
        seen = served.context.follower.snapshot
        while served.context.follower.snapshot is seen:
            assert client.get("/healthz").status_code == 200
        assert len(client.get("/v1/views/reach").json()["rows"]) == 50
        assert client.get("/readyz").status_code == 200
    builder.close()


def test_a_damaged_epoch_leaves_readers_at_the_last_whole_one(tmp_path: Path, serve: Callable[..., Served]) -> None:
    builder = StateBuilder(tmp_path / "state", VIEWS)
    builder.commit(10, {"reach": [((1,), 1, 1)]})
    served = serve(builder.path, poll_ms=3_600_000)
    reader = served.context.follower.reader
    with httpx.stream("GET", f"{served.url}/v1/views/reach/changes?until=20", trust_env=False, timeout=30) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: snapshot"
        builder.commit(20, {"reach": [((node,), 11, 1) for node in range(2, 60)]})
        ref = builder.traces["reach"][0][-1].ref
        whole = (builder.path / segment_file(ref.segment)).read_bytes()
        file = flip(builder.path, ref)
        assert not reader.poll()
        ready = httpx.get(f"{served.url}/readyz", trust_env=False).json()
        assert (ready["code"], ready["laggards"][0]["laggard"]) == ("damaged", f"file {segment_file(ref.segment)}")
        assert httpx.get(f"{served.url}/v1/views/reach", trust_env=False).json()["rows"] == [{"node": 1}]
        file.write_bytes(whole)
        assert reader.poll()
        served.context.follower._loop.call_soon_threadsafe(served.context.follower.wake)
        rest = list(lines)
    assert "event: updates" in rest
    assert "event: error" not in rest
    builder.close()


def test_a_large_batch_is_verified_when_the_past_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following an epoch does not read the batches that it merged; the first read of the past does, and says so."""
    monkeypatch.setattr(segment, "LARGE", 1)
    builder = StateBuilder(tmp_path / "state", VIEWS)
    for upper in (10, 20, 30):
        builder.commit(upper, {"reach": [((node,), upper - 5, 1) for node in range(upper, upper + 9)]})
        if upper == 10:
            reader = Reader(builder.path, log_bytes=0)
            assert reader.poll()
    builder.commit(40, {"reach": [((7,), 33, 1)]}, merge=True)
    file = flip(builder.path, builder.traces["reach"][0][0].ref, "times")
    assert reader.poll()
    assert reader.snapshot is not None
    view = reader.snapshot.views["reach"]
    assert len(view.rows) == 28
    with pytest.raises(Damaged, match=file.stem):
        view.rows_as_of(12)
    assert list(reader.damage) == [file.stem]
    reader.close()
    builder.close()
