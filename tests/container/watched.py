"""A live service in which everything happens that is counted, and a real Prometheus that scrapes it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

import httpx
import yaml
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests import debian
from tests.container.provisioned import DOCKER
from tests.live.service import ROOT, Service, free_port, wait_for

PARTITIONS = 2
MINUTE = 60_000_000_000
PLANTED = """
import ctypes
from vernier.service.ingest import formats
from vernier.service.ingest.formats.native import Native

class Planted(Native):
    def decode(self, values, heap=None):
        if b"kill" in values.to_pylist():
            ctypes.string_at(0)
        return super().decode(values, heap)

formats.FORMATS["vernier"] = Planted
"""
"""Makes one message kill the process that decodes it."""


def program(name: str) -> str:
    """Prometheus, or its tool."""
    return debian.program(lambda: shutil.which(name), "prometheus", name)


class Watched:
    """The demonstration's service. Its edges and roots come from here; `sent` counts their updates by source and sign.

    As a context manager it starts and ends all. Data times begin twenty minutes ago.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        text = (ROOT / "configs/demo.py").read_text("utf-8")
        (folder / "program.py").write_text(text.replace("import vernier as vn\n", f"import vernier as vn\n{PLANTED}"))
        event = {"topic": "graph", "format": "vernier", "clock": "event", "on_lost": "skip"}
        self.service = Service(
            folder,
            PARTITIONS,
            folder / "program.py",
            sources={"edges": event, "roots": event},
            epoch={"quarantine_ms": 1_000},
        )
        self.time = time.time_ns() - 20 * MINUTE
        self.sent: Counter[tuple[str, str]] = Counter()
        self.prometheus = f"http://127.0.0.1:{free_port()}"
        self._ended = threading.Event()
        self._subscriber = threading.Thread(target=self._subscribe, daemon=True)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.service.__enter__()
        self.producer = KafkaProducer(bootstrap_servers=self.service.bootstrap, acks="all")
        self._start_prometheus()
        self._subscriber.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
        self.producer.close(timeout=5)
        self.service.__exit__()

    # --- what happens -------------------------------------------------------------------------------------------------

    def send(self, source: str, *updates: tuple[tuple[int, ...], int]) -> None:
        """Send updates (row, diff), each at a data time of its own."""
        for number, (row, diff) in enumerate(updates):
            self.sent[source, "+" if diff > 0 else "-"] += abs(diff)
            self.raw({"v": 1, "t": str(self.time), "input": source, "u": [[list(row), str(self.time), diff]]}, number)
            self.time += 1

    def raw(self, message: object, number: int = 0) -> None:
        """Send one message, of bytes or JSON."""
        value = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.producer.send("graph", value=value, partition=number % PARTITIONS)

    def promise(self) -> None:
        """Promise that nothing comes before the time that was reached."""
        for partition in range(PARTITIONS):
            self.raw({"v": 1, "p": {"lower": ["0"], "upper": [str(self.time)]}}, partition)
        self.producer.flush()

    def final(self) -> None:
        """Wait until all that was sent is final."""
        self.promise()
        wait_for("all is final", lambda: self.service.frontier() >= self.time)

    def control(self, desired: str) -> None:
        """Pause or resume, and wait until it is so."""
        answer = httpx.post(f"{self.service.url}/v1/control/{desired}", params={"wait_ms": 60_000}, timeout=90)
        assert answer.status_code == httpx.codes.OK, answer.text

    def lose(self) -> int:
        """Remove messages before an epoch has read them; how many."""
        self.control("pause")
        for partition in range(PARTITIONS):
            self.raw({"v": 1, "p": {"lower": ["0"], "upper": [str(self.time)]}}, partition)
        self.producer.flush()
        end = self.producer.send("graph", b"{}", partition=0).get(60).offset + 1
        admin = KafkaAdminClient(bootstrap_servers=self.service.bootstrap)
        try:
            admin.delete_records({TopicPartition("graph", 0): end})
        finally:
            admin.close()
        self.control("resume")
        return 2

    def _subscribe(self) -> None:
        """Read a change stream until the service ends."""
        try:
            with httpx.stream("GET", f"{self.service.url}/v1/views/reach/changes", timeout=None) as stream:
                for _ in stream.iter_lines():
                    if self._ended.is_set():
                        return
        except httpx.HTTPError:
            return

    # --- what is said of it -------------------------------------------------------------------------------------------

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The newest samples of /metrics, by name without the prefix and labels."""
        text = httpx.get(f"{self.service.url}/metrics", timeout=30).text
        return {
            (sample.name.removeprefix("vernier_"), frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def total(self, metric: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        wanted = set(labels.items())
        return sum(value for (name, found), value in self.metrics().items() if name == metric and wanted <= found)

    def asked(self, query: str) -> list[Any]:
        """What Prometheus answers to an instant query; nothing while it starts."""
        try:
            answer = httpx.get(f"{self.prometheus}/api/v1/query", params={"query": query}, trust_env=False, timeout=10)
        except httpx.HTTPError:
            return []
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return []  # It listens before it has read its log.
        body = answer.json()
        assert body["status"] == "success", (query, body)
        found: list[Any] = body["data"]["result"]
        return found

    def scrape(self) -> None:
        """Wait until Prometheus has seen the service as it is now, twice."""
        now = time.time()
        for _ in range(2):
            wait_for("a scrape", lambda: any(float(one["value"][1]) > now for one in self.asked("timestamp(up)")))  # noqa: B023
            now = time.time()

    def _start_prometheus(self) -> None:
        config = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text("utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (job,) = config["scrape_configs"]
        job["static_configs"] = [{"targets": [self.service.url.removeprefix("http://")]}]
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
        shutil.copy(DOCKER / "prometheus/alerts.yml", self.folder)
        with open(self.folder / "prometheus.log", "wb") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'tsdb'}",
                    f"--web.listen-address={self.prometheus.removeprefix('http://')}",
                ],
                stdout=log,
                stderr=log,
            )
        wait_for("prometheus scrapes", lambda: self.asked("up == 1"))
