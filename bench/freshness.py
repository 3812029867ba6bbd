"""Freshness: from producing a record until it is visible over HTTP. Beside it an empty foreachBatch on the same broker.

`python -m bench.freshness --seconds 60 --rate 1000`: the demonstration's graph in motion, sent by this process; then,
one after another and each for so long after a warm-up: the service (its answer is visible when the change stream of a
view over HTTP has passed the record's time), the same query whose foreachBatch only reads its rows, and one whose
foreachBatch does nothing at all. Prints one JSON line: milliseconds, median and 99th percentile, and the ratio to the
loop that reads. Prints the machine's load, too: on a busy machine compare nothing.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from kafka import KafkaProducer

from bench.record import tell
from bench.running import flags_of
from vernier.service.codec.native import progress_message, update, updates_message
from vernier.service.config.settings import Settings, load
from vernier.service.ingest.config import IngestionConfig
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics
from vernier.service.supervision.demo_producer import BATCH_SECONDS, ROOTS, MovingGraph
from vernier.service.supervision.supervisor import Supervisor

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "graph"


@dataclass
class Load:
    """Sends the graph in motion and records the times. sent: (wall clock, time that progress then reached, offsets)."""

    settings: Settings
    rate: float
    sent: list[tuple[int, int, list[Any]]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send until stopped."""
        graph, count, latest = MovingGraph(), 0, time.time_ns()
        producer = KafkaProducer(bootstrap_servers=self.settings.kafka.bootstrap, acks=1, linger_ms=0)
        began = time.monotonic()
        while not self.stop.wait(BATCH_SECONDS):
            until = max(graph.edges + int((time.monotonic() - began) * self.rate), count)
            now = time.time_ns()
            end = max(now, latest + until - count)
            futures = [
                (partition, producer.send(TOPIC, value=value, partition=partition))
                for partition, value in messages(graph, count, until, latest, end, self.settings.workers)
            ]
            self.sent.append((now, end, futures))
            count, latest = until, end
        producer.close(timeout=5)


def messages(
    graph: MovingGraph, first: int, until: int, begun: int, end: int, partitions: int
) -> Iterator[tuple[int, bytes]]:
    """The changes up to `until`, evenly spread over [begun, end), and the promise of `end`."""
    rows: list[list[bytes]] = [[] for _ in range(partitions)]
    step = (end - begun) // max(1, until - first)
    for index in range(first, until):
        for row, time_ns, diff in graph.updates(index, begun + (index - first) * step):
            rows[index % partitions].append(update(b"[%d,%d]" % row, time_ns, diff))
    if first == 0 < until:
        yield 0, updates_message(begun, [update(b"[%d]" % node, begun, 1) for node in ROOTS], "roots")
    for partition, changed in enumerate(rows):
        if changed:
            yield partition, updates_message(begun, changed, "edges")
        yield partition, progress_message(end)


@contextmanager
def sending(settings: Settings, rate: float) -> Iterator[Load]:
    """A load for as long as the block runs, on a topic that it creates."""
    create_topics(settings.kafka.bootstrap, {TOPIC: settings.workers})
    made = Load(settings, rate)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        thread.join()


def serve(settings: Settings, flags: dict[str, str], rate: float, seconds: float, warm: float) -> list[float]:
    """Milliseconds from each batch's sending to its visibility, through the whole service."""
    loaded = load(ROOT / "configs" / "demo.yaml", flags, {})
    ready = threading.Event()
    supervisor = Supervisor(loaded, ROOT / "configs" / "demo.yaml", flags, say=lambda line: None)
    thread = threading.Thread(target=supervisor.run, args=(ready.set,))
    thread.start()
    seen: list[tuple[int, int]] = []
    try:
        while not ready.wait(0.1):
            if not thread.is_alive():
                raise SystemExit("bench: the service did not start")
        with sending(settings, rate) as sent:
            time.sleep(warm)
            began = time.time_ns()
            watch(f"{supervisor.url}/v1/views/histogram/changes", seconds, seen, sent, began)
        reached = [frontier for frontier, _ in seen]
        found = []
        for at, end, _ in sent.sent:
            place = bisect.bisect_left(reached, end)
            if at >= began and place < len(seen):
                found.append((seen[place][1] - at) / 1e6)
        return found
    finally:
        supervisor.stop()
        thread.join()


