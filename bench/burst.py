"""A burst of a hundred times the normal rate: memory of every process, lag and epochs over time, and the answers.

`python -m bench.burst --rate 100 --times 100 --seconds 15 --plot FILE`: one event a message, counted and summed by one
of 1,000 keys, through the whole service; a calm half minute, the burst, and then the normal rate until everything is
processed and a while longer. In the end every key's count and sum are compared with what was sent. Prints one JSON
line: the resident MB of each process before, at most during and after the burst, the largest lag, how long it took to
process it, and the range of the limit of messages in an epoch.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from kafka import KafkaProducer

from bench.record import tell
from bench.running import free_port
from vernier.service.client.client import connect
from vernier.service.config.settings import load
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.supervision.supervisor import Supervisor

KEYS = 1_000
STEP_SECONDS = 0.05
SAMPLE_SECONDS = 0.5
PATIENCE = 900.0
PROGRAM = """
import vernier as vn

class Event(vn.Schema):
    key: vn.Int64
    value: vn.Int64

app = vn.App("burst", retain="10s")
events = app.source("events", Event)
app.view("sums", events.group_by("key").agg(n=vn.count(), total=vn.sum("value")), key=["key"])
"""


@dataclass
class Sender:
    """Sends events at a rate that changes, and keeps the counts and sums."""

    bootstrap: str
    rate: float
    count: list[int] = field(default_factory=lambda: [0] * KEYS)
    total: list[int] = field(default_factory=lambda: [0] * KEYS)
    sent: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send until stopped; a step that was late is made up for in the next one."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks=1, linger_ms=20, batch_size=1 << 17)
        last = time.monotonic()
        while not self.stop.wait(STEP_SECONDS):
            now = time.monotonic()
            for _ in range(round((now - last) * self.rate)):
                key, value = self.sent * 7919 % KEYS, self.sent % 1013 - 500
                producer.send("events", b'{"key":%d,"value":%d}' % (key, value))
                self.count[key] += 1
                self.total[key] += value
                self.sent += 1
            last = now
        producer.close()


@dataclass
class Watch:
    """A sample, taken twice a second: seconds since the beginning, lag, limit, and resident MB by process."""

    url: str
    began: float
    points: list[dict[str, Any]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Sample until stopped."""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=10) as http:
            while not self.stop.wait(SAMPLE_SECONDS):
                try:
                    text = http.get("/metrics").text
                except httpx.HTTPError:
                    continue
                self.points.append({
                    "at": time.monotonic() - self.began,
                    "lag": sum(_values(text, "vernier_source_lag_messages")),
                    "limit": max(_values(text, "vernier_epoch_limit_messages"), default=0),
                    "epochs": sum(_values(text, 'vernier_epochs_total{outcome="committed"}')),
                    "mb": resident(),
                })  # fmt: skip


def _values(text: str, name: str) -> list[float]:
    return [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name)]


def resident() -> dict[str, float]:
    """Resident MB of this service's processes, by their role."""
    found: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            line, parent = process.cmdline(), process.parent()
            role = None
            if "vernier.service.cluster.daemon" in line:
                # Workers are forked from the daemon and share its pages: only their own pages count.
                forked = parent is not None and "vernier.service.cluster.daemon" in parent.cmdline()
                role = "workers" if forked else None
            elif "vernier.service.coordinator.driver" in line:
                role = "driver (python)"
            elif "vernier.service.sidecar" in line:
                role = "sidecar"
            elif "org.apache.spark.deploy.SparkSubmit" in line:
                role = "driver (java)"
            if role is not None:
                found[role] = found.get(role, 0.0) + process.memory_info().rss / 2**20
        except psutil.Error:
            continue
    return found


