"""Large merged batches reach the disk beside the epochs: every manifest is whole, whatever fails on the way."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from vernier.storage.blob.disk import OsDisk
from vernier.storage.blob.local_blob import PIECE, LocalBlob
from vernier.storage.blob.segment import Entry, open_segment, segment_file, write_segment
from vernier.storage.errors import DiskFull
from vernier.storage.state.background_writer import BackgroundWriter
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace import merge as merge_module
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.batch import Batch, keyed_rows
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Updates


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything of more than some updates is large, and merges take their time."""
    monkeypatch.setattr(merge_module, "IN_BACKGROUND", 60)
    monkeypatch.setattr(trace_module, "LEAST", 0)
    monkeypatch.setattr(trace_module, "SMALL", 1)
    monkeypatch.setattr(trace_module, "AT_ONCE", 0)
    monkeypatch.setattr(trace_module, "AT_ONCE_ALWAYS", 0)


class Life:
    """A worker and a driver in one: epochs of a trace, each of them committed or failed on purpose."""

    def __init__(self, path: Path, seed: int, *, threads: bool = False) -> None:
        self.state = StateDirectory(path)
        self.state.acquire()
        self.choose = random.Random(seed)
        self.background_writer = BackgroundWriter(self.state, threads=threads)
        self.trace = Trace("t", 1, 1, 0)
        self.facts: Counter[tuple[int, int]] = Counter()
        self.attempt, self.epoch, self.tries = "", 0, 0
        self.refs: list[BatchRef] = []

    def step(self, *, fail: bool = False) -> None:
        lower = 10 * (self.epoch + 1)
        self.tries += 1
        attempt, n = f"a{self.tries}", self.choose.randrange(1, 60)
        rows = [(self.choose.randrange(3000), self.choose.randrange(2)) for _ in range(n)]
        trace = self.trace.fork()
        trace.seal(keyed_rows(Updates.of(rows, np.full(n, lower), 1), 1), lower, lower + 10)
        trace.close_slice(lower + 10)
        self.background_writer.tend([trace], self.epoch + 1, attempt, 0, self.attempt)
        fresh = [batch for batch in trace.named if batch.ref is None]
        entries = [Entry(f"layer-{i}", batch.meta(), batch.arrays()) for i, batch in enumerate(fresh)]
        refs = self.state.write(self.epoch + 1, attempt, 0, entries)
        for batch, ref in zip(fresh, refs, strict=True):
            batch.ref = ref
        if fail:
            self.state.sweep()
            return
        self.refs = [batch.ref for batch in trace.named]
        manifest = Manifest(
            epoch=self.epoch + 1, attempt=attempt, lower=lower, upper=lower + 10, committed_ns=0, workers=1, app="t",
            program="1", traces={"t": TraceEntry(1, 1, 0, [self.refs])},
        )  # fmt: skip
        self.state.commit(manifest)
        self.state.gc(2)
        self.facts.update(rows)
        self.trace, self.attempt, self.epoch = trace, attempt, self.epoch + 1

    def open(self) -> list[Batch]:
        """The batches of the newest manifest, from disk."""
        found: list[Batch] = []
        if self.epoch == 0:
            return found
        for ref in self.state.manifest(self.epoch).traces["t"].shards[0]:
            entry = self.state.open(ref.segment).entry(ref.label)
            batch = Batch.open(entry.meta, entry.arrays)
            batch.ref = ref
            found.append(batch)
        return found

    def check(self) -> None:
        total: Counter[tuple[int, int]] = Counter()
        for batch in self.open():
            for key, val, _, diff in batch.to_updates().data.tolist():
                total[key, val] += diff
        assert total == self.facts


@pytest.mark.parametrize("seed", range(5))
def test_every_manifest_is_whole_when_attempts_fail_and_are_swept(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    deferred = named = taken_back = 0
    for _ in range(120):
        before = {id(one.batch) for one in life.background_writer._named}
        life.step(fail=life.choose.random() < 0.3)
        deferred += any(batch.parts for batch in life.trace.batches)
        after = [one.batch for one in life.background_writer._named]
        named += sum(id(batch) not in before for batch in after)
        taken_back += any(batch.ref is None for batch in life.trace.batches if id(batch) in before)
        life.check()
        if life.choose.random() < 0.03:
            # The process is gone: another one opens what there is.
            life.background_writer = BackgroundWriter(life.state, threads=False)
            life.trace.replace(life.open())
    assert deferred > 10
    assert named > 5
    # In the end nothing is left to be written, and the large batches have places of their own.
    for _ in range(40):
        life.step()
    life.check()
    assert any(ref.updates >= 60 for ref in life.refs)
    assert set(life.state.segments()) >= {ref.segment for ref in life.refs}


def test_a_batch_that_cannot_be_written_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path, 7)
    write = life.state.write

    def full(epoch: int, attempt: str, shard: int, entries: list[Entry]) -> list[BatchRef]:
        if "apart" in attempt:
            raise DiskFull(name=attempt, where="here")
        return write(epoch, attempt, shard, entries)

    monkeypatch.setattr(life.state, "write", full)
    for _ in range(40):
        life.step()
    assert any(batch.parts for batch in life.trace.batches)
    life.check()
    monkeypatch.setattr(life.state, "write", write)
    for _ in range(20):
        life.step()
    life.check()
    assert any("apart" in ref.segment for ref in life.refs)


def test_epochs_go_on_while_a_batch_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path, 3, threads=True)
    write, go_on, begun = life.state.write, threading.Event(), threading.Event()

    def slow(epoch: int, attempt: str, shard: int, entries: list[Entry]) -> list[BatchRef]:
        if "apart" in attempt:
            begun.set()
            assert go_on.wait(60)
        return write(epoch, attempt, shard, entries)

    monkeypatch.setattr(life.state, "write", slow)
    while not begun.is_set():
        life.step()
    for _ in range(5):
        life.step()
        life.check()
        assert not any("apart" in ref.segment for ref in life.refs)
    go_on.set()
    for _ in range(40):
        life.step()
        writing = life.background_writer._writing
        if writing is not None and writing.thread is not None:
            writing.thread.join()
    assert any("apart" in ref.segment for ref in life.refs)
    life.check()


def test_a_large_file_is_synced_in_pieces(tmp_path: Path) -> None:
    class Counting(OsDisk):
        syncs = 0

        def sync(self, fd: int) -> None:
            self.syncs += 1
            super().sync(fd)

    disk = Counting()
    blob = LocalBlob(tmp_path, disk)
    blob.prepare(("epochs",))
    array = np.arange(3 * PIECE // 8 + 5)
    write_segment(blob, "one", [Entry("a", {}, {"x": array, "none": array[:0]}), Entry("b", {}, {"x": array[:3]})])
    assert disk.syncs == 4
    segment = open_segment(blob, "one")
    segment.verify()
    assert np.array_equal(segment.entry("a").arrays["x"], array)
    assert blob.size(segment_file("one")) == segment.nbytes
