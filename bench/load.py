"""Load on the sidecar while the pipeline runs at the demonstration's rate, and what that does to the pipeline.

`python -m bench.load --seconds 60`: one service; after a warm-up, phases of that length each: nothing but a probe,
look-ups as fast as they are answered (by `wrk`, from another process), 1,000 change streams of which some stop reading
(`bench.clients`), look-ups and streams together, nothing again; then shorter ones with other requests. Each phase
reports the answers and their latency, the time from commit to commit, the CPU that each process used, and the waiting
time of a client that looks a key up 200 times a second. Prints one JSON line. It uses the whole machine: compare
nothing if others use it, too.

`wrk` is a Debian package (`apt-get install wrk`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from bench.record import tell
from bench.running import Running, demonstration

SUBSCRIBER_BYTES = 1 << 20
"""Less than the default, so that a pause of seconds is already too slow."""
PHASES = "nothing,look_ups,streams,both,nothing_again,others"
_SCRIPT = """
math.randomseed(os.time())
local paths, body = {paths}, {body}
request = function()
  local path = paths[math.random(#paths)]:gsub("#", function() return math.random(0, 999) end)
  if body then
    return wrk.format("POST", path, {{["content-type"] = "application/json"}}, body)
  end
  return wrk.format("GET", path)
end
done = function(summary, latency)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format('{{"requests":%d,"us":%d,"p50_us":%d,"p99_us":%d,"failed":%d,"mb":%.1f}}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), failed,
    summary.bytes / 1048576))
end
"""


class Phase:
    """One phase: starts its clients, and reports at the end their results and those of the pipeline."""

    def __init__(self, running: Running, seconds: float) -> None:
        self.running, self.seconds = running, seconds
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._scripts = running.folder / "tmp"
        self.client("probe", "probe", f"{running.url}/v1/views/distances/rows/0", "--seconds", str(seconds))

    def client(self, name: str, *arguments: str) -> None:
        """A client of bench.clients."""
        command = [sys.executable, "-m", "bench.clients", *arguments]
        self._clients[name] = subprocess.Popen(command, stdout=subprocess.PIPE)

    def wrk(self, name: str, paths: list[str], connections: int, body: str | None = None) -> None:
        """As fast as the sidecar answers, on a number of connections; a # in a path stands for a random node."""
        command = wrk_command(self._scripts, self.running.url, paths, connections, self.seconds, body)
        self._clients[name] = subprocess.Popen(command, stdout=subprocess.PIPE)

    def finish(self) -> dict[str, Any]:
        """Wait for the clients; returns all measurements."""
        began, before, epoch = time.monotonic(), cpu(self.running), newest(self.running)
        clients = {name: psutil.Process(one.pid) for name, one in self._clients.items()}
        spent: dict[str, float] = {}
        while time.monotonic() - began < self.seconds:
            time.sleep(min(1.0, self.seconds))
            spent |= {name: used for name, one in clients.items() if (used := seconds_of(one)) is not None}
        steps = commits(self.running, epoch)
        took, after = time.monotonic() - began, cpu(self.running)
        found: dict[str, Any] = {
            "epochs": len(steps),
            "epoch_ms_p50": round(float(np.quantile(steps, 0.5))) if steps else None,
            "epoch_ms_p99": round(float(np.quantile(steps, 0.99))) if steps else None,
            "cpu": {name: round((after[name] - before.get(name, 0)) / took, 3) for name in after}
            | {name: round(used / took, 3) for name, used in spent.items()},
        }
        for name, one in self._clients.items():
            lines = [line for line in one.communicate()[0].decode().splitlines() if line.startswith("{")]
            if one.returncode or not lines:
                raise SystemExit(f"bench: {name} failed with status {one.returncode}")
            found[name] = medians_of(json.loads(lines[-1]))
            if "a_second" in found[name]:
                found[name]["a_second_of_sidecar_cpu"] = round(found[name]["a_second"] / found["cpu"]["sidecar"])
        return found


def wrk_command(
    folder: Path, url: str, paths: list[str], connections: int, seconds: float, body: str | None = None
) -> list[str]:
    """The command of wrk with our script, which is written into the folder; its last line is then JSON. Without wrk
    (on Debian `apt-get install wrk`) bench.clients sends the requests, which is slower."""
    if shutil.which("wrk") is None:
        asked = ["--connections", str(connections), "--seconds", f"{seconds:g}", *(["--body", body] if body else [])]
        return [sys.executable, "-m", "bench.clients", "ask", url, *asked, "--paths", *paths]
    script = folder / f"{time.monotonic_ns()}.lua"
    listed = "{" + ", ".join(json.dumps(path) for path in paths) + "}"
    quoted = "nil" if body is None else f"[==[{body}]==]"
    script.write_text(_SCRIPT.format(paths=listed, body=quoted), "utf-8")
    return ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", str(script), url]


def medians_of(result: dict[str, Any]) -> dict[str, Any]:
    """wrk's numbers as rates and milliseconds; others as they are."""
    if "us" not in result:
        return result
    return {
        "a_second": round(result["requests"] / result["us"] * 1e6),
        "p50_ms": round(result["p50_us"] / 1e3, 2),
        "p99_ms": round(result["p99_us"] / 1e3, 2),
        "failed": result["failed"],
        "mb": result["mb"],
    }


def seconds_of(process: psutil.Process) -> float | None:
    """CPU seconds that a process has used; None when it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)


def cpu(running: Running) -> dict[str, float]:
    """CPU seconds so far by process."""
    found = {name: seconds_of(process) for name, process in running.processes().items()}
    return {name: used for name, used in found.items() if used is not None}


def newest(running: Running) -> int:
    """The newest epoch."""
    return int(httpx.get(f"{running.url}/v1/frontiers", timeout=60).json()["epoch"])


def commits(running: Running, after: int) -> list[float]:
    """Milliseconds from commit to commit after an epoch."""
    notes = httpx.get(f"{running.url}/v1/epochs?after={after}&limit=1200", timeout=60).json()["epochs"]
    return list(np.diff([int(note["committed"]) for note in notes]) / 1e6)


def questions(url: str) -> dict[str, tuple[list[str], str | None]]:
    """Other requests: paths and a body."""
    frontier = int(httpx.get(f"{url}/v1/frontiers", timeout=60).json()["upper"][0])
    past = [frontier - int(back * 1e9) for back in (2, 4, 8, 12, 16, 20, 24, 28)]
    return {
        "keys_100": (["/v1/views/distances/rows"], json.dumps({"keys": list(range(100))})),
        "page_100": (["/v1/views/distances?limit=100"], None),
        "page_where": (["/v1/views/distances?where=distance:eq:5&limit=100"], None),
        "key_as_of": ([f"/v1/views/distances/rows/#?as_of={at}" for at in past], None),
        "page_as_of": ([f"/v1/views/distances?limit=100&as_of={at}" for at in past], None),
    }


def asking(paths: list[str], body: str | None) -> Callable[[Phase], None]:
    """Begins a phase with one kind of request on four connections."""
    return lambda one: one.wrk("asked", paths, 4, body)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of each of the first phases")
    parser.add_argument("--rate", type=float, default=1_000, help="changes a second")
    parser.add_argument("--connections", type=int, default=4, help="of wrk")
    parser.add_argument("--subscribers", type=int, default=1_000)
    parser.add_argument("--slow", type=int, default=20, help="change streams that stop reading for half of the time")
    parser.add_argument("--phases", default=PHASES, help="some of them, in their order")
    parser.add_argument("--warm", type=float, default=30, help="seconds before the first phase")
    given = parser.parse_args()
    result: dict[str, Any] = {"bench": "load", "rate": given.rate, "seconds": given.seconds}
    with (
        tempfile.TemporaryDirectory(prefix="load-") as folder,
        demonstration(Path(folder), rate=given.rate, set_={"http.subscriber_bytes": str(SUBSCRIBER_BYTES)}) as running,
    ):
        time.sleep(given.warm)

        def phase(name: str, begin: Callable[[Phase], None], seconds: float = given.seconds) -> None:
            one = Phase(running, seconds)
            begin(one)
            result[name] = one.finish() | {"load": round(os.getloadavg()[0], 1)}
            print(f"bench: {name} {json.dumps(result[name])}", file=sys.stderr, flush=True)

        def look_up(one: Phase) -> None:
            one.wrk("look_ups", ["/v1/views/distances/rows/#"], given.connections)

        def stream(one: Phase) -> None:
            many = ["--count", str(given.subscribers), "--slow", str(given.slow), "--seconds", str(given.seconds)]
            one.client("streams", "streams", running.url, *many)

        def both(one: Phase) -> None:
            look_up(one)
            stream(one)

        begin: dict[str, Callable[[Phase], None]] = {
            "nothing": lambda one: None,
            "look_ups": look_up,
            "streams": stream,
            "both": both,
            "nothing_again": lambda one: None,
        }
        wanted = given.phases.split(",")
        for name in wanted:
            if name in begin:
                phase(name, begin[name])
        if "others" in wanted:
            for name, (paths, body) in questions(running.url).items():
                phase(name, asking(paths, body), given.seconds / 6)
        scraped = httpx.get(f"{running.url}/metrics", timeout=60).text.splitlines()
        dropped = [float(line.split()[-1]) for line in scraped if line.startswith("vernier_subscribers_dropped_total{")]
    result["dropped_counted"] = int(sum(dropped))
    idle = [result[name]["epoch_ms_p99"] for name in ("nothing", "nothing_again") if name in result]
    result["epoch_p99_ratio"] = {
        name: round(result[name]["epoch_ms_p99"] / (sum(idle) / len(idle)), 2)
        for name in ("look_ups", "streams", "both")
        if name in result and idle
    }
    tell(result)


if __name__ == "__main__":
    main()
