"""A source that begins with a snapshot: how fast Parquet becomes state, and whether kills and changes leave it exact.

    python -m bench.snapshots --rows 10000000 --changes 100000 --kills 2

Edges lie in Parquet files; the program counts them by node. The driver and its workers run as the service runs them,
with a broker. While the snapshot enters, changes go to the topic, and the driver is killed with all its workers, again
and again. At ten data times after the snapshot the counts are compared with a recount. The rate is that of the
longest run without a kill, from the commit of its first pieces to that of its last (so without Spark's start), in rows
a second on the wall and for all processes' processor time. Memory: of the workers together, the most that was seen.
One JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from kafka import KafkaProducer

from bench.driver import Driver
from bench.record import tell
from bench.stream import Ints
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory

AT = 1_000_000
TOPIC, EACH, FILES = "edges", 100, 10
PROGRAM = """
import vernier as vn

class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64

app = vn.App("degrees", retain="1h")
app.view("degrees", app.source("edges", Edge).group_by("src").agg(n=vn.count()), key=["src"])
"""


class Service(Driver):
    """The driver on a folder, and what its processes use."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, workers: int, piece_mb: int) -> None:
        self.most_mb = 0.0
        (folder / "program.py").write_text(PROGRAM, "utf-8")
        snapshot = {"path": folder / "edges", "format": "parquet", "time": AT, "piece_mb": piece_mb}
        settings: dict[str, object] = {
            "program": folder / "program.py", "workers": workers, "state.path": folder / "state",
            "state.keep": 4096, "kafka.bootstrap": broker.bootstrap, "sources.edges.clock": "event",
            **{f"sources.edges.snapshot.{key}": value for key, value in snapshot.items()},
        }  # fmt: skip
        super().__init__(folder, settings)
        self._cpu: dict[int, float] = {}
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def close(self) -> None:
        """End everything."""
        self._over.set()
        self._watch.join()
        self.kill()

    def cpu_seconds(self) -> float:
        """The processor time of all processes so far."""
        return sum(self._cpu.values())

    def _look(self) -> None:
        while not self._over.wait(0.2):
            size = 0.0
            for one in self.family():
                try:
                    times = one.cpu_times()
                    self._cpu[one.pid] = times.user + times.system
                    if "vernier.service.cluster.daemon" in one.cmdline():
                        size += one.memory_full_info().pss / 2**20
                except psutil.Error:
                    continue
            self.most_mb = max(self.most_mb, size)


