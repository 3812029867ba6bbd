"""The publisher sends every change once: whatever fails, whichever process dies, and however far behind it is."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from tests.ingest.log import Record, Service
from tests.sidecar.builder import Change, StateBuilder, ViewModel, row_type
from tests.sinks.topic import Breaking, changes, committed, header, publish, settings
from vernier.service.errors import PublisherFenced
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.sinks.audit import audit_topics
from vernier.service.sinks.publisher import Publisher
from vernier.service.status import publisher
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME

pytestmark = pytest.mark.broker
REACH = {"reach": (row_type(node="Int64"), ["node"])}
PATIENCE = 60


class Named(StateBuilder):
    """A state of an app of its own, so that tests share a broker."""

    model: ViewModel

    def grow(self, chance: random.Random, **about: Any) -> None:
        """Commit an epoch of some changes."""
        lower = max(self.frontier, 0)
        own: list[Change] = [
            ((chance.randrange(5),), lower + chance.randrange(10), chance.choice([1, 1, -1])) for _ in range(6)
        ]
        self.model.changes += own
        self.commit(lower + 10, {"reach": own}, **about)

    def truth(self) -> Counter[Any]:
        """All changes that there ever were."""
        return Counter({(row, at): diff for row, at, diff in self.model.between(MIN_TIME, 1 << 62)})


def state(path: Path, app: str, **about: Any) -> Named:
    """A state of an app."""
    made = Named(path, about.pop("views", REACH), app=app, **about)
    made.model = ViewModel()
    return made


def said(path: Path) -> publisher.PublisherStatus:
    """What the publisher tells of itself."""
    found = publisher.read(StateDirectory(path).blob)
    assert found is not None
    return found


@pytest.mark.slow
def test_all_changes_once_with_a_broken_producer_at_every_call(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chance, app = random.Random(7), "broken"
    builder = state(tmp_path / "state", app)
    given = settings(broker, builder.path)
    builder.grow(chance)
    assert publish(given) > 0
    at, after, faults = 1, False, 0
    while True:
        builder.grow(chance)
        breaking = Breaking(at, after)
        try:
            publish(given, breaking)
            if breaking.calls < at:
                break  # there was no such call
            raise AssertionError("the fault was swallowed")
        except KafkaTimeoutError:
            faults += 1
        finally:
            publish(given)
            breaking.bury()
        at, after = (at, True) if not after else (at + 1, False)
    builder.close()
    assert faults > 10
    records = committed(broker.bootstrap, f"{app}.reach")
    assert changes(records) == builder.truth()
    identities = [header(record, "message-id") for record in records]
    assert len(set(identities)) == len(identities)
    # What was tried before, and thrown away, is what was sent again: one identity, one content.
    tried = committed(broker.bootstrap, f"{app}.reach", "read_uncommitted")
    assert len(tried) > len(records)
    assert len({(header(record, "message-id"), record.value) for record in tried}) == len(identities)
    sink = said(builder.path).sinks["reach"]
    assert sink.frontier == builder.frontier
    assert sum(sink.messages.values()) == len(records)


def test_another_service_reads_the_topic_time_by_time(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chance, topic = random.Random(12), "read.reach"
    builder = state(tmp_path / "state", "read")
    given = settings(broker, builder.path, **{"sinks.reach.partitions": 2})
    config = SourceConfig(topic, clock="event", idle_timeout_ms=None)
    ingestion = Ingestion({"reach": REACH["reach"][0]}, IngestionConfig({"reach": config}, partitions={topic: 2}))
    reader, read = Service(ingestion, workers=2), 0
    for _ in range(6):
        builder.grow(chance)
        publish(given)
        records = committed(broker.bootstrap, topic)
        rows = [Record(topic, one.partition, one.offset, one.timestamp, one.value, one.key) for one in records]
        # All of them once more: what has been read is known by its offset.
        reader.epoch(rows, chance)
        assert len(rows) > read
        read = len(rows)
    reader.epoch([], chance)
    builder.close()
    assert reader.letters == []
    assert reader.frontiers[-1] >= builder.frontier - 10
    until = reader.frontiers[-1]
    found = Counter({((row[0],), at): diff for (_, row, at, diff), n in reader.entered.items() for _ in range(n)})
    assert found == Counter({entry: diff for entry, diff in builder.truth().items() if entry[1] < until})


def test_a_newer_publisher_fences_an_older_one(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chance = random.Random(8)
    builder = state(tmp_path / "state", "twins")
    given = settings(broker, builder.path)
    builder.grow(chance)
    old, new = (Publisher(given, StateDirectory(given.state.place)) for _ in range(2))
    try:
        assert old.turn() > 0
        builder.grow(chance)
        assert new.turn() > 0
        builder.grow(chance)
        with pytest.raises(PublisherFenced, match="another publisher of app twins has taken over"):
            old.turn()
        assert new.turn() > 0
    finally:
        old.close()
        new.close()
        builder.close()
    assert changes(committed(broker.bootstrap, "twins.reach")) == builder.truth()


def test_killed_for_good_again_and_again(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chance, app = random.Random(9), "killed"
    builder = state(tmp_path / "state", app)
    builder.grow(chance)
    flags = [f"kafka.bootstrap={broker.bootstrap}", f"state.path={builder.path}", "publish.commit_ms=1"]
    command = [sys.executable, "-m", "vernier.service.sinks", *(word for flag in flags for word in ("--set", flag))]
    blob = StateDirectory(builder.path).blob

    def run(until: Any) -> None:
        process = subprocess.Popen(command)
        try:
            deadline = time.monotonic() + PATIENCE
            while not until():
                assert process.poll() is None
                assert time.monotonic() < deadline
                threading.Event().wait(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    for _ in range(3):
        target = builder.epoch + chance.randrange(3, 8)

        def grown(target: int = target) -> bool:
            builder.grow(chance, keep=100)
            found = publisher.read(blob)
            return found is not None and builder.epoch >= target and found.epoch > 0

        run(grown)
    publish(settings(broker, builder.path))
    builder.close()
    assert changes(committed(broker.bootstrap, f"{app}.reach")) == builder.truth()


def test_history_that_is_gone(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chance, app = random.Random(10), "behind"
    builder = state(tmp_path / "state", app)
    given = settings(broker, builder.path)
    builder.grow(chance)
    publish(given)
    # The epochs are collected, but the view still has all changes.
    for _ in range(6):
        builder.grow(chance, keep=2)
    publish(given)
    records = committed(broker.bootstrap, f"{app}.reach")
    assert changes(records) == builder.truth()
    assert {header(record, "kind") for record in records} == {"updates", "progress"}
    # Now it has folded some of them: the rows as of its first time go out instead of what was there.
    sent, reached = len(records), builder.frontier
    for _ in range(6):
        builder.grow(chance, keep=2, since=builder.frontier - 5, merge=True)
    publish(given)
    builder.close()
    since = builder.since["reach"]
    fresh = committed(broker.bootstrap, f"{app}.reach")[sent:]
    (snapshot,) = [record for record in fresh if header(record, "kind") == "snapshot"]
    assert header(snapshot, "message-id") == f"reach:{reached}:{since + 1}:0:0"
    assert b'"restarts":true' in snapshot.value
    rows = {row: diff for (row, _), diff in changes([snapshot]).items()}
    assert rows == builder.model.rows(since)
    later = Counter({(row, at): diff for row, at, diff in builder.model.between(since + 1, 1 << 62)})
    assert changes([record for record in fresh if header(record, "kind") == "updates"]) == later


@pytest.mark.parametrize("form", ["upsert", "debezium"])
def test_a_snapshot_that_replaces_a_topic_deletes_the_keys_that_are_gone(
    broker: EmbeddedBroker, tmp_path: Path, form: str
) -> None:
    app = f"replaced-{form}"
    builder = state(tmp_path / "state", app, views={"places": (row_type(node="Int64", name="String"), ["node"])})
    given = settings(broker, builder.path, **{"sinks.places.format": form, "sinks.places.partitions": 2})
    builder.commit(10, {"places": [((node, "a"), 1, 1) for node in range(6)]})
    publish(given)
    # There is no publisher while keys 0 and 1 go, key 2 changes and key 7 comes, and that is folded.
    gone: list[Change] = [
        ((0, "a"), 11, -1),
        ((1, "a"), 12, -1),
        ((2, "a"), 13, -1),
        ((2, "b"), 13, 1),
        ((7, "c"), 13, 1),
    ]
    builder.commit(20, {"places": gone})
    for _ in range(4):
        builder.commit(builder.frontier + 10, keep=2, since=builder.frontier - 2, merge=True)
    builder.commit(builder.frontier + 10, {"places": [((3, "a"), builder.frontier + 1, -1)]}, keep=2)
    publish(given)
    builder.close()
    newest: dict[int, str] = {}
    for record in committed(broker.bootstrap, f"{app}.places"):
        if header(record, "kind") != "progress":
            node, value = json.loads(record.key)["node"], record.value and json.loads(record.value)
            row = value["after"] if value and form == "debezium" else value
            newest.pop(node, None)
            if row:
                newest[node] = row["name"]
    assert newest == {2: "b", 4: "a", 5: "a", 7: "c"}
    if form == "upsert":
        (audit,) = audit_topics(given.kafka_client(), StateDirectory(builder.path), ["places"])
        assert audit.equal, audit.to_json()


def test_a_first_start_on_an_old_state_begins_with_a_snapshot(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chance, app = random.Random(11), "old"
    builder = state(tmp_path / "state", app)
    for _ in range(6):
        builder.grow(chance, keep=2, since=builder.frontier - 5, merge=True)
    publish(settings(broker, builder.path))
    builder.close()
    records = committed(broker.bootstrap, f"{app}.reach")
    assert header(records[0], "kind") == "snapshot"
    assert b"restarts" not in records[0].value
    at_end: Counter[Any] = Counter()
    for (row, _), diff in changes(records).items():
        at_end[row] += diff
    assert {row: n for row, n in at_end.items() if n} == builder.model.rows(builder.frontier)


def test_which_views_go_where(broker: EmbeddedBroker, tmp_path: Path) -> None:
    views = {**REACH, "pairs": (row_type(a="Int64", b="Int64"), ["a"])}
    builder = state(tmp_path / "state", "which", views=views)
    builder.commit(10, {"reach": [((1,), 1, 1)], "pairs": [((1, 2), 2, 1), ((1, 3), 2, 1)]})
    given = settings(
        broker, builder.path,
        **{"publish.views": "listed", "sinks.reach.topic": "elsewhere", "sinks.reach.partitions": 2,
           "sinks.pairs.format": "upsert", "sinks.nothing.format": "upsert"},
    )  # fmt: skip
    assert publish(given) == 1 + 2  # an update, and progress for each partition
    builder.close()
    assert {record.partition for record in committed(broker.bootstrap, "elsewhere")} == {0, 1}
    found = said(builder.path)
    assert found.epoch == 1
    assert "several rows of the key" in (found.sinks["pairs"].problem or "")
    assert found.sinks["nothing"].problem == "no program has a view nothing"
    assert found.sinks["reach"].problem is None
    assert found.sinks["reach"].messages == {"updates": 1, "progress": 2}
