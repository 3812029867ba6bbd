"""What an epoch costs with its state in an object store, beside a local disk, as the state grows.

    python -m bench.stores --edges 50000,500000,2200000 --epochs 128 --batch 1000

A window of edges moves: each epoch puts `--batch` edges in and takes as many out, each at its own time. The state keeps
the edges and how many each node has, 4.7 facts an edge; it is loaded in large epochs first. The local engine runs it
with one worker, with what the service does around it: the segment of what is new, large merged batches beside the
epochs, the manifest, HEAD, a collection every 16 epochs. After each commit a reader notices it, takes a lease, and
reads the epoch's changes, as the sidecar does; its cache is its own.

The object store is a server that speaks S3: that of the environment (AWS_ENDPOINT_URL), or moto in a process of its
own. Moto answers a request in milliseconds of CPU, so the times with it are those of a slow store; requests and bytes
do not depend on it. Requests and bytes are counted in the client, where each leaves the process; `merged` are the bytes
of large merged batches, which are written beside the epochs. One JSON line a size and place: `owner_` is what driver
and worker do, `reader_` one reader, an epoch.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import boto3
import numpy as np

import vernier as vn
from bench.edges import random_edges
from bench.record import tell
from bench.steady import Edge, Stored, changes
from tests.storage.s3 import BUCKET, KEYS
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.service.coordinator.collector import GC_EVERY
from vernier.storage.blob.filecache import FileCache
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.object_store import FsspecStore, ObjectBlob
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME, Updates

KEEP = 64
"""Epochs that stay, as by default (`state.keep`)."""
LOAD = 50_000
"""Updates an epoch while the state is loaded."""


def program() -> vn.App:
    """The edges, and how many each node has."""
    app = vn.App("stores", retain="1us")  # times are numbers of updates, read as nanoseconds
    edges = app.source("edges", Edge)
    app.view("edges", edges.distinct(), key=["src", "dst"])
    app.view("degrees", edges.group_by("src").agg(n=vn.count()), key=["src"])
    return app


class Counted(FsspecStore):
    """A store whose calls are counted. Each is one request, except a list of more than a thousand names."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.calls: Counter[str] = Counter()
        self.sent = self.received = self.merged = 0
        self._books = threading.Lock()

    def _count(self, call: str, sent: int = 0, received: int = 0, merged: int = 0) -> None:
        with self._books:
            self.calls[call] += 1
            self.sent += sent
            self.received += received
            self.merged += merged

    def read(self, name: str, large: bool = False) -> bytes:
        data = super().read(name, large)
        self._count("get", received=len(data))
        if large:
            self._count("head")
        return data

    def put(self, name: str, data: bytes) -> None:
        beside = len(data) if "-apart-" in name else 0
        self._count("put", sent=len(data) - beside, merged=beside)
        super().put(name, data)

    def create(self, name: str, data: bytes) -> None:
        self._count("put", sent=len(data))
        super().create(name, data)

    def remove(self, name: str) -> None:
        self._count("delete")
        super().remove(name)

    def size(self, name: str) -> int:
        self._count("head")
        return super().size(name)

    def names(self, folder: str) -> Iterable[str]:
        self._count("list")
        return super().names(folder)

    def taken(self) -> dict[str, float]:
        """What was counted since the last call."""
        with self._books:
            found = {**self.calls, "sent": self.sent, "received": self.received, "merged": self.merged}
            self.calls.clear()
            self.sent = self.received = self.merged = 0
        return found


class Reader:
    """One that follows the newest epoch, as a sidecar does."""

    def __init__(self, state: StateDirectory) -> None:
        self.state = state

    def follow(self) -> None:
        """Notice the newest epoch, hold it, and read its changes."""
        self.state.head()
        with self.state.lease() as lease:
            own = f"{lease.epoch:012d}"
            for trace in lease.manifest.traces.values():
                for ref in trace.shards[0]:
                    if ref.segment.startswith(own) and "-apart-" not in ref.segment:
                        self.state.open(ref.segment).entry(ref.label)


