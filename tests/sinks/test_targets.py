"""Each target holds each change once, wherever a writer dies between a write and its position."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy
from deltalake import DeltaTable
from sqlalchemy.exc import OperationalError

from tests.crash.faults import Crash, Fault, FaultyDisk
from tests.sidecar.builder import Change, StateBuilder, ViewModel, row_type
from vernier.service.config.settings import BadSettings, load
from vernier.service.config.streams import Sink
from vernier.service.sinks import webhook_target
from vernier.service.sinks.delta_target import Delta
from vernier.service.sinks.history import History
from vernier.service.sinks.parquet_target import ParquetFolder
from vernier.service.sinks.publisher import Channel, Publisher
from vernier.service.sinks.sql_target import SqlTable
from vernier.service.sinks.target import Alone, Destination, TargetFailed
from vernier.service.sinks.webhook_target import Webhook
from vernier.service.status import publisher
from vernier.storage.blob.disk import OsDisk
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.errors import FileFailed, VernierError
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME

VIEW = {"reach": (row_type(node="Int64", n="Int64"), ["node"])}
SINK = Sink(to="parquet", path="-")
LONG = "a text that is too long to be whole in its words"


class World:
    """A growing state with one row per key, and writers of its view."""

    def __init__(self, path: Path) -> None:
        self.builder, self.model, self.chance = StateBuilder(path, VIEW, shards=2), ViewModel(), random.Random(4)
        self.rows: dict[int, tuple[int, int]] = {}

    def grow(self, **about: Any) -> None:
        """Commit an epoch in which keys come, change and go, some of them several times."""
        lower, own = max(self.builder.frontier, 0), list[Change]()
        for step in range(4):
            at = lower + 2 * step
            for node in self.chance.sample(range(6), 2):
                if node in self.rows:
                    own.append((self.rows.pop(node), at, -1))
                if self.chance.random() < 0.7:
                    self.rows[node] = (node, self.chance.randrange(100))
                    own.append((self.rows[node], at, 1))
        self.model.changes += own
        self.builder.commit(lower + 10, {"reach": own}, **{"keep": 5, **about})

    def channel(self, place: Destination) -> Channel:
        """A writer that has just started."""
        return Channel(Alone("reach", place), {"reach": SINK}, 0.0, 50_000)

    def turn(self, place: Destination) -> Channel:
        """A writer starts, writes what there is, and ends."""
        channel, history = self.channel(place), History(StateDirectory(self.builder.path))
        history.poll()
        channel.turn(history)
        channel.target.close()
        return channel

    @property
    def changes(self) -> Counter[Any]:
        """All changes that there were: (row, time) -> diff."""
        return Counter({(row, at): diff for row, at, diff in self.model.between(MIN_TIME, 1 << 62)})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state")
    yield made
    made.builder.close()


def in_parquet(folder: Path) -> Counter[Any]:
    """What a reader of the folder sees that knows nothing of us."""
    found: Counter[Any] = Counter()
    for file in sorted(folder.glob("[!_]*/*.parquet")):
        for row in pq.ParquetFile(file).read().to_pylist():
            found[(row["node"], row["n"]), row["_time"]] += row["_diff"]
    return found


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN_WRITE, Fault.LOST_REPLY])
def test_parquet_has_each_change_once_whatever_call_fails(world: World, tmp_path: Path, fault: Fault) -> None:
    folder = tmp_path / "lake"
    at = faults = 0
    while True:
        world.grow()
        at += 1
        disk = FaultyDisk(OsDisk(), fault, at)
        try:
            world.turn(ParquetFolder(LocalBlob(folder, disk), "lake"))
        except (Crash, VernierError):
            faults += 1
        # A reader sees nothing twice at any moment, and nothing that will not stay.
        seen = in_parquet(folder)
        assert seen.items() <= world.changes.items()
        if not disk.reached:
            break
        world.turn(ParquetFolder(LocalBlob(folder), "lake"))
        assert in_parquet(folder) == world.changes
    assert faults > 15
    assert in_parquet(folder) == world.changes
    assert not [one for one in (folder / "_vernier").iterdir() if one.suffix != ".json"]


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_REPLY])
def test_parquet_keeps_a_commit_through_starts_that_fail(world: World, tmp_path: Path, fault: Fault) -> None:
    folder, chance = tmp_path / "lake", random.Random(11)
    calls = 0
    for _ in range(12):
        world.grow()
        for at in (chance.randint(14, 26), *(chance.randint(1, 14) for _ in range(chance.randint(1, 4)))):
            disk = FaultyDisk(OsDisk(), fault, at)
            with contextlib.suppress(Crash, VernierError):
                world.turn(ParquetFolder(LocalBlob(folder, disk), "lake"))
            calls += disk.reached
            assert in_parquet(folder).items() <= world.changes.items()
        world.turn(ParquetFolder(LocalBlob(folder), "lake"))
        assert in_parquet(folder) == world.changes
    assert calls > 20
    assert not [one for one in (folder / "_vernier").iterdir() if one.suffix != ".json"]


class Immovable(LocalBlob):
    """A place where files cannot be moved."""

    def rename(self, old: str, new: str) -> None:
        raise FileFailed(operation="rename", name=old, where=self.where, reason="no")


def test_parquet_keeps_a_commit_while_moves_fail(world: World, tmp_path: Path) -> None:
    world.grow()
    channel = world.channel(ParquetFolder(Immovable(tmp_path / "lake"), "lake"))
    history = History(StateDirectory(world.builder.path))
    history.poll()
    for _ in range(4):
        with pytest.raises(FileFailed):
            channel.turn(history)
    world.turn(ParquetFolder(LocalBlob(tmp_path / "lake"), "lake"))
    assert in_parquet(tmp_path / "lake") == world.changes


def test_a_start_leaves_the_staged_files_of_the_writer_that_fenced_it(tmp_path: Path) -> None:
    theirs = "_vernier/staged-3-0-0123456789ab.parquet"

    class Overtaken(LocalBlob):
        """Behind this writer's fence another one starts and stages a file."""

        def create(self, name: str, data: bytes) -> None:
            super().create(name, data)
            if name == "_vernier/000000000001.json":
                newer = LocalBlob(tmp_path / "lake")
                ParquetFolder(newer, "lake").position()
                newer.put(theirs, [b"rows"])

    place = Overtaken(tmp_path / "lake")
    ParquetFolder(place, "lake").position()
    assert place.size(theirs) == 4


