"""What making an epoch durable costs on a disk: each call of a commit, collection, and what readers pay to notice.

`python -m bench.commit --path DIR --epochs 400 --batches 20`: every epoch writes a segment of that many small batches
(8 arrays each), commits a manifest that names the last 8 epochs' batches, and collects. Beside it the floor: a file of
the same bytes, written and synced. Prints one JSON line: milliseconds by call, median and 99th percentile. Numbers of
another disk, or of a busy one, differ by a factor of ten and more.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from bench.record import tell
from vernier.storage.blob.blob import Buffer
from vernier.storage.blob.disk import OsDisk
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.segment import Entry
from vernier.storage.state.audit import audit
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Updates

KEEP = 8

Result = TypeVar("Result")


class Times:
    """Milliseconds by name."""

    def __init__(self) -> None:
        self._taken: dict[str, list[float]] = defaultdict(list)

    def time(self, name: str, call: Callable[..., Result], *args: object) -> Result:
        """Call, and record how long it took."""
        began = time.perf_counter()
        result = call(*args)
        self._taken[name].append((time.perf_counter() - began) * 1e3)
        return result

    def report(self) -> dict[str, dict[str, float]]:
        """Median and 99th percentile of each."""
        return {
            name: {"count": len(taken), "p50_ms": quantile(taken, 0.5), "p99_ms": quantile(taken, 0.99)}
            for name, taken in self._taken.items()
        }


def quantile(taken: list[float], share: float) -> float:
    return round(float(np.quantile(taken, share)), 4)


class TimedDisk(OsDisk):
    """The real disk, which times the calls that change something."""

    def __init__(self, times: Times) -> None:
        super().__init__()
        self.times = times
        self.writing = ""

    def write(self, fd: int, chunks: Sequence[Buffer]) -> int:
        return self.times.time(f"write {self.writing}", super().write, fd, chunks)

    def sync(self, fd: int) -> None:
        self.times.time(f"sync {self.writing}", super().sync, fd)

    def rename(self, old: str, new: str) -> None:
        self.times.time("rename", super().rename, old, new)

    def link(self, old: str, new: str) -> None:
        self.times.time("link", super().link, old, new)

    def unlink(self, path: str) -> None:
        self.times.time("unlink", super().unlink, path)

    def sync_folder(self, path: str) -> None:
        self.times.time("sync folder", super().sync_folder, path)

    def overwrite(self, path: str, data: bytes) -> None:
        self.times.time("overwrite HEAD", super().overwrite, path, data)


def batches_of(epoch: int, count: int, updates: int) -> list[Entry]:
    """Small batches of an epoch."""
    rng = np.random.default_rng(epoch)
    made = []
    for number in range(count):
        rows, times = rng.integers(0, 1 << 40, (updates, 2)), rng.integers(epoch, epoch + 1, updates)
        batch = Batch.build(Updates.of(rows, times, np.ones(updates, np.int64)), 1, epoch, epoch + 1, epoch)
        made.append(Entry(f"layer-{number}", dict(batch.meta()), batch.arrays()))
    return made


def run(path: str, epochs: int, batches: int, updates: int) -> dict[str, object]:
    """Commit `epochs` epochs in a new directory under `path`; the state is audited at the end."""
    folder = tempfile.mkdtemp(dir=path)
    times = Times()
    disk = TimedDisk(times)
    refs: list[list[BatchRef]] = []
    size = 0
    try:
        with StateDirectory(folder, LocalBlob(folder, disk)) as state:
            for epoch in range(1, epochs + 1):
                entries = batches_of(epoch, batches, updates)
                disk.writing = "segment"
                refs = [*refs, times.time("= write segment", state.write, epoch, "bench", 0, entries)][-KEEP:]
                newest = manifest(epoch, refs)
                disk.writing = "manifest"
                times.time("= commit", state.commit, newest)
                times.time("= collect", state.gc, KEEP)
                times.time("= poll HEAD", state.head)
                lease = times.time("= take a lease", state.lease)
                times.time("= give a lease back", lease.release)
                times.time("= open a segment", state.open, refs[-1][0].segment)
                size = state.segments()[refs[-1][0].segment]
                times.time("floor: one file, written and synced", floor, f"{folder}/floor", size)
            problems = audit(state).problems
        if problems:
            raise SystemExit("\n".join(problems))
    finally:
        shutil.rmtree(folder)
    return {"epochs": epochs, "batches": batches, "segment_bytes": size, "calls": times.report()}


def manifest(epoch: int, refs: list[list[BatchRef]]) -> Manifest:
    """The manifest of an epoch whose one trace has all these batches."""
    return Manifest(
        epoch=epoch,
        attempt="bench",
        lower=epoch,
        upper=epoch + 1,
        committed_ns=time.time_ns(),
        workers=1,
        app="bench",
        program="bench",
        traces={f"t{number}": TraceEntry(1, 1, 0, [[own[number] for own in refs]]) for number in range(len(refs[0]))},
    )


def floor(path: str, size: int) -> None:
    """The minimum cost of making that many bytes durable."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, bytes(size))
    os.fdatasync(fd)
    os.close(fd)


def main() -> None:
    """Read the arguments, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", default=".", help="a folder on the disk to measure")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--updates", type=int, default=200, help="updates in each batch")
    args = parser.parse_args()
    tell(run(args.path, args.epochs, args.batches, args.updates))


if __name__ == "__main__":
    main()
