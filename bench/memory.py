"""A state that is larger than its worker's memory bound: resident memory after each epoch, with a bound and without.

Degrees of a window of edges, loaded and then moved, in the local engine with its state in a directory, as in the
service; `--bound` is the worker's bound (worker_memory_mb), above the memory of the process before it has any
state. The answer at the end is compared with a recount. One JSON line.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.edges import random_edges
from bench.record import tell
from bench.steady import Stored, changes, program, recount, resident
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.memory import relieve
from vernier.service.cluster.shard import Shard
from vernier.storage.trace import spill
from vernier.storage.updates import MIN_TIME, Updates


def run(edges: int, bound: int | None, epochs: int, batch: int, folder: str) -> dict[str, float]:
    """Load, move the window, and report resident memory."""
    plan = compile_app(program())
    window = random_edges(2 * edges)
    worker = Worker(plan)
    worker.run_epoch(MIN_TIME, 0, {"edges": Updates.of(window[:64], MIN_TIME, 1)})
    worker.run_epoch(0, 1, {"edges": Updates.of(window[:64], 0, -1)})
    base = resident()
    if bound is not None:
        spill.spill(Path(folder) / "spill")
    stored = Stored(folder)
    after, took, at = [], [], 1
    load = 50_000
    for first in range(0, edges, load):
        part = {"edges": Updates.of(window[first : min(first + load, edges)], at, 1)}
        took.append(epoch(worker, stored, at, at + 1, part, base, bound))
        after.append(resident() - base)
        at += 1
    start = at
    loaded = len(took)
    for turn in range(epochs):
        moved = changes(window, edges, turn * batch, (turn + 1) * batch)
        part = {"edges": Updates.of(moved.rows, moved.time - 1 + start, moved.diff)}
        took.append(epoch(worker, stored, at, at + batch, part, base, bound))
        after.append(resident() - base)
        at += batch
    recount(plan, worker, window, edges, epochs * batch, at)
    steady = np.array(took[loaded:]) * 1e3
    return {
        "state_mb": worker.state.nbytes / 2**20,
        "resident_mb_last": after[-1] / 2**20,
        "resident_mb_most": max(after) / 2**20,
        "epoch_ms_p50": float(np.median(steady)),
        "epoch_ms_p99": float(np.percentile(steady, 99)),
        "load_seconds": float(sum(took[:loaded])),
    }


def epoch(
    worker: Worker, stored: Stored, lower: int, upper: int, part: dict[str, Updates], base: int, bound: int | None
) -> float:
    """Run an epoch, commit it and release memory; returns the seconds it took."""
    began = time.perf_counter()
    worker.run_epoch(lower, upper, part)
    stored.store(worker.state)
    if bound is not None and resident() - base > bound:
        relieve([Shard(0, stored.epoch, "", worker.state, {})], stored.state)
    return time.perf_counter() - began


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--bound", type=int, default=None, help="MB; default: none")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bound = None if args.bound is None else args.bound << 20
        found = run(args.edges, bound, args.epochs, args.batch, folder)
    result = {"edges": args.edges, "bound_mb": args.bound, **found, "load": os.getloadavg()[0]}
    tell({name: round(one, 2) if isinstance(one, float) else one for name, one in result.items()})


if __name__ == "__main__":
    main()