def test_the_last_writer_of_a_folder_is_the_only_one(world: World, tmp_path: Path) -> None:
    world.grow()
    history = History(StateDirectory(world.builder.path))
    history.poll()
    old, new = (world.channel(ParquetFolder(LocalBlob(tmp_path / "lake"), "lake")) for _ in range(2))
    old.turn(history)
    new.turn(history)
    world.grow()
    history.poll()
    old.turn(history)
    assert "another publisher has taken over lake" in old.target.problems["reach"]
    new.turn(history)
    assert in_parquet(tmp_path / "lake") == world.changes


def test_parquet_says_when_changes_are_missing(world: World, tmp_path: Path) -> None:
    place = LocalBlob(tmp_path / "lake")
    world.grow()
    world.turn(ParquetFolder(place, "lake"))
    for _ in range(6):
        world.grow(keep=2, since=world.builder.frontier - 5, merge=True)
    channel = world.turn(ParquetFolder(place, "lake"))
    assert "the changes of view reach from 10 on are no longer kept" in channel.target.problems["reach"]
    fresh = world.turn(ParquetFolder(LocalBlob(tmp_path / "other"), "other"))
    assert not fresh.target.problems
    total: Counter[Any] = Counter()
    for (row, _), diff in in_parquet(tmp_path / "other").items():
        total[row] += diff
    assert {row: n for row, n in total.items() if n} == world.model.rows(world.builder.frontier)


