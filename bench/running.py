"""Runs the demonstration for a benchmark: its processes by name, and the answers that it must give.

The embedded broker, the service and a producer in a separate process work in the caller's folder, so that all files
which they make can be counted, including temporary ones.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from vernier.service.config.settings import Loaded, Settings, load
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.producer.topic_end import read_topic_end
from vernier.service.supervision.child import Child
from vernier.service.supervision.demo_producer import ROOTS, MovingGraph
from vernier.service.supervision.supervisor import Supervisor

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs" / "demo.yaml"
TOPIC = "graph"
VIEWS = ("reach", "distances", "histogram")
_MODULES = {
    "vernier.service.coordinator.driver": "driver",
    "vernier.service.sidecar": "sidecar",
    "vernier.service.supervision.demo_producer": "producer",
}


@dataclass
class Running:
    """The service that runs. folder: has state, kafka, logs and tmp."""

    settings: Settings
    supervisor: Supervisor
    folder: Path

    @property
    def url(self) -> str:
        """Where the sidecar answers."""
        return self.supervisor.url

    def processes(self) -> dict[str, psutil.Process]:
        """The processes of the service by their role; workers are numbered in the order of their ids."""
        found: dict[str, psutil.Process] = {}
        workers = []
        for one in psutil.Process().children(recursive=True):
            try:
                line, above = one.cmdline(), one.parent()
                name = _role(line)
                if name == "worker":
                    # Spark's daemon forks the workers, so they have its command line.
                    if above is not None and _role(above.cmdline()) == "worker":
                        workers.append(one)
                        continue
                    name = "daemon"
            except psutil.Error:
                continue
            if name is not None:
                found[name] = one
        return found | {f"worker {i}": one for i, one in enumerate(sorted(workers, key=lambda w: w.pid), 1)}

    def child(self, name: str) -> Child:
        """One of the supervisor's processes."""
        return next(child for child in self.supervisor.children if child.name == name)

    def stop_producer(self) -> tuple[int, int]:
        """End the input. Returns the number of changes, and the data time that the frontier will reach."""
        producer = self.child("producer")
        producer.left = True
        if producer.process is not None:
            producer.process.terminate()
            producer.process.wait(30)
        end = read_topic_end(self.settings.kafka_client(), TOPIC)
        if end.upper is None:
            raise SystemExit("bench: the producer has sent nothing")
        return end.position, end.upper

    def wait_for(self, frontier: int, seconds: float = 120) -> None:
        """Wait until the answers are final before that time. Ends the program if that takes too long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if int(httpx.get(f"{self.url}/v1/frontiers", timeout=30).json()["upper"][0]) >= frontier:
                return
            time.sleep(0.1)
        raise SystemExit(f"bench: the frontier did not come to {frontier} within {seconds:g} s")

    def rows(self) -> dict[str, dict[tuple[int, ...], int]]:
        """The rows of all views with their multiplicities, at one time."""
        answer = httpx.get(f"{self.url}/v1/read?views={','.join(VIEWS)}&limit=100000", timeout=30).json()
        return {
            name: {tuple(v for k, v in row.items() if k != "_diff"): row.get("_diff", 1) for row in view["rows"]}
            for name, view in answer["views"].items()
        }


def _role(line: list[str]) -> str | None:
    if line and line[0].endswith("java"):
        return (
            "broker"
            if "kafka.Kafka" in line
            else "driver's JVM"
            if any("SparkSubmit" in part or part.endswith("PythonGatewayServer") for part in line)
            else None
        )
    if "vernier.service.cluster.daemon" in line:
        return "worker"
    return next((name for module, name in _MODULES.items() if module in line), None)


def recount(changes: int) -> dict[str, dict[tuple[int, ...], int]]:
    """The correct views after a number of changes, computed by walking the graph."""
    graph = MovingGraph()
    ahead: dict[int, list[int]] = {}
    for index in range(max(0, changes - graph.edges), changes):
        source, target = graph.edge(index)
        ahead.setdefault(source, []).append(target)
    distance = dict.fromkeys(ROOTS, 0)
    waiting = deque(ROOTS)
    while waiting:
        node = waiting.popleft()
        for target in ahead.get(node, ()):
            if target not in distance:
                distance[target] = distance[node] + 1
                waiting.append(target)
    histogram: dict[int, int] = {}
    for far in distance.values():
        histogram[far] = histogram.get(far, 0) + 1
    return {
        "reach": dict.fromkeys(((node,) for node in distance), 1),
        "distances": dict.fromkeys(distance.items(), 1),
        "histogram": dict.fromkeys(histogram.items(), 1),
    }


def flags_of(broker: EmbeddedBroker, folder: str, workers: int) -> dict[str, str]:
    """Settings of a service on a broker that runs already, with its state in a folder and a port of its own."""
    return {
        "workers": str(workers),
        "kafka.embedded": "false",
        "kafka.bootstrap": broker.bootstrap,
        "state.path": f"{folder}/state",
        "http.port": str(free_port()),
    }


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def serving(
    loaded: Loaded, config: Path | None, flags: Mapping[str, Any], more: Sequence[Callable[[Supervisor], Child]] = ()
) -> Iterator[Supervisor]:
    """A service, ready, for as long as the block runs. more: processes beside its own."""
    supervisor = Supervisor(loaded, config, flags, lambda line: None, more)
    ready = threading.Event()
    thread = threading.Thread(target=supervisor.run, args=(ready.set,))
    thread.start()
    try:
        while not ready.wait(0.1):
            if not thread.is_alive():
                raise SystemExit("bench: the service did not start")
        yield supervisor
    finally:
        supervisor.stop()
        thread.join()


@contextmanager
def demonstration(
    folder: Path, *, rate: float, workers: int = 2, retain: str | None = None, set_: Mapping[str, str] = {}
) -> Iterator[Running]:
    """Run it for as long as the block does. rate: changes a second; retain: history instead of the program's own."""
    os.chdir(ROOT)
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    os.environ["TMPDIR"] = str(temporary)
    program = ROOT / "configs" / "demo.py"
    if retain is not None:
        own = folder / "demo.py"
        text = program.read_text("utf-8")
        own.write_text(text.replace('retain="10m"', f'retain="{retain}"'), "utf-8")
        program = own
    with EmbeddedBroker(folder / "kafka") as broker:
        flags: dict[str, Any] = {
            "program": str(program),
            "workers": str(workers),
            "kafka.embedded": "false",
            "kafka.bootstrap": broker.bootstrap,
            "state.path": f"{folder}/state",
            "http.port": free_port(),
            **set_,
        }
        loaded = load(CONFIG, flags, {})

        def producer(supervisor: Supervisor) -> Child:
            arguments = [*supervisor.passed_on(), "--rate", f"{rate:g}"]
            log = supervisor.settings.log_directory / "producer.log"
            return Child(
                "producer",
                "vernier.service.supervision.demo_producer",
                arguments,
                log,
                lambda: True,
                stop_seconds=10,
                last=True,
            )

        with serving(loaded, CONFIG, flags, [producer]) as supervisor:
            yield Running(loaded.settings, supervisor, folder)