def run(rate: float, times: float, seconds: float, calm: float, workers: int, folder: str, sets: list[str]) -> Any:
    """(points, when the burst began and ended, what was sent, when the last event was visible)."""
    with EmbeddedBroker(Path(folder) / "kafka") as broker:
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM, "utf-8")
        flags = {
            "program": str(program),
            "workers": str(workers),
            "kafka.bootstrap": broker.bootstrap,
            "state.path": f"{folder}/state",
            "sources.events.format": "json",
            "http.port": str(free_port()),
            **dict(pair.split("=", 1) for pair in sets),
        }
        supervisor = Supervisor(load(None, flags, {}), None, flags, say=lambda line: None)
        ready = threading.Event()
        service = threading.Thread(target=supervisor.run, args=(ready.set,))
        service.start()
        sender, watch = Sender(broker.bootstrap, rate), Watch(supervisor.url, 0.0)
        threads = [threading.Thread(target=sender.run), threading.Thread(target=watch.run)]
        try:
            while not ready.wait(0.1):
                if not service.is_alive():
                    raise SystemExit("bench: the service did not start")
            watch.began = time.monotonic()
            for thread in threads:
                thread.start()
            time.sleep(calm)
            began, before = time.monotonic() - watch.began, sender.sent
            sender.rate = rate * times
            time.sleep(seconds)
            sender.rate = rate
            ended, burst = time.monotonic() - watch.began, sender.sent - before
            deadline = time.monotonic() + PATIENCE
            while watch.points[-1]["lag"] > 10 * rate + 10 and time.monotonic() < deadline:
                time.sleep(SAMPLE_SECONDS)
            level = time.monotonic() - watch.began
            time.sleep(calm / 2)
            sender.stop.set()
            threads[0].join()
            wanted = {
                key: (n, total) for key, (n, total) in enumerate(zip(sender.count, sender.total, strict=True)) if n
            }
            with connect(supervisor.url) as client:
                while (found := _answer(client)) != wanted:
                    if time.monotonic() > deadline:
                        raise SystemExit("bench: the answers are not what was sent")
                    time.sleep(SAMPLE_SECONDS)
        finally:
            sender.stop.set()
            watch.stop.set()
            supervisor.stop()
            service.join()
        return watch.points, began, ended, burst, level, sum(n for n, _ in found.values())


def _answer(client: Any) -> dict[int, tuple[int, int]]:
    return {row["key"]: (row["n"], row["total"]) for row in client.rows("sums")}


def main() -> None:
    """Run, print one line of JSON, plot."""
    parser = argparse.ArgumentParser(prog="python -m bench.burst", description=__doc__)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--times", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--calm", type=float, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the service")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        points, began, ended, burst, level, answered = run(
            given.rate, given.times, given.seconds, given.calm, given.workers, folder, given.set
        )
    roles = sorted({role for point in points for role in point["mb"]})

    def mb(role: str, since: float, until: float) -> int:
        return round(max((p["mb"].get(role, 0) for p in points if since <= p["at"] <= until), default=0))

    during = [point for point in points if began <= point["at"] <= level]
    tell({
        "rate": given.rate,
        "times": given.times,
        "burst_messages": burst,
        "burst_messages_per_s": round(burst / (ended - began)),
        "answered": answered,
        "answers": "equal what was sent",
        "lag_max": max(point["lag"] for point in during),
        "level_after_s": round(level - ended, 1),
        "epochs_during": during[-1]["epochs"] - during[0]["epochs"],
        "limit": [min(p["limit"] for p in during), max(p["limit"] for p in during)],
        "mb_before": {role: mb(role, began - 10, began) for role in roles},
        "mb_during": {role: mb(role, began, level) for role in roles},
        "mb_after": {role: mb(role, level, 1e9) for role in roles},
        "load": round(load_before, 1),
    })  # fmt: skip
    if given.plot is not None:
        plot(given.plot, points, roles, began, ended)


def plot(path: Path, points: list[dict[str, Any]], roles: list[str], began: float, ended: float) -> None:
    """Lag and limit above, memory below."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    at = [point["at"] for point in points]
    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6))
    above.plot(at, [point["lag"] for point in points], label="unread messages")
    above.plot(at, [point["limit"] for point in points], label="limit of an epoch", linestyle="--")
    above.set_ylabel("messages")
    for role in roles:
        below.plot(at, [point["mb"].get(role, 0) for point in points], label=role)
    below.set_ylabel("resident MB")
    below.set_xlabel("seconds")
    below.set_ylim(bottom=0)
    for axes in (above, below):
        axes.axvspan(began, ended, color="0.9", label="burst")
        axes.legend(loc="upper left", fontsize=8)
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
