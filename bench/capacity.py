"""How many changes a second the whole service takes: the demonstration's graph, faster and faster.

`python -m bench.capacity --seconds 15 --rates 1000,2000,5000,10000`: one service; at each rate, after a warm-up, how
many changes a second become visible (a change is an edge in and an edge out) and how far the answers are behind the
clock in the end. A rate is sustained when what becomes visible keeps up with it. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from bench.record import tell
from bench.running import flags_of, serving
from vernier.service.config.settings import Settings, load
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.supervision.demo_producer import MovingGraph, produce

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "graph"


def visible(url: str) -> tuple[int, float]:
    """(updates that became visible so far, seconds that the answers are behind the clock)."""
    latency = httpx.get(f"{url}/v1/latency", timeout=30).json()
    frontier = int(httpx.get(f"{url}/v1/frontiers", timeout=30).json()["upper"][0])
    return int(latency["views"].get("histogram", {"count": 0})["count"]), (time.time_ns() - frontier) / 1e9


def at_rate(settings: Settings, url: str, rate: float, seconds: float) -> dict[str, Any]:
    """Send at a rate and count what becomes visible."""
    stop = threading.Event()
    thread = threading.Thread(target=produce, args=(settings, TOPIC, MovingGraph(), rate, stop))
    thread.start()
    try:
        time.sleep(seconds / 2)
        before, _ = visible(url)
        began = time.monotonic()
        time.sleep(seconds)
        after, behind = visible(url)
        took = time.monotonic() - began
    finally:
        stop.set()
        thread.join()
    # Let the backlog drain, so that the next rate starts without one.
    deadline = time.monotonic() + 60
    level = after
    while time.monotonic() < deadline:
        time.sleep(1)
        now, _ = visible(url)
        if now == level:
            break
        level = now
    changes = (after - before) / 2 / took
    return {
        "asked": rate,
        "visible_changes_per_s": round(changes),
        "behind_s": round(behind, 2),
        "sustained": changes >= 0.95 * rate,
    }


def main() -> None:
    """Read the arguments, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rates", default="1000,2000,5000,10000")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "kafka") as broker:
        flags = flags_of(broker, folder, given.workers)
        config = ROOT / "configs" / "demo.yaml"
        loaded = load(config, flags, {})
        with serving(loaded, config, flags) as supervisor:
            rates = [
                at_rate(loaded.settings, supervisor.url, float(rate), given.seconds) for rate in given.rates.split(",")
            ]
    load_now = round(os.getloadavg()[0], 1)
    tell({"bench": "capacity", "workers": given.workers, "load": load_now, "rates": rates})


if __name__ == "__main__":
    main()
