"""One time in the future: it is refused at ingestion, it is never called ready, and there is a way back."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

import vernier as vn
from tests.crash.machines import WHERE
from tests.crash.test_change import World
from tests.ingest.log import EDGES, Record, batch
from tests.service.conftest import service  # noqa: F401
from tests.service.driven import Service
from tests.sidecar.builder import StateBuilder, row_type
from vernier.service.config.settings import BadSettings, load
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.ingestion import Decoded, Ingestion
from vernier.service.ingest.rejects import Reason
from vernier.service.ingest.watermarks import NS_PER_MS
from vernier.service.sidecar.options import Options
from vernier.service.sidecar.readiness import laggards
from vernier.service.sinks.history import History
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.state.manifest import sources_of
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import CLOSED, MIN_TIME

HOUR = 3_600_000_000_000
NOW_MS = 1_800_000_000_000
NOW = NOW_MS * NS_PER_MS


def ingestion(clock: str = "event", form: str = "vernier", ahead: int | None = HOUR) -> Ingestion:
    config = SourceConfig("edges", format=form, clock=clock, max_ahead_ns=ahead)  # type: ignore[arg-type]
    return Ingestion({"edges": EDGES}, IngestionConfig({"edges": config}))


def decode(messages: list[object], made: Ingestion, ms: int = NOW_MS, state: dict[str, Any] | None = None) -> Decoded:
    records = [Record("edges", 0, at, ms, json.dumps(one).encode()) for at, one in enumerate(messages)]
    return made.decode([batch(records)], {}, state or {}, {})


def update(*times: int) -> object:
    return {"v": 1, "t": str(min(times)), "u": [[[1, 2], str(time), 1] for time in times]}


def promise(upper: int | None, counts: list[int] | None = None) -> object:
    told: dict[str, Any] = {"lower": ["0"], "upper": [] if upper is None else [str(upper)]}
    if counts is not None:
        told["counts"] = [[str(at), 1] for at in counts]
    return {"v": 1, "p": told}


def refused(decoded: Decoded) -> dict[int, Reason]:
    (one,) = decoded.batches
    return {refusal.message: refusal.reason for refusal in one.refused}


def test_times_too_far_ahead_of_the_broker_are_refused_with_their_whole_message() -> None:
    sent = [update(NOW + HOUR), update(NOW + HOUR + 1), update(NOW, NOW + 2 * HOUR), update(1), update(CLOSED - 1)]
    decoded = decode(sent, ingestion())
    assert refused(decoded) == dict.fromkeys((1, 2, 4), "future")
    (one,) = decoded.batches
    assert one.parsed is not None
    assert one.parsed.message.tolist() == [0, 3]
    assert one.refused[1].detail == (
        f"an update is at {NOW + 2 * HOUR}, more than max_ahead, 3600 s, ahead of the broker's time "
        "2027-01-15T08:00:00.000000000Z"
    )
    assert one.refused[1].source == "edges"


def test_promises_are_held_to_the_same() -> None:
    far = NOW + HOUR + 1
    sent = [promise(NOW + HOUR), promise(far), promise(None), promise(far, [NOW])]
    decoded = decode(sent, ingestion())
    assert refused(decoded) == dict.fromkeys((1, 3), "future")
    (one,) = decoded.batches
    assert one.parsed is not None
    # That nothing follows at all is no mistake of a clock.
    assert [entry.upper for entry in one.parsed.progress] == [NOW + HOUR, CLOSED]
    resolved = decode([{"resolved": str(far)}, {"data": [1, 2], "time": str(far)}], ingestion(form="json"))
    assert refused(resolved) == {0: "future", 1: "future"}


def test_what_has_no_such_limit_is_left_alone() -> None:
    sent = [update(CLOSED - 1), promise(CLOSED - 1)]
    assert refused(decode(sent, ingestion(ahead=None))) == {}
    assert refused(decode(sent, ingestion(clock="arrival"))) == {}
    # A record that has no broker's time has nothing to be held against.
    assert refused(decode(sent, ingestion(), ms=0)) == {}


def test_the_setting_is_an_hour_unless_it_is_said() -> None:
    app = vn.App("a")

    class Row(vn.Schema):
        n: vn.Int64

    app.source("s", Row)
    for given, wanted in (
        ({}, HOUR),
        ({"sources.s.max_ahead": "5m"}, HOUR // 12),
        ({"sources.s.max_ahead": "null"}, None),
    ):
        assert load(None, given, {}).settings.ingestion(app, {}).sources["s"].max_ahead_ns == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("5000", 5_000), ("2027-01-15T08:00:00.000000001Z", NOW + 1), ("2027-01-15T09:00:00+01:00", NOW)],
)
def test_what_is_to_be_discarded_is_said_as_any_time(tmp_path: Path, text: str, wanted: int) -> None:
    assert load(None, {"state.discard_after": text}, {}).settings.state.discard_after == str(wanted)
    file = tmp_path / "settings.yaml"
    file.write_text(f"state: {{discard_after: {text}}}")
    found = load(file, {}, {}).settings.state.discard_after
    # YAML's own dates have microseconds.
    assert found == str(wanted - wanted % 1_000 if "T" in text else wanted)
    with pytest.raises(BadSettings, match=r"state\.discard_after"):
        load(None, {"state.discard_after": "tomorrow"}, {})


def test_what_is_discarded_is_what_was_there() -> None:
    discard = {"discard": {"after": 50, "until": {"edges": {"0": 3}}}}
    sent = [update(49), update(50), promise(51), update(60), promise(70), promise(50)]
    decoded = decode(sent, ingestion(), state=discard)
    assert refused(decoded) == {1: "future", 2: "future"}
    (one,) = decoded.batches
    assert "an operator discarded everything" in one.refused[0].detail
    # With a clock of arrival it is the broker's time that counts.
    arrived = decode([update(49)] * 4, ingestion(clock="arrival"), ms=1, state=discard)
    assert refused(arrived) == dict.fromkeys((0, 1, 2), "future")
    step = ingestion().advance(discard, [decoded.facts])
    assert step.state["discard"] == {"after": 50, "until": {"edges": {"0": 3}}}


FAR = 10**12


@pytest.mark.parametrize("workers", [1, 2])
def test_the_way_back_is_a_service_without_what_came_too_early(workers: int) -> None:
    world = World()
    sim = world.start("s", workers)
    world.send(20)
    reader = Reader(WHERE, blob=world.machine.process().blob)
    history = History(StateDirectory(WHERE, world.machine.process().blob))
    reader.poll()
    history.poll()
    before = world.rows("sums", 19)
    for partition in (0, 1):
        world.log.progress(partition, FAR)
    world.read()
    world.send(40)
    # Everything is late from here on, for ever.
    reader.poll()
    history.poll()
    assert reader.snapshot is not None
    assert reader.snapshot.frontier == FAR
    assert len(sim.log.letters) == 2
    ends = {"pairs": {at: len(values) for at, values in enumerate(world.log.partitions)}}
    known = history.newest
    assert known is not None
    (sent,) = history.steps("sums", None, None, 1_000_000)[-1:]
    assert sent.upper == FAR

    sim = world.start("s", workers)
    sim.epochs.discard(50, lambda: ends)
    assert sim.epochs.anew
    sim.requery()
    world.read()
    assert world.rows("sums", 19) == before
    assert sim.epochs.newest is not None
    assert sim.epochs.newest.upper == 40
    # What was late is in; what promised too much is a dead letter, once.
    late = list(sim.log.letters)
    reader.poll()
    assert reader.failure is None
    assert reader.snapshot.frontier == 40
    found = reader.snapshot.views["sums"].rows_as_of(39).flat().rows.tolist()
    assert sorted(found) == world.rows("sums", 39)
    # Output begins again with a snapshot as soon as that time has come, and not in a thousand seconds.
    history.poll()
    assert history.steps("sums", FAR, sent.view.meaning, 1_000_000) == []
    world.send(60)
    history.poll()
    steps = history.steps("sums", FAR, sent.view.meaning, 1_000_000)
    assert (steps[0].kind, steps[0].restarts) == ("snapshot", True)
    assert (steps[0].lower, steps[-1].upper) == (50, 60)
    rows = {tuple(row[:-2]) for step in steps[:1] for row in step.changes.data.tolist()}
    assert {row[0] for row in rows} == {row[0] for row in world.rows("sums", 50)}

    # The same command again changes nothing: it is done.
    sim = world.start("s", workers)
    sim.epochs.discard(50, lambda: ends)
    assert not sim.epochs.anew
    assert sim.epochs.start.base != ""
    assert sim.log.letters == late
    world.check()


def test_a_state_that_is_not_past_that_time_is_kept() -> None:
    """As after a restore from a backup: what follows is discarded, and partitions that promised too much step back."""
    world = World()
    sim = world.start("s")
    world.send(20)
    world.log.progress(0, FAR)
    world.read()
    assert sim.epochs.newest is not None
    assert sim.epochs.newest.upper == 20
    ends = {"pairs": {at: len(values) for at, values in enumerate(world.log.partitions)}}
    sim = world.start("s")
    sim.epochs.discard(30, lambda: ends)
    assert not sim.epochs.anew
    clocks = sim.epochs.start.ingestion["topics"]["pairs"]
    assert [clock["frontier"] for clock in clocks.values()] == [30, 20]
    world.send(40)
    assert sim.epochs.newest is not None
    assert sim.epochs.newest.upper == 40
    assert sim.log.letters == []
    world.check()


def test_a_frontier_ahead_of_the_clock_is_never_ready(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, {"counts": (row_type(n="Int64"), ["n"])})
    options, reader = Options(state=tmp_path), Reader(tmp_path)
    now, second = time.time_ns(), 10**9
    for upper, ready in ((now - HOUR, True), (now + 5 * second, True), (now + 60 * second, False), (CLOSED, True)):
        builder.sources = sources_of({"edges": {"frontier": str(upper), "held": 0}})
        builder.commit(upper, {}, committed_ns=now)
        reader.poll()
        assert reader.snapshot is not None
        found = laggards(reader.snapshot, None, None, options, now)
        assert (found == []) == ready, found
        if not ready:
            assert found[0]["laggard"] == "source edges"
            assert "is 60 s ahead of the clock" in found[0]["why"]
            assert "--discard-after" in found[0]["why"]
    reader.close()
    builder.close()


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_live_service_comes_back(service: Service) -> None:  # noqa: F811
    service.start()
    service.final(service.send((1, 10), (2, 20)))
    for partition in (0, 1):
        service.raw(json.dumps(promise(10**15)).encode(), partition)
    service.wait(lambda: service.frontier() == 10**15)
    # Late, each of them, and in the dead letters.
    reached = service.send((1, 5), (3, 7))

    def refused_late() -> bool:
        service.reader.poll()
        assert service.reader.snapshot is not None
        return ("pairs", "late") in service.reader.snapshot.stats.numbers.get("source_errors_total", {})

    service.wait(refused_late)
    assert service.stop() == 0
    service.start(state__discard_after=5_000)
    service.wait(lambda: service.frontier() == reached)
    service.final(reached)
    service.final(service.send((1, 1)))
    assert service.stop() == 0
    epoch = service.epoch()
    # It may stay on the command line.
    service.start(state__discard_after=5_000)
    service.wait(lambda: service.epoch() > epoch)
    service.final(service.send((4, 4)))
    assert MIN_TIME < service.frontier() < 5_000