@contextlib.contextmanager
def server(folder: Path) -> Iterator[None]:
    """A server that speaks S3 in a process of its own, unless the environment names one; this process is its client."""
    if "AWS_ENDPOINT_URL" in os.environ:
        yield
        return
    with (folder / "moto.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        os.environ.update(KEYS | {"AWS_ENDPOINT_URL": said(folder / "moto.log", process)})
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield
    finally:
        process.kill()
        process.wait()


def said(log: Path, process: subprocess.Popen[bytes]) -> str:
    """The address that the server says it listens on."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for word in log.read_text("utf-8").split():
            if word.startswith("http://127.0.0.1:") and not word.endswith(":0"):
                return word
        time.sleep(0.05)
    raise SystemExit(f"bench: no S3 server: {log.read_text('utf-8')[-500:]}")


def run(place: str, window: int, epochs: int, batch: int, folder: Path) -> dict[str, float | str]:
    """Load a window of edges, move it, and report."""
    edges = random_edges(2 * window)
    plan = compile_app(program())
    stores: list[Counted] = []

    def opened(name: str) -> StateDirectory:
        if place == "disk":
            return StateDirectory(str(folder / "state"), LocalBlob(folder / "state"))
        uri = f"s3://{BUCKET}/{folder.name}"
        stores.append(Counted(uri))
        cache = FileCache(folder / name, 8 << 30)
        now = lambda: time.time_ns() // 1_000_000  # noqa: E731
        # A benchmark on a busy machine must not lose its lock, and nothing else takes it.
        return StateDirectory(uri, ObjectBlob(uri, stores[-1], now, cache, lock_ms=3_600_000, at_once=True))

    stored = Stored(opened("owner"), KEEP, GC_EVERY)
    reader = Reader(opened("reader"))
    worker, at = Worker(plan), 1
    for first in range(0, window, LOAD):
        part = Updates.of(edges[first : min(first + LOAD, window)], at - 1, 1)
        worker.run_epoch(MIN_TIME if at == 1 else at - 1, at, {"edges": part})
        stored.store(worker.state)
        at += 1
    start, took = at - 1, {"engine_ms": [], "owner_ms": [], "reader_ms": []}  # type: ignore[var-annotated]
    settle(stored, worker)
    for store in stores:
        store.taken()
    for epoch in range(epochs):
        moved = changes(edges, window, epoch * batch, (epoch + 1) * batch)
        began = time.perf_counter()
        worker.run_epoch(at - 1, at - 1 + batch, {"edges": Updates.of(moved.rows, moved.time - 1 + start, moved.diff)})
        ran = time.perf_counter()
        stored.store(worker.state)
        written = time.perf_counter()
        reader.follow()
        took["reader_ms"].append((time.perf_counter() - written) * 1e3)
        took["owner_ms"].append((written - ran) * 1e3)
        took["engine_ms"].append((ran - began) * 1e3)
        at += batch
    result: dict[str, float | str] = {
        "place": place, "facts": sum(trace.updates for trace in worker.state.traces.values()), "batch": batch,
        "state_mb": worker.state.nbytes / 2**20, "epochs": epochs,
    }  # fmt: skip
    for name, series in took.items():
        result |= {f"{name}_p50": float(np.median(series)), f"{name}_p99": float(np.percentile(series, 99))}
    for who, store in zip(("owner", "reader"), stores, strict=False):
        found = store.taken()
        ways = {way: found.pop(way) / epochs / 1024 for way in ("sent", "received", "merged")}
        result[f"{who}_requests"] = sum(found.values()) / epochs
        result |= {f"{who}_{call}": count / epochs for call, count in found.items()}
        result |= {f"{who}_{way}_kb": kb for way, kb in ways.items()}
    manifest = stored.state.blob.size(f"epochs/{stored.epoch:012d}.json") or 0
    result["manifest_kb"] = manifest / 1024
    result["load"] = round(os.getloadavg()[0], 1)
    stored.state.release()
    return {name: round(one, 3) if isinstance(one, float) else one for name, one in result.items()}


def settle(stored: Stored, worker: Worker) -> None:
    """Commit until the large merged batches of the load are written: they are no cost of the epochs that follow."""
    deadline = time.monotonic() + 300
    while any(batch.parts for trace in worker.state.traces.values() for batch in trace.batches):
        stored.store(worker.state)
        if time.monotonic() > deadline:
            raise SystemExit("bench: the large batches are not written after 300 s")
        time.sleep(0.02)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", default="50000,500000")
    parser.add_argument("--epochs", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stores-") as name, server(Path(name)):
        for window in map(int, args.edges.split(",")):
            for place in ("disk", "s3"):
                folder = Path(name) / f"{place}-{window}"
                folder.mkdir()
                tell(run(place, window, args.epochs, args.batch, folder), key=f"{place} {window}")


if __name__ == "__main__":
    main()