def write_edges(folder: Path, rows: int, nodes: int) -> Ints:
    """Write random edges as Parquet; returns how many each node has."""
    folder.mkdir()
    chance, counts = np.random.default_rng(1), np.zeros(nodes, np.int64)
    for number in range(FILES):
        src, dst = chance.integers(0, nodes, (2, rows // FILES))
        counts += np.bincount(src, minlength=nodes)
        pq.write_table(pa.table({"src": src, "dst": dst}), folder / f"{number}.parquet", row_group_size=500_000)
    return counts


class Changes(threading.Thread):
    """Sends changes, a nanosecond apart, until all are sent; each message promises what comes before the next."""

    def __init__(self, bootstrap: str, nodes: int, count: int, seconds: float) -> None:
        super().__init__(daemon=True)
        chance = np.random.default_rng(2)
        self.nodes, self.diffs = chance.integers(0, nodes, count), chance.choice([1, 1, 1, -1], count)
        self._pause = seconds / max(1, count // EACH)
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")

    @property
    def end(self) -> int:
        """The frontier behind the last one."""
        return AT + 1 + len(self.nodes)

    def run(self) -> None:
        """Send."""
        stopping = threading.Event()
        for first in range(0, len(self.nodes), EACH):
            part = slice(first, first + EACH)
            at = AT + 1 + first
            rows = [
                [[node, 0], str(at + i), diff]
                for i, (node, diff) in enumerate(zip(self.nodes[part].tolist(), self.diffs[part].tolist()))
            ]
            self._send({"v": 1, "t": str(at), "u": rows})
            self._send({"v": 1, "p": {"lower": ["0"], "upper": [str(at + len(rows))]}})
            stopping.wait(self._pause)
        self._producer.flush()
        self._producer.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._producer.send(TOPIC, json.dumps(message).encode(), partition=0)


def taken(manifest: Manifest) -> int:
    """How many rows of the snapshot have entered."""
    found = manifest.sources["edges"].snapshot
    return 0 if found is None else found.rows


def compare(reader: Reader, snapshot: Ints, changes: Changes) -> int:
    """Compare ten data times with a recount; returns their number. Raises SystemExit."""
    reader.poll()
    assert reader.snapshot is not None
    view, times = reader.snapshot.views["degrees"], np.linspace(AT, changes.end - 1, 10).astype(np.int64).tolist()
    for at in times:
        counts = snapshot.copy()
        np.add.at(counts, changes.nodes[: at - AT], changes.diffs[: at - AT])
        wanted = np.flatnonzero(counts)
        rows = view.rows_as_of(at).flat().rows
        if not np.array_equal(rows[np.argsort(rows[:, 0])], np.column_stack((wanted, counts[wanted]))):
            raise SystemExit(f"the counts as of {at} differ from a recount")
    return len(times)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--piece-mb", type=int, default=8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="snapshots-") as name, EmbeddedBroker(Path(name) / "kafka") as broker:
        folder = Path(name)
        counts = write_edges(folder / "edges", args.rows, args.nodes)
        stored = sum(file.stat().st_size for file in (folder / "edges").iterdir())
        create_topics(broker.bootstrap, {TOPIC: 1})
        changes = Changes(broker.bootstrap, args.nodes, args.changes, 30.0)
        service, state = Service(folder, broker, args.workers, args.piece_mb), StateDirectory(folder / "state")
        runs: list[list[tuple[int, int, float]]] = []
        changes.start()
        try:
            for number in range(args.kills + 1):
                service.start()
                seen: list[tuple[int, int, float]] = []
                runs.append(seen)
                known = max(state.epochs(), default=0)
                while True:
                    time.sleep(0.02)
                    service.check()
                    for epoch in range(known + 1, max(state.epochs(), default=0) + 1):
                        manifest = state.manifest(epoch)
                        rows = taken(manifest)
                        known = epoch
                        if not seen or rows > seen[-1][0]:
                            seen.append((rows, manifest.committed_ns, service.cpu_seconds()))
                    if seen and number < args.kills and seen[-1][0] >= args.rows * (number + 1) // (args.kills + 2):
                        service.kill()
                        break
                    newest = state.latest() if number == args.kills and known else None
                    if newest is not None and newest.upper >= changes.end:
                        break
            reader = Reader(folder / "state")
            times = compare(reader, counts, changes)
            reader.close()
            newest = state.latest()
            assert newest is not None
            rows = taken(newest)
            if rows != args.rows:
                raise SystemExit(f"{rows} rows have entered, of {args.rows}")
        finally:
            service.close()
            changes.join(60)
    longest = max(runs, key=lambda seen: seen[-1][0] - seen[0][0])
    (first, began, used), (last, ended, all_used) = longest[0], longest[-1]
    seconds = (ended - began) / 1e9
    tell(
        {
            "rows": args.rows, "changes": args.changes, "kills": args.kills, "times_compared": times,
            "parquet_mb": round(stored / 1e6, 1), "epochs_of_rate": len(longest) - 1,
            "rows_of_rate": last - first, "seconds_of_rate_s": round(seconds, 2),
            "rate": round((last - first) / seconds), "cpu_rate": round((last - first) / max(all_used - used, 1e-9)),
            "workers_most_mb": round(service.most_mb), "load": round(os.getloadavg()[0], 1),
        }
    )  # fmt: skip


if __name__ == "__main__":
    main()
