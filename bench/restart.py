"""Restart against the size of the state: how long until a new process gives its first answer.

For each size a state of that many edges (arranged, and their degrees) is written once; then a fresh process opens it as
a worker does, and runs an epoch of one update, which looks up and changes a key. Seconds are counted from when
Python has its imports and kernels; Spark's own start comes on top and does not depend on the state. One JSON line a
size; `--plot` draws docs/images/bench-restart.png.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.edges import random_edges
from bench.record import tell
from bench.steady import Stored, program, resident
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.shard import Shard
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME, Updates


def write(edges: int, folder: str) -> None:
    """A state of a number of edges, with batches as epochs leave them."""
    worker, stored, rows = Worker(compile_app(program())), Stored(folder), random_edges(edges)
    step = max(1, edges // 37)
    lower = MIN_TIME
    for at, first in enumerate(range(0, edges, step)):
        worker.run_epoch(lower, at + 1, {"edges": Updates.of(rows[first : first + step], at, 1)})
        lower = at + 1
        stored.store(worker.state)
    while any(batch.ref is None for trace in worker.state.traces.values() for batch in trace.batches):
        worker.run_epoch(lower, lower + 1, {})
        lower += 1
        stored.store(worker.state)
        time.sleep(0.02)
    stored.state.release()


def reopen(folder: str) -> dict[str, float]:
    """Open the state, change one key and look it up."""
    plan = compile_app(program())
    warm = Worker(plan)
    warm.run_epoch(MIN_TIME, 1, {"edges": Updates.of(np.array([[1, 2], [1, 3]]), 0, 1)})
    before = resident()
    began = time.perf_counter()
    directory = StateDirectory(folder)
    manifest = directory.acquire()
    assert manifest is not None
    shard = Shard.load(plan, directory, manifest, 0, 1)
    opened = time.perf_counter()
    worker = Worker(plan, None, shard.state)
    upper = manifest.upper
    result = worker.run_epoch(upper, upper + 1, {"edges": Updates.of(np.array([[0, -1]]), upper, 1)})
    done = time.perf_counter()
    changes = result.changes["degrees"].data.tolist()
    if sorted(row[-1] for row in changes) != [-1, 1]:
        raise SystemExit(f"one edge more should change one degree, not {changes}")
    directory.release()
    return {
        "open_ms": (opened - began) * 1e3,
        "first_answer_ms": (done - began) * 1e3,
        "batches": float(sum(len(trace.batches) for trace in shard.state.traces.values())),
        "state_mb": shard.state.nbytes / 2**20,
        "resident_mb": (resident() - before) / 2**20,
    }


def plot(results: list[dict[str, float]], path: Path) -> None:
    """First answer over the size of the state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [one["edges"] for one in results], [one["first_answer_ms"] for one in results], "o-", label="first answer"
    )
    axes.plot([one["edges"] for one in results], [one["open_ms"] for one in results], "o--", label="state open")
    axes.set(xscale="log", xlabel="edges", ylabel="ms", ylim=(0, None), title="restart")
    axes.legend()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--reopen", metavar="FOLDER", help="the fresh process's part")
    args = parser.parse_args()
    if args.reopen:
        print(json.dumps(reopen(args.reopen)))
        return
    results = []
    for edges in map(int, args.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            write(edges, folder)
            command = [sys.executable, "-m", "bench.restart", "--reopen", folder]
            runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(5)]
        middle = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
        result = {"edges": edges, **middle, "load": os.getloadavg()[0]}
        results.append(result)
        tell({name: round(one, 2) for name, one in result.items()}, str(edges))
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()
