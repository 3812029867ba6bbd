"""Sources that begin with a snapshot: rows that Spark reads from files, then the messages of the topic."""

import random
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.service.driven import PATIENCE, Service
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
