"""A changed program on the simulated service: what is equal goes on, what needs more says so, and can be rebuilt."""

import pytest

import vernier as vn
from tests.crash.machines import WHERE, DiskMachine
from tests.crash.simservice import Log, Pair, SimService
from vernier.service.errors import ProgramChanged
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.state.audit import audit
from vernier.storage.state.state import StateDirectory

SENT = [(key % 5, key % 3, key, 1) for key in range(1, 60)]


def app_of(views: str) -> vn.App:
    """An app with some of: sums by key, the largest value of a key, what is three nanoseconds late."""
    app = vn.App("sim", retain="100ns")
    pairs = app.source("pairs", Pair)
    if "s" in views:
        app.view("sums", pairs.group_by("key").agg(total=vn.sum("value"), n=vn.count()), key=["key"])
    if "p" in views:
        app.view("pairs", pairs, key=["key", "value"])
    if "l" in views:
        app.view("late", pairs.delay("3ns"), key=["key", "value"])
    if "m" in views:
        app.view("most", pairs.group_by("key").agg(most=vn.max("value")), key=["key"])
    return app


def sums(until: int) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for key, value, when, _ in SENT:
        if when < until:
            total, count = found.get(key, (0, 0))
            found[key] = total + value, count + 1
    return found


class World:
    """A machine and a topic; services on them, one after the other."""

    def __init__(self) -> None:
        self.machine, self.log = DiskMachine(), Log()
        self.starts = 0
        self.sent = 0
        self.service: SimService | None = None

    def start(self, views: str, workers: int = 2, **about: bool) -> SimService:
        if self.service is not None:
            self.service.epochs.close()
            self.service.end()
        self.starts += 1
        self.service = SimService(self.machine, self.log, workers, f"s{self.starts}", app=app_of(views), **about)
        return self.service

    def send(self, until: int) -> None:
        """All that comes before a time, in both partitions, and a promise; one epoch after another reads it."""
        assert self.service is not None
        fresh = [update for update in SENT if self.sent <= update[2] < until]
        self.sent = until
        for at in (0, 1):
            if fresh[at::2]:
                self.log.updates(at, fresh[at::2])
            self.log.progress(at, until)
        self.read()

    def read(self) -> None:
        assert self.service is not None
        for _ in range(6):
            self.service.epoch([3, 3])

    def rows(self, view: str, time: int) -> list[list[int]]:
        reader = Reader(WHERE, blob=self.machine.process().blob)
        reader.poll()
        assert reader.failure is None
        assert reader.snapshot is not None
        found: list[list[int]] = reader.snapshot.views[view].rows_as_of(time).flat().rows.tolist()
        reader.close()
        return sorted(found)

    def check(self) -> None:
        assert audit(StateDirectory(WHERE, self.machine.process().blob)).problems == []


def test_views_come_and_go_with_other_numbers_of_workers() -> None:
    world = World()
    world.start("sp")
    world.send(20)
    # One leaves; its history is gone with it, the other's is not.
    world.start("s", workers=3)
    world.send(30)
    assert {row[0]: tuple(row[1:]) for row in world.rows("sums", 14)} == sums(15)
    world.check()


def test_collection_may_run_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vernier.service.coordinator.collector.GC_EVERY", 2)
    world = World()
    world.start("s", collect_beside=True)
    for until in range(5, 60, 5):
        world.send(until)
    assert world.service is not None
    world.service.epochs.close()
    left = StateDirectory(WHERE, world.machine.process().blob)
    newest = left.epochs()[-1]
    assert newest > 8
    assert left.epochs()[0] >= newest - 4
    world.check()