class BreakingTable(SqlTable):
    """A table whose connection fails before or after its n-th statement or commit."""

    def __init__(self, url: str, at: int, after: bool) -> None:
        super().__init__(url, "reach", "test.reach")
        self.at, self.calls = at, 0

        def fail(*_: Any) -> None:
            self.calls += 1
            if self.calls == at:
                raise OperationalError("a statement", {}, Exception("the connection is gone"))

        sqlalchemy.event.listen(self._engine, "after_cursor_execute" if after else "before_cursor_execute", fail)
        sqlalchemy.event.listen(self._engine, "commit", fail)


def in_table(file: Path) -> dict[Any, int]:
    """What a reader of the database sees."""
    with sqlite3.connect(file) as connection:
        return dict.fromkeys(connection.execute("select node, n from reach").fetchall(), 1)


@pytest.mark.parametrize("after", [False, True])
def test_a_table_is_the_view_as_of_its_position(world: World, tmp_path: Path, after: bool) -> None:
    file = tmp_path / "views.db"
    at, problems = 0, set[str]()
    world.grow()
    world.turn(SqlTable(f"sqlite:///{file}", "reach", "test.reach"))
    while True:
        world.grow()
        at += 1
        place = BreakingTable(f"sqlite:///{file}", at, after)
        before = in_table(file)
        try:
            world.turn(place)
            if place.calls < at:
                break
        except TargetFailed as error:
            problems.add(error.problem)
            # The database has the rows of the position before, never some of the new ones.
            assert in_table(file) == before
        finally:
            place.close()
        world.turn(SqlTable(f"sqlite:///{file}", "reach", "test.reach"))
        assert in_table(file) == world.model.rows(world.builder.frontier)
    assert at > 6
    assert problems == {"the connection is gone"}


def test_a_table_is_replaced_when_changes_are_missing(world: World, tmp_path: Path) -> None:
    file = tmp_path / "views.db"
    world.grow()
    world.turn(SqlTable(f"sqlite:///{file}", "reach", "test.reach"))
    for _ in range(6):
        world.grow(keep=2, since=world.builder.frontier - 5, merge=True)
    world.turn(SqlTable(f"sqlite:///{file}", "reach", "test.reach"))
    assert in_table(file) == world.model.rows(world.builder.frontier)
    world.grow()
    old = world.channel(SqlTable(f"sqlite:///{file}", "reach", "test.reach"))
    old.target.positions()
    world.turn(SqlTable(f"sqlite:///{file}", "reach", "test.reach"))
    world.grow()
    history = History(StateDirectory(world.builder.path))
    history.poll()
    old.turn(history)
    assert "another publisher has taken over" in old.target.problems["reach"]
    old.target.close()


