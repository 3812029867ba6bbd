"""Columns in files give way and come back, and nothing of a state is different for it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.segment import Entry, Segment, segment_file, write_segment
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.trace import spill
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.merge import Merge
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME, Updates

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Every column is large, and there is a folder for them."""
    monkeypatch.setattr(spill, "LARGE", 64)
    spill.spill(tmp_path / "spill")
    yield tmp_path / "spill"
    spill.spill(None)


def edges(seed: int, n: int) -> Updates:
    choose = random.Random(seed)
    rows = [(choose.randrange(n // 3), choose.randrange(50)) for _ in range(n)]
    return Updates.of(rows, [choose.randrange(1, 9) for _ in rows], [choose.choice((1, 1, -1)) for _ in rows])


def test_room_in_a_file_is_as_any_other(small: Path) -> None:
    column, matrix = spill.empty(1000), spill.empty(100, 3)
    column[:] = np.arange(1000)
    matrix[:] = 7
    assert list(small.iterdir()) == []
    assert spill._pages(column) is not None
    batch = Batch.build(edges(1, 50), 1, 0, 10, 0)
    assert spill.release([batch], [column, matrix]) == 2
    assert column.tolist() == list(range(1000))
    assert bool((matrix == 7).all())
    assert spill._pages(spill.empty(2)) is None


def test_a_batch_goes_on_from_its_segment(tmp_path: Path) -> None:
    blob = LocalBlob(tmp_path / "blob")
    blob.prepare(["epochs"])
    older, newer = Batch.build(edges(2, 900), 1, 0, 10, 0), Batch.build(edges(3, 700), 1, 10, 20, 0)
    expected = [batch.keyed().tolist() for batch in (older, newer)]
    keys = np.arange(300)[:, None]
    wanted = key_rows(np.ascontiguousarray(keys), np.array([0]), np.empty(0, np.int64), 0)
    wanted = wanted[np.argsort(wanted[:, 0], kind="stable")]
    trace = Trace("t", 1, 1, 0)
    trace.replace([older, newer])
    fork = trace.fork()
    before = trace.select(wanted, fold=MIN_TIME).dense()
    merge = Merge(older, newer, MIN_TIME)
    merge.work(300)
    entries = [Entry(f"layer-{i}", batch.meta(), batch.arrays()) for i, batch in enumerate((older, newer))]
    write_segment(blob, "s", entries)
    segment = Segment("s", blob.map(segment_file("s")))
    for i, batch in enumerate((older, newer)):
        assert not spill.in_file(batch)
        spill.rebind(batch, segment, f"layer-{i}")
        assert spill.in_file(batch)
    for one in (trace, fork):
        one.replace(list(one.batches))
    assert spill.release([older, newer], merge.columns) > 2
    assert [batch.keyed().tolist() for batch in (older, newer)] == expected
    for one in (trace, fork):
        after = one.select(wanted, fold=MIN_TIME).dense()
        assert (after.spans.tolist(), after.entries.tolist()) == (before.spans.tolist(), before.entries.tolist())
    # A merge that was on its way goes on where it was.
    whole = Merge(Batch.build(edges(2, 900), 1, 0, 10, 0), Batch.build(edges(3, 700), 1, 10, 20, 0), MIN_TIME).finish()
    assert merge.finish().keyed().tolist() == whole.keyed().tolist()


def test_what_was_released_takes_no_memory(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    column = spill.empty(8 << 20)
    column[:] = 1
    full = resident()
    spill.release([], [column])
    assert full - resident() > 32 << 20
    assert int(column.sum()) == 8 << 20


_AGAIN = """
import resource
import numpy as np
from vernier.storage.trace import spill as room

told = room.keep()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(1 << 17, np.int64) for _ in range(16)]
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
print(told, first, max(faults() for _ in range(5)))
"""


def test_a_process_keeps_what_it_has_freed() -> None:
    found = subprocess.run([sys.executable, "-c", _AGAIN], cwd=ROOT, capture_output=True, text=True, check=True)
    told, first, again = found.stdout.split()
    if told == "False":
        pytest.skip("this C library has no setting for it")
    assert int(first) > 1000
    assert int(again) < int(first) / 10
