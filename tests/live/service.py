"""A live service as a user has it: `vernier up` in processes of its own, real broker, real Spark, real files."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml
from kafka import KafkaProducer

from tests.live.truth import Truth

ROOT = Path(__file__).resolve().parents[2]
NODES, EDGES = 60, 110
ROLES = ("worker", "daemon", "driver", "jvm", "sidecar", "publisher", "broker", "supervisor")
_MODULES = {
    "vernier.service.coordinator.driver": "driver",
    "vernier.service.sidecar": "sidecar",
    "vernier.service.sinks": "publisher",
    "kafka.Kafka": "broker",
}
_TAG = "SERVICE_UNDER_TEST"
"""The variable by which a service's processes are found."""
PATIENCE = 150.0
"""Seconds that anything may take before the test gives up; never part of a result."""


def free_port() -> int:
    """A loopback port that no process uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(what: str, ask: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Ask until the answer is true; raises AssertionError naming `what` when it never is."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            answer = ask()
        except (httpx.HTTPError, psutil.Error):
            answer = None
        if answer:
            return answer
        threading.Event().wait(0.05)
    raise AssertionError(f"{what}: not within {patience:.0f} s")


class Feeder(threading.Thread):
    """Sends a random graph in motion, in the native format with progress, and writes down what it sent."""

    def __init__(self, bootstrap: str, partitions: int, rate: float, seed: int, truth: Truth) -> None:
        super().__init__(daemon=True)
        self.partitions, self.rate, self.truth = partitions, rate, truth
        self.random = random.Random(seed)
        self.stopped = threading.Event()
        self.failure: BaseException | None = None
        self.frontier = 0
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=int(PATIENCE * 1000),
            max_block_ms=int(PATIENCE * 1000),
        )

    def run(self) -> None:
        """Send until stopped; the newest progress covers everything sent."""
        live: list[tuple[int, int]] = []
        last = time.time_ns()
        turn = 0
        sent: list[Any] = []
        try:
            while not self.stopped.wait(0.02):
                begun, last = last, max(time.time_ns(), last + 1)
                updates: dict[int, dict[str, list[Any]]] = {}

                def put(source: str, row: tuple[int, ...], at: int, diff: int, turn: int) -> None:
                    self.truth.log.append((source, row, at, diff))
                    bucket = updates.setdefault(turn % self.partitions, {})  # noqa: B023
                    bucket.setdefault(source, []).append([list(row), str(at), diff])

                if turn == 0:
                    put("roots", (0,), begun, 1, 0)
                for step in range(max(1, int(self.rate * 0.02))):
                    edge = (self.random.randrange(NODES), self.random.randrange(NODES))
                    at = begun + step * ((last - begun) // 16)
                    turn += 1
                    put("edges", edge, at, 1, turn)
                    live.append(edge)
                    if len(live) > EDGES:
                        put("edges", live.pop(0), at, -1, turn)
                    if self.random.random() < 0.02:
                        root = (self.random.randrange(NODES),)
                        put("roots", root, at, 1, turn)
                        put("roots", root, at + (last - begun) // 16, -1, turn)
                for partition in range(self.partitions):
                    for source, batch in updates.get(partition, {}).items():
                        low = min(int(update[1]) for update in batch)
                        self._send(sent, partition, {"v": 1, "t": str(low), "input": source, "u": batch})
                    self._send(sent, partition, {"v": 1, "p": {"lower": [str(begun)], "upper": [str(last)]}})
                sent = [future for future in sent if not future.is_done or future.failed()]
                for future in sent:
                    if future.is_done:
                        future.get(0)
                self.frontier = last
            self.producer.flush(timeout=PATIENCE)
            for future in sent:
                future.get(timeout=PATIENCE)
        except BaseException as error:
            self.failure = error
        finally:
            self.producer.close()

    def _send(self, sent: list[Any], partition: int, message: dict[str, Any]) -> None:
        sent.append(self.producer.send("graph", json.dumps(message).encode(), partition=partition))

    def stop(self) -> None:
        """Stop and wait until all is acknowledged; raises what went wrong."""
        self.stopped.set()
        self.join(PATIENCE)
        if self.failure is not None:
            raise self.failure


def still_running(processes: list[psutil.Process], patience: float) -> list[psutil.Process]:
    """Those that have not ended after `patience` seconds.

    One whose parent was killed has ended as soon as it is a zombie: only `init` can remove it, in its own time.
    """
    _, left = psutil.wait_procs(processes, timeout=patience)
    alive = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


class Service:
    """`vernier up` on folders of its own. As a context manager it ends all that it started.

    program: instead of the demonstration's. settings: instead of those below. enter: what the process does before it
    becomes `vernier up`, such as joining a control group.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        program: Path = ROOT / "configs" / "demo.py",
        enter: Callable[[], None] | None = None,
        patience: float = PATIENCE,
        **settings: Any,
    ) -> None:
        self.folder, self.workers, self.program, self.enter = folder, workers, program, enter
        self.patience = patience
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.url = f"http://127.0.0.1:{free_port()}"
        event = {"topic": "graph", "format": "vernier", "clock": "event"}
        self.config = folder / "service.yaml"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "workers": workers,
                    "kafka": {"bootstrap": self.bootstrap, "embedded": True, "data": str(folder / "kafka")},
                    "sources": {"edges": event, "roots": event},
                    "state": {"path": str(folder / "state")},
                    "exchange": {"encrypt": True},
                    "http": {"port": int(self.url.rsplit(":", 1)[1])},
                    **settings,
                }
            )
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.output = (folder / "up.log").open("ab")

    def __enter__(self) -> "Service":
        try:
            self.start()
        except BaseException:
            # One that was not up in time must not run on beside the next test's.
            self.__exit__()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        if kind is not None:
            # pytest shows this beside the failure; the folder is gone when somebody reads it.
            print((self.folder / "up.log").read_text(errors="replace")[-4000:])
            print([(process.pid, role) for process, role in self.family()])
        self.stop()
        self.output.close()

    def start(self) -> None:
        """Start, and wait until every view answers."""
        self.launch()
        wait_for(f"the service is up (see {self.folder}/up.log)", self.alive, self.patience)

    def launch(self) -> None:
        """Start, and wait for nothing."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vernier", "up", str(self.program), "--config", str(self.config)],
            cwd=ROOT,
            stdout=self.output,
            stderr=self.output,
            env={**os.environ, _TAG: str(self.folder)},
            preexec_fn=self.enter,
        )

    def alive(self) -> bool:
        """Whether the sidecar answers and knows a frontier."""
        assert self.process is not None
        assert self.process.poll() is None, f"vernier up ended: {(self.folder / 'up.log').read_text()[-2000:]}"
        return bool(httpx.get(f"{self.url}/v1/frontiers", timeout=2).status_code == 200)

    def stop(self) -> None:
        """Ctrl-C; kills what is left after a while."""
        if self.process is None:
            return
        family = [process for process, role in self.family() if role != "supervisor"]
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        alive = still_running(family, 10)
        for process in alive:
            process.kill()
        self.process = None
        assert not alive, f"left behind after Ctrl-C: {alive}"

    # --- processes ----------------------------------------------------------------------------------------------------

    def processes(self, role: str) -> list[psutil.Process]:
        """The processes of a role: one of `ROLES`."""
        return [process for process, name in self.family() if name == role]

    def family(self) -> list[tuple[psutil.Process, str]]:
        """All processes of the service with their roles, `other` for those that have none.

        They are known by their environment: a process whose parent was killed has another parent, but still runs.
        """
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(_TAG) == str(self.folder):
                    mine = self.process is not None and process.pid == self.process.pid
                    found.append((process, "supervisor" if mine else _role(process)))
        return found

    def kill_all(self) -> None:
        """End every process of the service at once, as a power cut does."""
        family = [process for process, _ in self.family()]
        for process in family:
            # The kill of one ends those that wait for it.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self.process is not None:
            self.process.wait()
        psutil.wait_procs(family, timeout=10)

    def kill(self, role: str, chance: random.Random) -> int:
        """`kill -9` one process of a role, once there is one; returns its id."""
        victim: psutil.Process = chance.choice(wait_for(f"a {role} process", lambda: self.processes(role)))
        os.kill(victim.pid, signal.SIGKILL)
        return victim.pid

    # --- answers ------------------------------------------------------------------------------------------------------

    def frontier(self) -> int:
        """The frontier of all views; 0 while the sidecar does not answer."""
        try:
            body = httpx.get(f"{self.url}/v1/read", params={"views": "reach,distances,histogram"}, timeout=5)
            return int(body.json()["frontier"]) if body.status_code == 200 else 0
        except httpx.HTTPError:
            return 0

    def read(self, as_of: int | None = None) -> tuple[int, dict[str, set[tuple[int, ...]]]] | None:
        """(data time, rows of every view at it); None while the sidecar does not answer."""
        params = {"views": "reach,distances,histogram", "limit": "10000"}
        if as_of is not None:
            params["as_of"] = str(as_of)
        try:
            answer = httpx.get(f"{self.url}/v1/read", params=params, timeout=5)
        except httpx.HTTPError:
            return None
        if answer.status_code != 200:
            return None
        body = answer.json()
        columns = {"reach": ("node",), "distances": ("node", "distance"), "histogram": ("distance", "nodes")}
        views: dict[str, set[tuple[int, ...]]] = {}
        for view, names in columns.items():
            rows = body["views"][view]["rows"]
            views[view] = {tuple(row[name] for name in names) for row in rows}
            assert len(views[view]) == len(rows), f"{view} has a row twice: {rows}"
            assert all(set(row) == set(names) for row in rows), f"{view} has a row not exactly once: {rows}"
        return int(body["as_of"]), views


def _role(process: psutil.Process) -> str:
    line = process.cmdline()
    if "vernier.service.cluster.daemon" in line:
        # The daemon's children, forked from it, are the workers, which may outlive it; the daemon itself is the JVM's.
        parent = process.parent()
        return "daemon" if parent is not None and parent.name() == "java" else "worker"
    if any("SparkSubmit" in part or part.endswith("PythonGatewayServer") for part in line):
        return "jvm"
    return next((role for module, role in _MODULES.items() if module in line), "other")
