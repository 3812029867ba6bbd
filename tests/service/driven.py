"""A driver process for tests, with a program of sums, a topic of its own and a count of what was sent."""

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from kafka import KafkaProducer

from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics
from vernier.service.supervision.parent_watch import command
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.updates import MIN_TIME

PATIENCE = 420
PROGRAM = """
import vernier as vn

class Pair(vn.Schema):
    key: vn.Int64
    value: vn.Int64

app = vn.App("sums", retain="1h")
pairs = app.source("pairs", Pair)
app.view("sums", pairs.group_by("key").agg(total=vn.sum("value"), n=vn.count()), key=["key"])
"""


class Service:
    """A driver process over a topic of two partitions, and what it should answer."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, topic: str) -> None:
        self.folder, self.topic, self.broker = folder, topic, broker
        (folder / "program.py").write_text(PROGRAM, "utf-8")
        create_topics(broker.bootstrap, {topic: 2})
        self.producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", max_request_size=32 << 20)
        self.totals: Counter[int] = Counter()
        self.time = 1_000
        self.module = "vernier.service.coordinator.driver"
        self.process: subprocess.Popen[bytes] | None = None
        self.reader = Reader(folder / "state")

    def start(self, **more: object) -> None:
        """Start the driver; `more` are settings, with __ for dots."""
        settings: dict[str, object] = {
            "program": self.folder / "program.py",
            "workers": 2,
            "state.path": self.folder / "state",
            "kafka.bootstrap": self.broker.bootstrap,
            "sources.pairs.topic": self.topic,
            "sources.pairs.clock": "event",
        }
        settings |= {key.replace("__", "."): value for key, value in more.items()}
        flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command(self.module, flags),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> int:
        """Ask the driver to stop; its status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """End all."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.close()
        self.producer.close(timeout=5)

    def send(self, *values: tuple[int, int], partition: int = 0) -> int:
        """Insert pairs, one a nanosecond, and promise both partitions' progress; the frontier that covers them."""
        updates = []
        for key, value in values:
            updates.append([[key, value], str(self.time), 1])
            self.totals[key] += value
            self.time += 1
        if updates:
            self.raw(json.dumps({"v": 1, "t": updates[0][1], "u": updates}).encode(), partition)
        for each in (0, 1):
            self.raw(json.dumps({"v": 1, "p": {"lower": ["0"], "upper": [str(self.time)]}}).encode(), each)
        return self.time

    def raw(self, value: bytes | None, partition: int = 0) -> None:
        """Send one message."""
        self.producer.send(self.topic, key=b"k", value=value, partition=partition).get(60)

    def wait(self, what: Callable[[], Any]) -> Any:
        """Wait until something holds; the driver must live meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while not (answer := what()):
            alive = self.process is None or self.process.poll() is None
            log = (self.folder / "log").read_text("utf-8", "replace")[-3000:]
            assert alive, log
            assert time.monotonic() < deadline, log
            threading.Event().wait(0.05)
        return answer

    def final(self, frontier: int) -> None:
        """Wait until everything before `frontier` is answered, and compare."""
        self.wait(lambda: self.frontier() >= frontier)
        assert self.reader.snapshot is not None
        view = self.reader.snapshot.views["sums"]
        rows = view.rows_as_of(frontier - 1).flat().rows.tolist()
        assert {key: total for key, total, _ in rows} == dict(self.totals)

    def frontier(self) -> int:
        """How far the committed answers go."""
        self.reader.poll()
        return self.reader.snapshot.frontier if self.reader.snapshot else MIN_TIME

    def epoch(self) -> int:
        """The newest committed epoch."""
        self.reader.poll()
        return self.reader.snapshot.manifest.epoch if self.reader.snapshot else 0

    def silence(self) -> float:
        """Seconds since the newest commit; the service's heartbeat makes two a second while it can."""
        self.reader.poll()
        assert self.reader.snapshot is not None
        return (time.time_ns() - self.reader.snapshot.manifest.committed_ns) / 1e9

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, without the daemon that they are forked from."""
        assert self.process is not None
        found = []
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "vernier.service.cluster.daemon" in one.cmdline():
                    found.append(one)
        return [one for one in found if any(one.ppid() == other.pid for other in found)]
