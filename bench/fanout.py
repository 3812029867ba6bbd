"""The sidecar alone: what a look-up costs it, and an event for each of many subscribers, as seconds of its CPU.

`python -m bench.fanout --subscribers 1000 --seconds 20`: a state with one view of 1,000 rows, made through
`vernier.storage`, to which an epoch of some changes is added four times a second; the sidecar in a process of its own.
First `wrk` looks keys up as fast as they are answered, then come the subscribers, from another process, which check
their events (`bench.clients`). No Spark, no Kafka; the CPU that a process takes depends little on what else runs.
`--tree DIR` takes the sidecar from another checkout, to compare two. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.load import medians_of, seconds_of, wrk_command
from bench.record import tell
from tests.sidecar.builder import StateBuilder, row_type

ROOT = Path(__file__).resolve().parent.parent
NODES = 1_000
EPOCH_SECONDS = 0.25


class Growing:
    """Adds epochs to a state: each moves some nodes to another distance. changes: how many in an epoch."""

    def __init__(self, folder: Path, changes: int) -> None:
        schema = row_type(node="Int64", distance="Int64")
        self.builder, self.changes = StateBuilder(folder, {"distances": (schema, ["node"])}), changes
        self.at, self.distance = 0, [0] * NODES
        self._commit([((node, 0), 1, 1) for node in range(NODES)])
        self.stop = threading.Event()
        self.epochs = 0

    def run(self) -> None:
        """Until stopped."""
        turn = 0
        while not self.stop.wait(EPOCH_SECONDS):
            moved = []
            for i in range(self.changes // 2):
                node, at = turn % NODES, self.at + 1 + i
                before = self.distance[node]
                self.distance[node] = before + 1
                moved += [((node, before), at, -1), ((node, before + 1), at, 1)]
                turn += 1
            self._commit(moved)
            self.epochs += 1

    def _commit(self, changes: list[Any]) -> None:
        self.at += 10_000
        self.builder.commit(self.at, {"distances": changes}, since=max(1, self.at - 100_000), merge=True)


@contextmanager
def sidecar(state: Path, tree: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A sidecar with that tree's code over the state: its address and its process."""
    command = [
        sys.executable,
        "-m",
        "vernier.service.sidecar",
        "--state",
        str(state),
        "--port",
        "0",
        "--log-level",
        "warning",
    ]
    own = {**os.environ, "PYTHONPATH": str(tree)}
    process = subprocess.Popen(command, cwd=tree, env=own, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip().removeprefix("sidecar listening on ")
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="of the look-ups, and of the streams")
    parser.add_argument("--subscribers", type=int, default=1_000)
    parser.add_argument("--changes", type=int, default=300, help="of an epoch")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose sidecar is measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fanout-") as folder:
        growing = Growing(Path(folder) / "state", given.changes)
        thread = threading.Thread(target=growing.run)
        with sidecar(growing.builder.path, given.tree.resolve()) as (url, process):
            thread.start()
            try:
                time.sleep(2)
                quiet = share(process, given.seconds / 4)
                command = wrk_command(Path(folder), url, ["/v1/views/distances/rows/#"], 8, given.seconds)
                used = seconds_of(process) or 0.0
                ran = subprocess.run(command, capture_output=True, text=True, check=True)
                used = (seconds_of(process) or 0.0) - used - quiet * given.seconds
                look_ups = json.loads(ran.stdout.splitlines()[-1])
                many = ["--count", str(given.subscribers), "--slow", "0", "--seconds", str(given.seconds)]
                arguments = ["streams", url, "--view", "distances", *many]
                clients = subprocess.Popen([sys.executable, "-m", "bench.clients", *arguments], stdout=subprocess.PIPE)
                before, spent = seconds_of(process) or 0.0, 0.0
                began = time.monotonic()
                out = clients.communicate()[0]
                spent = (seconds_of(process) or 0.0) - before - quiet * (time.monotonic() - began)
                streams = json.loads(out)
            finally:
                growing.stop.set()
                thread.join()
                growing.builder.close()
    result = {
        "bench": "fanout",
        "tree": "this" if given.tree.resolve() == ROOT else "another",
        "epochs": growing.epochs,
        "idle_cpu_share": round(quiet, 3),
        "look_ups": medians_of(look_ups) | {"cpu_us": round(used / look_ups["requests"] * 1e6, 1)},
        "streams": streams,
        "cpu_us_an_event_and_subscriber": round(spent / streams["events"] * 1e6, 1),
        "load": round(os.getloadavg()[0], 1),
    }
    tell(result)


def share(process: psutil.Process, seconds: float) -> float:
    """The share of a core that the process uses."""
    before = seconds_of(process) or 0.0
    time.sleep(seconds)
    return ((seconds_of(process) or 0.0) - before) / seconds


if __name__ == "__main__":
    main()
