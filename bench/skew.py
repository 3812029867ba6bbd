"""What workers exchange for counts and sums when one key has half of all rows, with and without adding up first.

`python -m bench.skew`: a group with a count, a sum and a mean. Half of the updates have one key, the others one of
50,000 keys. An epoch's updates share one data time, some times, or have a time each. All workers run in one process and
take turns (bench/turns.py), so the CPU time is each worker's own. Two engines, one of which sends all rows, take turns
epoch by epoch, and their answers are compared. Prints one JSON line, medians of the epochs: bytes to other workers an
update, CPU time of the worker with the most of it, and of all workers.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np

import vernier as vn
from bench.record import tell
from bench.turns import InTurns, Trace
from vernier.operators.physical import combine
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Updates

KEYS = 50_000
NEVER = 1 << 62
SHOWN = {
    "workers": ("workers", 0), "times": ("data times an epoch", 0),
    "plain_bytes": ("all rows: bytes an update", 1), "plain_most_ms": ("busiest worker, ms", 1),
    "plain_all_ms": ("all workers, ms", 1),
    "combined_bytes": ("added up: bytes an update", 1), "combined_most_ms": ("added up: busiest worker, ms", 1),
    "combined_all_ms": ("added up: all workers, ms", 1),
}  # fmt: skip
"""The columns of the page, and their digits."""


class Sale(vn.Schema):
    """Something that a customer has bought."""

    customer: vn.Int64
    price: vn.Int64


def program() -> vn.App:
    """What each customer has spent."""
    app = vn.App("skew")
    sales = app.source("sales", Sale)
    spent = sales.group_by("customer").agg(n=vn.count(), total=vn.sum("price"), mean=vn.avg("price"))
    app.view("spent", spent, key=["customer"])
    return app


def epoch(rng: np.random.Generator, number: int, updates: int, times: int) -> Updates:
    """One epoch's sales, in [number * updates, (number + 1) * updates)."""
    customers = np.where(rng.random(updates) < 0.5, -1, rng.integers(0, KEYS, updates))
    at = number * updates + np.arange(updates) * times // updates * (updates // times)
    data = np.column_stack((customers, rng.integers(1, 10_000, updates), at, np.ones(updates, np.int64)))
    return Updates(np.ascontiguousarray(data, np.int64), 2, 0)


def measured(traces: list[Trace], updates: int) -> tuple[float, float, float]:
    """Bytes to other workers an update; milliseconds of CPU of the busiest worker and of all workers."""
    seconds = [sum(trace.seconds) for trace in traces]
    return sum(sum(trace.sent) for trace in traces) / updates, max(seconds) * 1e3, sum(seconds) * 1e3


def compare(workers: int, times: int, updates: int, epochs: int) -> dict[str, Any]:
    """Both engines on the same epochs. Fails if their states differ."""
    plan = compile_app(program())
    engines = {"plain": InTurns(plan, workers), "combined": InTurns(plan, workers)}
    leasts = {"plain": NEVER, "combined": combine.LEAST}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in engines}
    rng = np.random.default_rng(1)
    for number in range(epochs + 2):
        sales = epoch(rng, number, updates, times)
        lower = number * updates if number else MIN_TIME
        for name, engine in engines.items():
            combine.LEAST = leasts[name]
            traces = engine.run_epoch(lower, (number + 1) * updates, {"sales": sales})
            found[name].append(measured(traces, updates))
        combine.LEAST = leasts["combined"]
    states = [
        [batch.keyed().tolist() for worker in engine.workers for trace in worker.state.traces.values()
         for batch in trace.batches]
        for engine in engines.values()
    ]  # fmt: skip
    for engine in engines.values():
        engine.close()
    if states[0] != states[1]:
        raise SystemExit("the answers differ")
    row: dict[str, Any] = {"workers": workers, "times": times}
    for name, runs in found.items():
        for what, values in zip(("bytes", "most_ms", "all_ms"), zip(*runs[2:], strict=True), strict=True):
            row[f"{name}_{what}"] = round(statistics.median(values), 2)
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.skew", description=__doc__)
    parser.add_argument("--workers", default="2,8")
    parser.add_argument("--updates", type=int, default=40_000)
    parser.add_argument("--epochs", type=int, default=15)
    given = parser.parse_args()
    counts = sorted({1, max(1, given.updates // 2_000), given.updates})
    rows = [
        compare(int(workers), times, given.updates, given.epochs)
        for workers in given.workers.split(",")
        for times in counts
    ]
    table = {
        "head": [title for title, _ in SHOWN.values()],
        "rows": [[f"{row[name]:,.{digits}f}" for name, (_, digits) in SHOWN.items()] for row in rows],
    }
    tell({"rows": rows}, tables={"skew": table})


if __name__ == "__main__":
    main()
