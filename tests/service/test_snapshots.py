"""Sources that begin with a snapshot: rows that Spark reads from files, then the messages of the topic."""

import json
import random
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.service.driven import PATIENCE, PROGRAM, Service
from vernier.service.kafka.topics import create_topics
from vernier.service.views.view import Compacted

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1200)]
AT = 1_000_000
"""The data time of the snapshots."""


def write_pairs(path: Path, count: int, keys: int, seed: int) -> Counter[int]:
    """Write pairs of a key and a value, in several files; returns the sums by key."""
    path.mkdir()
    chance, totals = random.Random(seed), Counter[int]()
    for number in range(5):
        rows = [(chance.randrange(keys), chance.randrange(-9, 10)) for _ in range(count // 5)]
        for key, value in rows:
            totals[key] += value
        table = pa.table({"value": pa.array([v for _, v in rows], pa.int32()), "key": [k for k, _ in rows]})
        pq.write_table(table, path / f"{number}.parquet", row_group_size=100)
    return totals


def test_a_source_begins_with_its_snapshot_and_follows_its_topic(service: Service) -> None:
    service.totals = write_pairs(service.folder / "pairs", 1_000, 50, 1)
    given = {"path": service.folder / "pairs", "format": "parquet", "time": AT}
    service.time = AT - 10
    # What the snapshot has already is sent too, and left out.
    before = Counter(service.totals)
    service.send(*[(key, 1) for key in range(10)])
    service.totals = before
    service.time = AT + 1
    service.send((1, 100))
    service.start(**{f"sources__pairs__snapshot__{key}": value for key, value in given.items()})
    service.final(service.time)
    snapshot = service.reader.snapshot
    assert snapshot is not None
    view = snapshot.views["sums"]
    assert view.since == AT
    rows = view.rows_as_of(AT).flat().rows.tolist()
    assert {key: total for key, total, _ in rows} == dict(service.totals - Counter({1: 100})) | {
        key: total - 100 * (key == 1) for key, total in service.totals.items()
    }
    service.final(service.send((2, 5), (60, 1)))
    assert service.stop() == 0


def test_a_snapshot_that_is_killed_twice_while_changes_go_on_is_taken_once(service: Service) -> None:
    """At ten times after it, answers equal a recomputation."""
    snapshot = write_pairs(service.folder / "pairs", 50_000, 500, 2)
    given = {"path": service.folder / "pairs", "format": "parquet", "time": AT, "piece_mb": 1}
    flags = {f"sources__pairs__snapshot__{key}": value for key, value in given.items()}
    chance, changes = random.Random(3), list[tuple[int, int, int]]()
    service.time = AT + 1

    def send() -> None:
        """A hundred changes, which go on while the snapshot enters."""
        pairs = [(chance.randrange(500), chance.randrange(-9, 10)) for _ in range(100)]
        changes.extend((service.time + number, *pair) for number, pair in enumerate(pairs))
        service.send(*pairs, partition=chance.randrange(2))

    for kill in (1, 2):
        service.start(**flags)
        service.wait(lambda: service.epoch() >= kill)  # noqa: B023
        send()
        assert service.process is not None
        family = psutil.Process(service.process.pid).children(recursive=True)
        service.process.kill()
        service.process.wait()
        psutil.wait_procs(family, PATIENCE)
        send()
    service.start(**flags)
    for _ in range(6):
        send()
    service.wait(lambda: service.frontier() >= service.time)
    found = service.reader.snapshot
    assert found is not None
    assert found.manifest.ingestion["snapshots"]["pairs"]["rows"] == 50_000
    view = found.views["sums"]
    for at in sorted({AT, service.time - 1, *chance.sample(range(AT, service.time), 8)}):
        totals = Counter(snapshot)
        for time, key, value in changes:
            if time <= at:
                totals[key] += value
        rows = view.rows_as_of(at).flat().rows.tolist()
        assert {key: total for key, total, _ in rows} == dict(totals), at
    with pytest.raises(Compacted):
        view.rows_as_of(AT - 1)
    # What it is read from has changed: what has entered stays, because all of it has.
    (service.folder / "pairs" / "0.parquet").unlink()
    assert service.stop() == 0
    service.start(**flags)
    service.totals = Counter({key: total for key, total, _ in view.rows_as_of(service.time - 1).flat().rows.tolist()})
    service.final(service.send((1, 1)))
    assert service.stop() == 0


WIDER = (
    PROGRAM
    + """
class Name(vn.Schema):
    key: vn.Int64
    name: vn.String

names = app.source("names", Name)
found = names.join(pairs.group_by("key").agg(total=vn.sum("value")), on="key")
app.view("named", found.select("key", "name", "total"), key=["key"])
"""
)


def test_a_rebuild_with_a_new_source_takes_its_snapshot_and_reads_the_other_topic_again(service: Service) -> None:
    service.start()
    service.final(service.send((1, 10), (2, 20)))
    assert service.stop() == 0
    (service.folder / "program.py").write_text(WIDER, "utf-8")
    names = pa.table({"key": [1, 2, 3], "name": ["ada", "bob", "a name that is longer than fifteen bytes"]})
    pq.write_table(names, service.folder / "names.parquet")
    topic = f"{service.topic}-names"
    create_topics(service.broker.bootstrap, {topic: 1})
    at = service.time + 5
    flags = {"path": service.folder / "names.parquet", "format": "parquet", "time": at}
    more = {"sources__names__topic": topic, "sources__names__clock": "event", "sources__names__format": "json"}
    more |= {f"sources__names__snapshot__{key}": str(value) for key, value in flags.items()}

    def named() -> dict[int, tuple[str, int]] | None:
        service.reader.poll()
        found = service.reader.snapshot
        if found is None or "named" not in found.views or found.frontier < service.time:
            return None
        view = found.views["named"]
        assert view.since >= at
        rows = view.rows_as_of(service.time - 1).flat().rows
        return {key: (name, total) for key, name, total in view.stored.decode_rows(rows, view.heap)}

    service.start(state__rebuild=True, **more)
    # Until the frontier is past the snapshot's time, no view is shown that depends on it.
    service.wait(lambda: service.reader.poll() and rows_taken(service) == 3)
    found = service.reader.snapshot
    assert found is not None
    assert "named" not in found.views
    service.time = at + 1
    service.producer.send(topic, value=b'{"resolved":"1000000000"}').get(60)
    service.send((3, 30), (1, 1))
    expected = {1: ("ada", 11), 2: ("bob", 20), 3: ("a name that is longer than fifteen bytes", 30)}
    assert service.wait(named) == expected
    service.final(service.time)
    assert service.stop() == 0


def rows_taken(service: Service) -> int:
    """How many rows of the new source's snapshot have entered."""
    found = service.reader.snapshot
    entry = None if found is None else found.manifest.sources.get("names")
    return 0 if entry is None or entry.snapshot is None else entry.snapshot.rows


def test_a_new_source_enters_beside_the_epochs_of_a_running_service(service: Service) -> None:
    """The changed program goes on from the state, without a rebuild. The old view's answers advance while the snapshot
    enters, also after a kill in the middle; the new view appears at one commit, with all rows and all later changes."""
    service.start(state__keep_sources=True)
    service.final(service.send((1, 10), (2, 20)))
    assert service.stop() == 0
    (service.folder / "program.py").write_text(WIDER, "utf-8")
    (service.folder / "names").mkdir()
    for number in range(12):
        keys = range(number, 12_000, 12)
        table = pa.table({"key": keys, "name": [f"the name of the key {key}" for key in keys]})
        pq.write_table(table, service.folder / "names" / f"{number}.parquet", row_group_size=100)
    topic = f"{service.topic}-names"
    create_topics(service.broker.bootstrap, {topic: 1})
    # The snapshot is as of a time long before the frontier. A message at that time is in it; the others are not.
    at, joins = 5, {"key": 2, "name": "another name"}
    for time, key in ((at, 7), (at + 1, 2)):
        value = json.dumps({"data": joins | {"key": key}, "time": str(time), "diff": 1})
        service.producer.send(topic, value=value.encode()).get(60)
    flags = {"path": service.folder / "names", "format": "parquet", "time": at, "piece_mb": 1}
    more = {"sources__names__topic": topic, "sources__names__clock": "event", "sources__names__format": "json"}
    more |= {f"sources__names__snapshot__{key}": str(value) for key, value in flags.items()}
    service.start(state__keep_sources=True, **more)
    done: list[int] = []

    def step() -> int:
        """Changes of the old source, and how many pieces had entered when they were answered."""
        service.final(service.send((3, 1)))
        found = service.reader.snapshot
        assert found is not None
        entry = found.manifest.sources.get("names")
        pieces = 0 if entry is None or entry.snapshot is None else entry.snapshot.done
        assert entry is None or entry.snapshot is None or pieces == entry.snapshot.pieces or "named" not in found.views
        done.append(pieces)
        return pieces

    service.wait(lambda: step() > 0)
    assert service.process is not None
    family = psutil.Process(service.process.pid).children(recursive=True)
    service.process.kill()
    service.process.wait()
    psutil.wait_procs(family, PATIENCE)
    service.start(state__keep_sources=True, **more)
    service.wait(lambda: service.reader.poll() and rows_taken(service) == 12_000)
    # The frontier waits for the new topic now; its messages are not late.
    until = service.send((3, 1)) + 10
    service.producer.send(topic, value=json.dumps({"resolved": str(until + 1_000)}).encode()).get(60)
    service.time = until
    service.final(service.send((4, 4)))
    found = service.reader.snapshot
    assert found is not None
    view = found.views["named"]
    assert view.since > at
    rows = view.rows_as_of(service.time - 1).flat().rows
    expected = {(key, f"the name of the key {key}", total) for key, total in service.totals.items()}
    expected.add((2, "another name", service.totals[2]))
    assert {tuple(row) for row in view.stored.decode_rows(rows, view.heap)} == expected
    assert any(0 < pieces < max(done) or 0 < pieces < 12 for pieces in done), done
    assert service.stop() == 0
