"""The Python client against real sidecars."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

import vernier.service.client.queries
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import VIEWS, Served
from tests.sidecar.process import running
from vernier.service.client.client import Client, Event, ServerError, Unreachable, connect

DAY = date(2026, 2, 3)


@pytest.fixture
def client(builder: StateBuilder, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> Client:
    """25 nodes and two pairs at frontier 10; pages of 10 rows."""
    monkeypatch.setattr(vernier.service.client.queries, "PAGE", 10)
    pairs = [((None, 1, 2, True, 5, DAY), 3, 1), ((2.5, 3, 4, False, 6, DAY), 4, 2)]
    builder.commit(10, {"reach": [((node,), node % 5, 1) for node in range(25)], "pairs": pairs})
    return connect(serve(builder.path).url)


def test_rows_take_as_many_pages_as_there_are(client: Client) -> None:
    rows = client.rows("reach")
    assert [row["node"] for row in rows] == list(range(25))
    assert (rows.as_of, rows.frontier) == (9, 10)
    assert [row["node"] for row in client.rows("reach", order="-node", limit=12)] == list(range(24, 12, -1))
    assert [row["node"] for row in client.rows("reach", where=["node:lt:3"], as_of=1)] == [0, 1]
    assert [row["node"] for row in client.rows("reach", where="node:lt:3", columns="node", as_of=1)] == [0, 1]
    assert client.rows("pairs", columns=["src", "dst"], order=["-src"]) == [
        {"src": 3, "dst": 4, "_diff": 2},
        {"src": 1, "dst": 2},
    ]


def test_arrow_and_pandas(client: Client) -> None:
    assert client.arrow("reach").column("node").to_pylist() == list(range(25))
    assert client.arrow("reach", limit=11).num_rows == 11
    frame = client.pandas("pairs")
    assert frame["src"].tolist() == [1, 3]
    assert frame["_diff"].tolist() == [1, 2]
    assert frame["at"][0].to_pydatetime(warn=False) == datetime(1970, 1, 1, tzinfo=UTC)


def test_multiplicities_in_some_pages_alone(client: Client, builder: StateBuilder) -> None:
    builder.commit(20, {"reach": [((24,), 15, 3)]})
    table = client.arrow("reach", as_of=19, wait_ms=30_000)
    assert table.column("_diff").to_pylist() == [1] * 24 + [4]


def test_keys_and_several_views(client: Client) -> None:
    assert client.key("reach", 7) == [{"node": 7}]
    assert client.key("reach", 77) == []
    assert client.key("pairs", 3, 4)[0]["weight"] == 2.5
    assert [row["src"] for row in client.keys("pairs", [(3, 4), {"src": 1, "dst": 2}])] == [3, 1]
    both = client.read(["reach", "pairs"], as_of=4)
    assert {name: (len(rows), rows.as_of) for name, rows in both.items()} == {"reach": (25, 4), "pairs": (2, 4)}


def test_errors_have_the_code_and_the_way_out(client: Client) -> None:
    for ask in (lambda: client.rows("raech"), lambda: client.view("raech"), lambda: client.key("raech", 1)):
        with pytest.raises(ServerError, match="did you mean 'reach'") as error:
            ask()
        assert (error.value.status, error.value.problem) == (404, "unknown_view")
    with pytest.raises(ServerError) as error:
        client.rows("reach", as_of=10)
    assert error.value.problem == "not_yet_final"
    with pytest.raises(Unreachable, match="vernier up"):
        connect("http://127.0.0.1:9").views()
    with pytest.raises(Unreachable):
        next(connect("http://127.0.0.1:9").watch("reach", reconnect=False))


def test_status(client: Client) -> None:
    status = client.status()
    assert (status["ready"], status["epoch"], status["laggards"]) == (True, 1, [])
    assert {view["name"]: view["rows"] for view in status["views"]} == {"reach": 25, "pairs": 2}
    assert client.view("pairs")["key"] == ["src", "dst"]
    assert client.traces()[0]["updates"] == 25
    assert client.dead_letters()["dead_letters"] == []


def test_status_before_the_first_epoch(tmp_path: Path, serve: Callable[..., Served]) -> None:
    status = connect(serve(tmp_path / "none").url).status()
    assert (status["ready"], status["epoch"]) == (False, None)
    assert status["laggards"][0]["laggard"] == "pipeline"


def test_watch_up_to_a_time(client: Client, builder: StateBuilder) -> None:
    builder.commit(20, {"reach": [((3,), 15, -1)]})
    builder.commit(30)
    snapshot, *events = client.watch("reach", since=10, until=30, snapshot=True)
    assert (snapshot.kind, snapshot.lower, snapshot.frontier, len(snapshot.changes)) == ("snapshot", 9, 10, 25)
    assert [change.diff for event in events for change in event.changes] == [-1]
    assert [event.frontier for event in events][-1] == 30


def test_watch_goes_on_over_a_killed_sidecar(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, VIEWS)
    builder.commit(10, {"reach": [((1,), 3, 1)]})
    events: list[Event] = []
    with running(tmp_path) as first:
        watching = connect(first.url).watch("reach")
        events.append(next(watching))
        builder.commit(20, {"reach": [((2,), 12, 1)]})
        events.append(next(watching))
        port = first.port
        first.end(signal.SIGKILL)
        builder.commit(30, {"reach": [((3,), 21, 1), ((1,), 29, -1)]})
        with running(tmp_path, port=port):
            events.append(next(watching))
            builder.commit(40, {"reach": [((4,), 35, 1)]})
            events.append(next(watching))
    assert [event.frontier for event in events] == [10, 20, 30, 40]
    rows: dict[int, int] = {}
    for change in (change for event in events for change in event.changes):
        rows[change.row["node"]] = rows.get(change.row["node"], 0) + change.diff
    assert {node for node, count in rows.items() if count} == {2, 3, 4}
    builder.close()
