"""A source's columns change on the simulated service: traces, queues and the stash go on; so do messages of before."""

from __future__ import annotations

import json

import pytest

import vernier as vn
from tests.crash.simservice import TOPIC, SimService
from tests.crash.test_change import World
from vernier.service.errors import ProgramChanged


class Before(vn.Schema):
    key: vn.Int64
    value: vn.Int64


class After(vn.Schema):
    """A nullable column in the middle, one with a default at the end, one with another name."""

    key: vn.Int64
    note: vn.Int64 | None
    amount: vn.Int64 = vn.column(was="value")
    rate: vn.Int64 = vn.column(default=4)


class Again(vn.Schema):
    """Back to the columns of before."""

    key: vn.Int64
    value: vn.Int64 = vn.column(was="amount")


class Texts(vn.Schema):
    key: vn.String
    value: vn.Int64


def app_of(schema: type[vn.Schema]) -> vn.App:
    app = vn.App("sim", retain="100ns")
    pairs = app.source("pairs", schema)
    value = next(name for name in pairs.columns if name in ("value", "amount"))
    app.view("counts", pairs.group_by("key").agg(n=vn.count()), key=["key"])
    app.view("late", pairs.select("key").delay("9ns"), key=["key"])
    app.view("sums", pairs.group_by("key").agg(total=vn.sum(value)), key=["key"])
    app.view("pairs", pairs, key=["key"])
    return app


Sent = list[tuple[int, int, int | None, int]]
"""Key, value, note, time."""


class Sender:
    """Sends rows in the columns of a version of the producer."""

    def __init__(self, world: World) -> None:
        self.world, self.sent = world, list[tuple[int, int, int | None, int]]()

    def send(self, version: int, partition: int, *rows: tuple[int, int, int | None, int]) -> None:
        for key, value, note, at in rows:
            given = [key, value] if version == 1 else [key, note, value, 4]
            message = {"v": 1, "t": str(at), "u": [[given, str(at), 1]]}
            self.world.log.partitions[partition].append(json.dumps(message).encode())
            self.sent.append((key, value, note if version > 1 else None, at))

    def promise(self, upper: int) -> None:
        for partition in (0, 1):
            self.world.log.progress(partition, upper)
        for _ in range(8):
            assert self.world.service is not None
            self.world.service.epoch([3, 3])

    def check(self, time: int, whole: bool = True) -> None:
        """All views as of a time are what was sent until then. whole: the present columns have notes."""
        known = [one for one in self.sent if one[3] <= time]
        keys = sorted({key for key, *_ in known})
        rows = self.world.rows
        assert rows("counts", time) == [[key, sum(one[0] == key for one in known)] for key in keys]
        assert rows("sums", time) == [[key, sum(one[1] for one in known if one[0] == key)] for key in keys]
        assert rows("late", time) == sorted([key] for key in {one[0] for one in self.sent if one[3] + 9 <= time})
        noted = [[key, int(note is not None), note or 0, value, 4] for key, value, note, _ in known]
        assert rows("pairs", time) == sorted(noted if whole else [[key, value] for key, value, _, _ in known])


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_columns_change_in_place_and_back_again(workers: int, killed: bool) -> None:
    world = World()

    def start(schema: type[vn.Schema]) -> None:
        if world.service is not None:
            world.service.epochs.close()
            world.service.end()
        world.starts += 1
        world.service = SimService(world.machine, world.log, workers, f"s{world.starts}", app=app_of(schema))
        if killed and world.starts > 1:
            # The first attempt of the first epoch in other columns fails with one of its workers.
            _, process = world.service.processes[0]
            process.faults.fail_later(process.faults._fault, 1)

    start(Before)
    sender = Sender(world)
    sender.send(1, 0, (1, 10, None, 5), (2, 20, None, 14), (1, 7, None, 33))  # one waits for its time
    sender.send(1, 1, (1, 30, None, 8))
    sender.promise(20)
    sender.check(19, whole=False)

    start(After)
    sender.send(2, 0, (2, 1, 5, 21), (3, 2, None, 22))
    sender.send(1, 1, (3, 3, None, 23), (2, 9, None, 36))
    sender.promise(30)
    for time in (7, 14, 19, 22, 29):
        sender.check(time)
    sender.send(2, 1, (9, 9, 9, 31))
    sender.promise(40)
    for time in (12, 31, 33, 39):
        sender.check(time)

    start(Again)
    sender.send(1, 0, (4, 4, None, 41))
    sender.send(2, 0, (4, 5, 6, 42))
    sender.promise(50)
    for time in (14, 33, 44, 49):
        sender.check(time, whole=False)
    assert world.log.letters == []
    assert world.service is not None
    assert world.service.epochs.newest is not None
    entry = world.service.epochs.newest.sources[TOPIC]
    assert entry.columns == Again.row_type.to_json()
    assert len(entry.earlier) == 1
    world.check()


def test_what_rows_cannot_follow_is_refused_with_the_way_out() -> None:
    world = World()
    world.service = SimService(world.machine, world.log, 1, "a", app=app_of(Before))
    sender = Sender(world)
    sender.send(1, 0, (1, 10, None, 5))
    sender.promise(20)
    world.service.epochs.close()
    with pytest.raises(ProgramChanged) as refused:
        SimService(world.machine, world.log, 1, "b", app=app_of(Texts))
    said = str(refused.value)
    assert "column key of source pairs was Int64 and is String" in said
    assert "give the new column another name" in said
    assert "--rebuild" in said