def test_what_needs_history_says_so_and_is_rebuilt() -> None:
    world = World()
    world.start("s")
    world.send(20)
    with pytest.raises(ProgramChanged) as refused:
        world.start("sl")
    said = str(refused.value)
    assert "\n" not in said
    assert said.startswith("the program has changed, and state /state cannot continue with it: ")
    assert said.endswith("revert the change, or read the topics again from their beginning with `vernier up --rebuild`")
    # The state is as it was.
    world.service = None
    first = world.start("s").epochs.start.epoch
    assert {row[0]: tuple(row[1:]) for row in world.rows("sums", 19)} == sums(20)

    service = world.start("sl", workers=1, rebuild=True)
    assert service.epochs.anew
    assert (service.epochs.start.epoch, service.epochs.start.base, service.epochs.start.offsets) == (first, "", {})
    world.read()
    assert not service.epochs.anew
    world.send(40)
    assert {row[0]: tuple(row[1:]) for row in world.rows("sums", 39)} == sums(40)
    late = sorted({(key, value) for key, value, when, _ in SENT if when + 3 <= 25})
    assert [tuple(row) for row in world.rows("late", 25)] == late
    world.check()

    # Once it has begun, the setting changes nothing any more.
    service = world.start("sl", rebuild=True)
    assert not service.epochs.anew
    world.send(50)
    assert {row[0]: tuple(row[1:]) for row in world.rows("sums", 14)} == sums(15)
    world.check()


def test_a_rebuild_that_crashes_begins_again() -> None:
    world = World()
    world.start("s")
    world.send(20)
    service = world.start("sl", rebuild=True)
    service.driver.faults.fail_later(service.driver.faults._fault, 1)
    with pytest.raises(BaseException):  # noqa: B017
        world.read()
    world.service = None
    service.end()
    service = world.start("sl", rebuild=True)
    assert service.epochs.anew
    world.read()
    assert {row[0]: tuple(row[1:]) for row in world.rows("sums", 19)} == sums(20)
    world.check()


def counts_of(until: int) -> list[list[int]]:
    """What the view `most` holds before a time."""
    most: dict[int, int] = {}
    for key, value, when, _ in SENT:
        if when < until:
            most[key] = max(value, most.get(key, value))
    return sorted([key, value] for key, value in most.items())


@pytest.mark.parametrize("killed", [None, 0, 1])
def test_a_change_is_filled_beside_the_epochs(killed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch commits, with the old views, until the new one is there; also when a worker dies meanwhile."""
    monkeypatch.setattr("vernier.service.cluster.filling.FIRST", 3)
    monkeypatch.setattr("vernier.service.cluster.filling.MOST", 3)
    monkeypatch.setattr("vernier.service.cluster.filling.LEAST", 1)
    world = World()
    service = world.start("sp")
    world.send(20)
    before = service.epochs.reached
    service.change_to(app_of("spm"))
    until, switched = 20, 0
    for turn in range(12):
        if turn == 3 and killed is not None:
            service.processes[killed] = service._worker()
        until += 2
        fresh = [update for update in SENT if world.sent <= update[2] < until]
        world.sent = until
        for at in (0, 1):
            if fresh[at::2]:
                world.log.updates(at, fresh[at::2])
            world.log.progress(at, until)
        service.epoch([3, 3])
        newest = service.epochs.newest
        assert newest is not None
        assert newest.epoch == before + turn + 1
        frontier = newest.upper
        assert {row[0]: tuple(row[1:]) for row in world.rows("sums", frontier - 1)} == sums(frontier)
        if "most" in newest.views:
            switched = switched or turn
            assert world.rows("most", frontier - 1) == counts_of(frontier)
    assert switched > (5 if killed is not None else 2)
    # The first rows of the old views are still there, and back to the old program nothing is lost.
    assert {row[0]: tuple(row[1:]) for row in world.rows("sums", 14)} == sums(15)
    service.change_to(app_of("sp"))
    for more in (50, 52, 54):
        world.send(more)
    assert service.epochs.newest is not None
    assert "most" not in service.epochs.newest.views
    assert {row[0]: tuple(row[1:]) for row in world.rows("sums", 14)} == sums(15)
    world.check()