def watch(url: str, seconds: float, seen: list[tuple[int, int]], sent: Load, began: int) -> None:
    """Follow a change stream; every frontier with the wall clock at which it was received. On a slow machine it
    continues until an update that was sent after `began` is visible."""
    end = time.monotonic() + seconds
    with httpx.stream("GET", url, headers={"Accept": "text/event-stream"}, timeout=30) as stream:
        for line in stream.iter_lines():
            if line.startswith("id:"):
                seen.append((int(line[3:].strip()), time.time_ns()))
            if time.monotonic() > end and seen:
                first = next((reached for at, reached, _ in sent.sent if at >= began), None)
                if first is not None and seen[-1][0] >= first:
                    return


def spin(settings: Settings, flags: dict[str, str], kind: str, rate: float, seconds: float, warm: float) -> list[float]:
    """Milliseconds from sending each batch to the end of the foreachBatch that had its rows."""
    with sending(settings, rate) as sent:
        command = [sys.executable, "-m", "bench.freshness", "--loop", kind, "--seconds", str(warm + seconds)]
        ran = subprocess.run(
            [*command, "--flags", json.dumps(flags)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    batches = json.loads(ran.stdout.splitlines()[-1])
    began = batches[0][0] + int(warm * 1e9)
    ends = {p: [offsets[str(p)] for _, offsets in batches] for p in range(settings.workers)}
    found = []
    for at, _, futures in sent.sent:
        if at < began:
            continue
        places = [bisect.bisect_right(ends[p], future.get(10).offset) for p, future in futures]
        if max(places) < len(batches):
            found.append((batches[max(places)][0] - at) / 1e6)
    return found


def loop(settings: Settings, kind: str, seconds: float) -> None:
    """The query beside ours, in a separate process: prints when each batch was done and its end position."""
    from vernier.service.coordinator.session import open_stream, start_query, start_session

    settings = settings.model_copy(
        update={
            "spark": settings.spark.model_copy(
                update={"conf": {"spark.sql.streaming.numRecentProgressUpdates": "100000"}}
            )
        }
    )
    done: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        spark = start_session(settings, "empty", Path(scratch))

        def epoch(frame: Any, batch: int) -> None:
            if kind == "read":
                frame._jdf.queryExecution().toRdd().count()
            done[batch] = time.time_ns()

        ingestion = IngestionConfig({}, partitions={TOPIC: settings.workers})
        query = start_query(open_stream(spark, settings, ingestion, {}, None), epoch, Path(scratch) / "checkpoint")
        while not done:
            query.awaitTermination(1)
        query.awaitTermination(int(seconds))
        # The second batch that ends from now on began within the measured time, however slow the machine is.
        asked = time.time_ns()
        while sum(done.get(progress["batchId"], 0) > asked for progress in query.recentProgress) < 2:
            query.awaitTermination(1)
        batches = []
        for progress in query.recentProgress:
            end = progress["sources"][0]["endOffset"]
            offsets = json.loads(end) if isinstance(end, str) else end
            if offsets and progress["batchId"] in done:
                batches.append((done[progress["batchId"]], offsets[TOPIC]))
        print(json.dumps(batches), flush=True)
        os._exit(0)


def summary(found: list[float]) -> dict[str, float]:
    """Median, 99th percentile, count."""
    return {
        "p50_ms": round(float(np.quantile(found, 0.5)), 1),
        "p99_ms": round(float(np.quantile(found, 0.99)), 1),
        "batches": len(found),
    }


def main() -> None:
    """Read the arguments, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of each of the three, after its warm-up")
    parser.add_argument("--warm", type=float, default=20, help="seconds of each that do not count")
    parser.add_argument("--rate", type=float, default=1_000, help="changes a second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--loop", choices=("read", "pass"), help=argparse.SUPPRESS)
    parser.add_argument("--flags", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.loop:
        loop(load(ROOT / "configs" / "demo.yaml", json.loads(given.flags), {}).settings, given.loop, given.seconds)
    os.chdir(ROOT)
    results: dict[str, Any] = {"bench": "freshness", "rate": given.rate, "workers": given.workers}
    for name in ("service", "read", "pass"):
        with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "kafka") as broker:
            flags = flags_of(broker, folder, given.workers)
            settings = load(ROOT / "configs" / "demo.yaml", flags, {}).settings
            if name == "service":
                found = serve(settings, flags, given.rate, given.seconds, given.warm)
            else:
                found = spin(settings, flags, name, given.rate, given.seconds, given.warm)
        results[name] = {**summary(found), "load": round(os.getloadavg()[0], 1)}
        print(f"bench: {name} {results[name]}", file=sys.stderr, flush=True)
    results["ratio_to_read"] = round(results["service"]["p50_ms"] / results["read"]["p50_ms"], 2)
    tell(results)


if __name__ == "__main__":
    main()