@pytest.mark.parametrize("running", [False, True])
def test_a_table_that_was_dropped_comes_back_complete(
    world: World, tmp_path: Path, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "views.db"
    place = SqlTable(f"sqlite:///{file}", "reach", "test.reach")
    world.grow()
    world.turn(place)
    channel = world.channel(place)
    if running:
        channel.target.positions()
    with sqlite3.connect(file) as connection:
        connection.execute("drop table reach")
    world.grow()
    history = History(StateDirectory(world.builder.path))
    history.poll()
    if running:
        with pytest.raises(TargetFailed, match="table reach: no such table: reach"):
            channel.turn(history)
    # A start that dies before it has written must not make the next one believe in the rows.
    SqlTable(f"sqlite:///{file}", "reach", "test.reach").position()
    with sqlite3.connect(file) as connection:
        connection.execute("create table reach (node bigint primary key, n bigint)")
    world.turn(SqlTable(f"sqlite:///{file}", "reach", "test.reach"))
    assert in_table(file) == world.model.rows(world.builder.frontier)
    assert "table reach is gone and is written again from the beginning" in caplog.text


def test_every_type_in_a_table(tmp_path: Path) -> None:
    columns = row_type(
        name="String", age="Int64 | None", weight="Float64 | None", ok="Bool", day="Date", at="TimestampNs",
        price="Decimal(8, 2)", tags="List(String | None)", place="Struct(x=Float64, at=TimestampNs)", raw="Binary",
    )  # fmt: skip
    builder = StateBuilder(tmp_path / "state", {"reach": (columns, ["name"])})
    place = {"x": 0.5, "at": 7}
    row = (LONG, None, 0.25, True, date(2026, 1, 2), 10**18 + 1, Decimal("1.50"), ["a", None], place, b"\x00\x01")
    builder.commit(10, {"reach": [(row, 3, 1), (("b", *row[1:]), 4, 1), (("b", *row[1:]), 5, -1)]})
    builder.close()
    channel = Channel(Alone("reach", SqlTable(f"sqlite:///{tmp_path}/v.db", "people", "t")), {"reach": SINK}, 0, 9)
    history = History(StateDirectory(builder.path))
    history.poll()
    channel.turn(history)
    channel.target.close()
    with sqlite3.connect(tmp_path / "v.db") as connection:
        assert connection.execute("select * from people").fetchall() == [
            (LONG, None, 0.25, 1, "2026-01-02", 10**18 + 1, "1.50", '["a",null]', '{"x":0.5,"at":7}', b"\x00\x01")
        ]


def test_a_key_that_is_nan_in_a_table(tmp_path: Path) -> None:
    """SQLite has a null for a NaN; and in Python a NaN is not equal to another one."""
    view = {"reach": (row_type(x="Float64", n="Int64"), ["x"])}
    builder, nan = StateBuilder(tmp_path / "state", view), float("nan")
    builder.commit(10, {"reach": [((nan, 1), 3, 1), ((2.0, 1), 3, 1), ((nan, 1), 4, -1), ((nan, 2), 4, 1)]})
    place = SqlTable(f"sqlite:///{tmp_path}/v.db", "reach", "t")
    channel, history = Channel(Alone("reach", place), {"reach": SINK}, 0, 9), History(StateDirectory(builder.path))

    def shown() -> list[Any]:
        history.poll()
        channel.turn(history)
        assert not channel.target.problems
        with sqlite3.connect(tmp_path / "v.db") as connection:
            return connection.execute("select x, n from reach order by x").fetchall()

    assert shown() == [(None, 2), (2.0, 1)]
    builder.commit(20, {"reach": [((nan, 2), 11, -1), ((nan, 3), 11, 1)]})
    assert shown() == [(None, 3), (2.0, 1)]
    builder.commit(30, {"reach": [((nan, 3), 21, -1), ((nan, 4), 21, 1), ((nan, 4), 22, -1)]})
    assert shown() == [(2.0, 1)]
    builder.close()
    channel.target.close()


def test_a_view_with_several_rows_of_a_key_is_no_table(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", VIEW)
    builder.commit(10, {"reach": [((1, 2), 3, 1), ((1, 3), 4, 1), ((1, 4), 4, 1)]})
    builder.close()
    channel = Channel(Alone("reach", SqlTable(f"sqlite:///{tmp_path}/v.db", "reach", "t")), {"reach": SINK}, 0, 9)
    history = History(StateDirectory(builder.path))
    history.poll()
    channel.turn(history)
    channel.target.close()
    assert 'several rows of the key {"node":1} at 4' in channel.target.problems["reach"]


class Receiver:
    """Takes requests as an application would that ignores ids it has seen. fail: called with the number of each
    request; True refuses it after it has been taken.
    """

    def __init__(self, fail: Callable[[int], bool] = lambda number: False) -> None:
        self.bodies: dict[str, bytes] = {}
        self.requests = 0
        self.fail = fail
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                identity = self.headers["idempotency-key"]
                receiver.requests += 1
                assert receiver.bodies.setdefault(identity, body) == body
                self.send_response(503 if receiver.fail(receiver.requests) else 204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        self.sink = Sink(to="webhook", url=f"http://127.0.0.1:{self.server.server_address[1]}/changes")

    @property
    def changes(self) -> Counter[Any]:
        """The changes of all distinct requests."""
        found: Counter[Any] = Counter()
        for body in self.bodies.values():
            for one in json.loads(body)["changes"]:
                found[(one["row"]["node"], one["row"]["n"]), int(one["time"])] += one["diff"]
        return found

    @property
    def rows(self) -> dict[Any, int]:
        """The rows after all distinct requests, in the order in which they came first."""
        total, history = Counter[Any](), 0
        for body in map(json.loads, self.bodies.values()):
            if body.get("history", 0) < history:
                continue
            history = body.get("history", 0)
            if body["restarts"] and body["seq"] == 0:
                total.clear()
            for one in body["changes"]:
                total[one["row"]["node"], one["row"]["n"]] += one["diff"]
        return {row: n for row, n in total.items() if n}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN_WRITE])
def test_an_address_gets_each_change_under_one_id(world: World, fault: Fault) -> None:
    refused = random.Random(6)
    receiver = Receiver(lambda number: refused.random() < 0.2)
    try:
        for at in range(1, 26):  # every call of the first step, and some of the next
            # After some failures the epochs are collected, so the changes come from the trace, cut in another way.
            for _ in range(1 + at % 3):
                world.grow(keep=2 if at % 4 == 0 else 8)
            disk = FaultyDisk(OsDisk(), fault, at)
            try:
                world.turn(Webhook(LocalBlob(world.builder.path, disk), "reach", receiver.sink))
            except (Crash, VernierError):
                disk.end()
            done = False
            while not done:
                with contextlib.suppress(VernierError):
                    world.turn(Webhook(LocalBlob(world.builder.path), "reach", receiver.sink))
                    done = True
            assert receiver.changes == world.changes
        assert receiver.requests > len(receiver.bodies)
    finally:
        receiver.close()


@pytest.mark.parametrize("seed", range(2))
def test_an_address_gets_other_ids_when_the_changes_are_gone(
    world: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_target, "MESSAGE_UPDATES", 2)
    chance, failing = random.Random(seed), [True]
    receiver = Receiver(lambda number: failing[0] and chance.random() < 0.4)
    histories = set()
    try:
        for at in range(16):
            about = {"keep": 2, "since": world.builder.frontier - 5, "merge": True}
            world.grow(**(about if at < 4 or chance.random() < 0.4 else {"keep": 8}))
            failing[0] = at % 5 != 4 and at < 15
            for _ in range(1 if failing[0] else 2):
                with contextlib.suppress(TargetFailed):
                    world.turn(Webhook(LocalBlob(world.builder.path), "reach", receiver.sink))
            if not failing[0]:
                assert receiver.rows == world.model.rows(world.builder.frontier)
                histories.add(json.loads(list(receiver.bodies.values())[-1]).get("history", 0))
        assert len(histories) > 1
    finally:
        receiver.close()


def test_a_view_that_is_made_anew_before_its_first_request_is_answered(world: World) -> None:
    refuse = [True]
    receiver = Receiver(lambda number: refuse[0])
    try:
        world.grow()
        with pytest.raises(TargetFailed, match="answered 503 to message reach:"):
            world.turn(Webhook(LocalBlob(world.builder.path), "reach", receiver.sink))
        # The program redefines the view meanwhile.
        file = world.builder.path / "sinks" / "reach.json"
        sending = json.loads(file.read_bytes())
        assert sending["meaning"]
        file.write_bytes(json.dumps(sending | {"meaning": "another"}).encode())
        for _ in range(2):
            with pytest.raises(TargetFailed):
                world.turn(Webhook(LocalBlob(world.builder.path), "reach", receiver.sink))
        refuse[0] = False
        world.turn(Webhook(LocalBlob(world.builder.path), "reach", receiver.sink))
        assert receiver.rows == world.model.rows(world.builder.frontier)
        assert [json.loads(body).get("history", 0) for body in receiver.bodies.values()] == [0, 1, 2, 3]
    finally:
        receiver.close()


def in_delta(path: Path) -> Counter[Any]:
    """What a reader of the newest version sees."""
    found: Counter[Any] = Counter()
    for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist():
        found[(row["node"], row["n"]), row["_time"]] += row["_diff"]
    return found


def test_delta_has_each_change_once_with_its_position(world: World, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    world.grow()
    world.turn(Delta(path, "test.reach"))
    history = History(StateDirectory(world.builder.path))
    history.poll()
    stale = world.channel(Delta(path, "test.reach"))
    stale.target.positions()
    for _ in range(3):
        world.grow()
        world.turn(Delta(path, "test.reach"))
        assert in_delta(tmp_path / "table") == world.changes
    # A writer that has not noticed the others cannot add what they have added.
    history.poll()
    with pytest.raises(VernierError):
        stale.turn(history)
    world.grow()
    history.poll()
    stale.turn(history)
    assert in_delta(tmp_path / "table") == world.changes
    for _ in range(6):
        world.grow(keep=2, since=world.builder.frontier - 5, merge=True)
    channel = world.turn(Delta(path, "test.reach"))
    assert not channel.target.problems
    total: Counter[Any] = Counter()
    for (row, _), diff in in_delta(tmp_path / "table").items():
        total[row] += diff
    assert {row: n for row, n in total.items() if n} == world.model.rows(world.builder.frontier)


def test_the_publisher_goes_on_with_the_targets_that_answer(world: World, tmp_path: Path) -> None:
    receiver = Receiver(lambda number: True)
    address = receiver.sink.url
    receiver.close()
    flags = {
        "state.path": str(world.builder.path), "publish.views": "none",
        "sinks.lake.view": "reach", "sinks.lake.to": "parquet", "sinks.lake.path": str(tmp_path / "lake"),
        "sinks.reach.to": "sql", "sinks.reach.url": f"sqlite:///{tmp_path}/views.db",
        "sinks.calls.view": "reach", "sinks.calls.to": "webhook", "sinks.calls.url": address,
        "sinks.gone.to": "sql", "sinks.gone.url": "sqlite://",
        "sinks.odd.view": "reach", "sinks.odd.to": "sql", "sinks.odd.url": "nothing://known",
        "sinks.lost.view": "reach", "sinks.lost.to": "webhook", "sinks.lost.url_file": str(tmp_path / "lost"),
    }  # fmt: skip
    given = load(None, flags, {}).settings
    assert given.publishes
    made = Publisher(given, StateDirectory(world.builder.path))
    for _ in range(3):
        world.grow()
        with pytest.raises(TargetFailed, match="Connection refused"):
            made.turn()
    made.close()
    assert in_parquet(tmp_path / "lake") == world.changes
    assert in_table(tmp_path / "views.db") == world.model.rows(world.builder.frontier)
    found = publisher.read(StateDirectory(world.builder.path).blob)
    assert found is not None
    # The driver keeps the epochs that one of them still lacks.
    assert (found.epoch, found.problem) == (0, None)
    assert "Connection refused" in str(found.sinks["calls"].problem)
    assert (found.sinks["calls"].topic, found.sinks["calls"].frontier) == (address, None)
    assert found.sinks["gone"].problem == "no program has a view gone"
    assert "nothing" in str(found.sinks["odd"].problem)
    assert "No such file" in str(found.sinks["lost"].problem)
    assert (found.sinks["lake"].view, found.sinks["lake"].format, found.sinks["lake"].problem) == (
        "reach",
        "parquet",
        None,
    )
    assert found.sinks["reach"].frontier is not None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"sinks.reach.to": "parquet"}, "a sink to parquet needs a path"),
        ({"sinks.reach.to": "sql"}, "a sink to sql needs a url, or a url_file"),
        (
            {"sinks.reach.to": "webhook", "sinks.reach.url": "x", "sinks.reach.url_file": "y"},
            "needs a url, or a url_file",
        ),
        ({"sinks.reach.to": "sqlite"}, "sinks.reach.to"),
    ],
)
def test_sinks_need_a_place(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSettings, match=said):
        load(None, flags, {})
