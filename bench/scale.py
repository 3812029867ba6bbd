"""What an epoch costs on many workers: measured parts, put together by a simulation.

    python -m bench.scale --measure     measure the parts on this machine, into bench/results/scale.json
    python -m bench.scale --check       predict two workers of this machine, run them, and compare: within 15 %; what a
                                        call of the exchange costs is measured in the same run
    python -m bench.scale               from the measured parts: 2, 8, 64 and 512 workers

*The dataflow.* All workers of a program run in one process and take turns, one at a time, so the CPU time of each
worker between two calls of the exchange is its own, and so is what it sends to each other one. The simulation replays
these with what a call costs: a call ends for a worker when the last message of its peers has arrived. Up to `MOST`
workers run like this; for more, the work of the slowest worker is continued from the last three sizes.

*The parts around it.* A stage of Spark with N tasks that do nothing, a commit of N workers' batches into a store in
memory (the driver's CPU time, and the manifest's bytes), a call of the exchange between two processes, by memory and by
encrypted sockets, and by bytes. Latencies of the network and the store are given, not measured.

Two workers of this machine: processes as `vernier replay` forks them, by memory. As between hosts, their kernels do not
exchange rows themselves (decision 41). What handing out updates and collecting changes costs is not predicted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import vernier as vn
from bench import programs
from bench.parts import measure, ring
from bench.record import ROOT, tell
from bench.stream import Stream, random_graph
from bench.turns import InTurns, Wire, baton, replay
from vernier import col
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.replay.forked_engine import ForkedWorkers
from vernier.storage.updates import MIN_TIME, Updates

MOST = 64
"""Workers that take turns; more are continued from the sizes below."""
SIZES = (2, 8, 64, 512)
SHOWN = {
    "workers": ("workers", 0), "dataflow_ms": ("dataflow, ms", 1), "exchange_ms": ("exchange, ms", 1),
    "stage_ms": ("Spark's stage, ms", 0), "commit_ms": ("commit, ms of CPU", 1), "store_ms": ("store, ms", 0),
    "epoch_ms": ("epoch, ms", 0), "messages": ("messages", 0), "manifest_kb": ("manifest, KB", 0),
    "requests": ("requests", 0), "state_gb": ("state a worker, GB", 2),
}  # fmt: skip
"""The columns of the page, and their digits."""
BOUND = 0.15
"""How far a prediction for two workers may be off."""
RESULTS = ROOT / "bench" / "results" / "scale.json"


def demo() -> vn.App:
    """The demonstration: two loops over a graph."""
    from vernier.operators.language.collection.app import load_program

    return load_program(ROOT / "configs" / "demo.py")


def orders() -> vn.App:
    """The shape of TPC-H's third query: a join on a key, and sums by it. src: the order, dst: a price."""
    app = vn.App("orders")
    edges, roots = app.source("edges", programs.Edge), app.source("roots", programs.Root)
    known = edges.group_by("src").agg(n=vn.count())
    joined = edges.join(known, on=["src"]).group_by("src").agg(total=vn.sum("dst"), n=vn.sum("n"))
    app.view("revenue", joined, key=["src"])
    app.view("roots", roots, key=["node"])
    return app


def degrees() -> vn.App:
    """How many edges each node has: what a billion edges are for."""
    app = vn.App("degrees")
    edges, roots = app.source("edges", programs.Edge), app.source("roots", programs.Root)
    app.view("degrees", edges.group_by("src").agg(n=vn.count()), key=["src"])
    app.view("heads", edges.group_by("dst").agg(n=vn.count()).filter(col("n") > 1), key=["dst"])
    app.view("roots", roots, key=["node"])
    return app


@dataclass(frozen=True)
class Case:
    """A program on a window of edges. batch: edges in, and as many out, an epoch; times the work is extrapolated to
    `edges` from what it is at `window`."""

    program: Callable[[], vn.App]
    nodes: int
    window: int
    batch: int
    edges: int = 0

    def stream(self) -> Stream:
        """Its updates."""
        return Stream(random_graph(self.nodes, 2 * self.window), self.window)


CASES = {
    "demo": Case(demo, 1_000, 2_000, 1_000),
    "tpch": Case(orders, 20_000, 80_000, 20_000),
    "billion": Case(degrees, 50_000, 200_000, 20_000, edges=10**9),
}


def epochs_of(case: Case, plan: Plan, engine: Any, count: int) -> list[Any]:
    """What an engine returns of `count` epochs on a window that is loaded and warm."""
    stream = case.stream()
    first = {"roots": Updates.of([[0]], 0, 1), "edges": Updates(stream.first(), 2, 0)}
    engine.run_epoch(MIN_TIME, 1, first)
    found = []
    for number in range(count + 2):
        at = number * case.batch
        data = stream.updates(at, at + case.batch, case.batch, True)
        found.append(engine.run_epoch(at + 1, at + 1 + case.batch, {"edges": Updates(data, 2, 0)}))
    return found[2:]


def usual(seconds: Iterable[float]) -> float:
    """The lower quartile of some epochs: others on the machine disturb it less than the median."""
    return float(np.quantile(list(seconds), 0.25))


def predicted(case: Case, workers: int, wire: Wire, count: int) -> dict[str, float]:
    """Seconds of an epoch, and what it consists of."""
    plan = compile_app(case.program())
    engine = InTurns(plan, workers)
    found = epochs_of(case, plan, engine, count)
    nbytes = engine.nbytes
    engine.close()
    turn, free = baton(workers) if workers > 1 else 0.0, Wire(0, 0, 0, 0)
    return {
        "seconds": usual(replay(traces, wire, turn) for traces in found),
        "slowest": usual(replay(traces, free, turn) for traces in found),
        "calls": statistics.median(len(traces[0].sent) for traces in found),
        "sent": statistics.median(sum(sum(one.sent) for one in traces) for traces in found),
        "state": nbytes / (2 * case.window),
        "traces": len(plan.arrangements),
    }


class Timed:
    """An engine whose epochs are timed by the clock."""

    def __init__(self, engine: ForkedWorkers) -> None:
        self._engine = engine

    def run_epoch(self, lower: int, upper: int, inputs: dict[str, Updates]) -> float:
        """Seconds of an epoch."""
        began = time.perf_counter()
        self._engine.run_epoch(lower, upper, inputs)
        return time.perf_counter() - began


def forked(case: Case, workers: int, count: int) -> float:
    """Seconds of an epoch of worker processes, without lanes between their kernels: hosts have none."""
    plan = compile_app(case.program())
    with patch.object(Exchange, "_link_lanes", lambda exchange: None):
        engine = ForkedWorkers(plan, workers)
        try:
            return usual(epochs_of(case, plan, Timed(engine), count))
        finally:
            engine.close()


def by_memory(measured: dict[str, float]) -> Wire:
    """Two workers of one host."""
    call = measured["call_s"]
    return Wire(call / 3, call / 3, measured["byte_s"], call / 3)


def wire(parts: dict[str, Any], latency: float) -> Wire:
    """Workers of many hosts, one on each."""
    return Wire(parts["wire"]["send_s"], parts["wire"]["receive_s"], parts["wire"]["byte_s"], latency)


def check(names: Sequence[str], epochs: int, turns: int) -> dict[str, float]:
    """Two workers of this machine, predicted and run, with a call of the exchange as it is now. Predicted / run, by
    case."""
    found: dict[str, float] = {}
    for name in names:
        case, measured = CASES[name], ring(turns)
        wire = by_memory(measured)
        one = predicted(case, 1, wire, epochs)["seconds"]
        said = predicted(case, 2, wire, epochs)["seconds"]
        run = forked(case, 2, epochs)
        found |= {f"{name}_predicted_ms": said * 1e3, f"{name}_run_ms": run * 1e3, f"{name}_ratio": said / run}
        found |= {f"{name}_one_ms": one * 1e3, f"{name}_call_ms": measured["call_s"] * 1e3}
    return found


def line(points: dict[str, float], at: int) -> float:
    """A straight line through what was measured at the least and the largest number."""
    known = sorted((int(size), value) for size, value in points.items())
    (low, first), (high, last) = known[0], known[-1]
    return first + (last - first) * (at - low) / (high - low)


def predict(parts: dict[str, Any], name: str, args: argparse.Namespace) -> list[dict[str, float]]:
    """Seconds of an epoch by part, for each number of workers."""
    case, latency = CASES[name], args.latency_ms / 1e3
    over = wire(parts, latency)
    known: dict[int, dict[str, float]] = {}
    rows = []
    for workers in args.workers:
        if workers <= args.most:
            found = known[workers] = predicted(case, workers, over, args.epochs)
        else:
            # The part of the work that is divided by the workers, and the part that is not: from the two largest sizes.
            (low, first), (high, last) = sorted(known.items())[-2:]
            shared = (first["slowest"] - last["slowest"]) / (1 / low - 1 / high)
            fixed = last["slowest"] - shared / high
            slowest = max(fixed, 0.0) + max(shared, 0.0) / workers
            others = (workers - 1) * (over.send + over.receive)
            sent = last["sent"] / high * over.byte
            found = last | {"slowest": slowest, "seconds": slowest + last["calls"] * (others + latency) + sent}
        commit = {size: one["seconds"] for size, one in parts["commit"].items()}
        manifest = {size: one["bytes"] for size, one in parts["commit"].items()}
        store = args.request_ms / 1e3
        waits = -(-workers // 32)  # as many requests at once look whether the segments are there
        row = {
            "workers": workers,
            "calls": found["calls"],
            "messages": found["calls"] * workers * (workers - 1),
            "dataflow_ms": found["slowest"] * 1e3,
            "exchange_ms": max(0.0, found["seconds"] - found["slowest"]) * 1e3,
            "stage_ms": line(parts["stage"], workers) * 1e3,
            "commit_ms": line(commit, workers) * 1e3,
            "manifest_kb": line(manifest, workers) / 1024,
            "store_ms": (1 + waits + 2) * store * 1e3,
            "requests": 2 * workers + 2,
            "state_gb": found["state"] * (case.edges or case.window) / workers / 2**30,
        }
        parts_of = ("dataflow_ms", "exchange_ms", "stage_ms", "commit_ms", "store_ms")
        row["epoch_ms"] = sum(row[part] for part in parts_of)
        row["updates_s"] = 2 * case.batch / row["epoch_ms"] * 1e3
        rows.append({key: round(value, 3) for key, value in row.items()})
    return rows


def kept() -> dict[str, Any]:
    """The measured parts."""
    folder = os.environ.get("BENCH_RESULTS")
    file = Path(folder) / "scale.json" if folder else RESULTS
    if not file.is_file():
        raise SystemExit("bench: nothing is measured yet: python -m bench.scale --measure")
    parts: dict[str, Any] = json.loads(file.read_text("utf-8"))["runs"]["measured"]["values"]
    return parts


def main() -> int:
    """Do what the flags say, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--workers", type=lambda text: [int(one) for one in text.split(",")], default=list(SIZES))
    parser.add_argument("--most", type=int, default=MOST, help="workers that take turns; more are continued")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5, help="how often parts are measured")
    parser.add_argument("--latency-ms", type=float, default=0.1, help="from one host to another")
    parser.add_argument("--request-ms", type=float, default=20.0, help="of the store")
    parser.add_argument("--loose", action="store_true", help="report a wrong prediction, and do not fail")
    args = parser.parse_args()
    names = args.cases.split(",")
    if args.measure:
        biggest = max(args.workers)
        tasks = sorted({2, min(64, biggest)})
        parts = measure(args.turns, tasks, sorted({2, min(64, biggest), biggest}))
        tell(parts | {"load": round(os.getloadavg()[0], 1)}, key="measured")
    if args.check:
        found = check(names, args.epochs, args.turns)
        tell(
            {key: round(value, 3) for key, value in found.items()} | {"load": round(os.getloadavg()[0], 1)}, key="check"
        )
        off = [key for key, value in found.items() if key.endswith("_ratio") and abs(value - 1) > BOUND]
        if off and not args.loose:
            print(f"bench: off by more than {BOUND:.0%}: {', '.join(off)}", file=sys.stderr)
            return 1
    if not args.measure and not args.check:
        parts = kept()
        for name in names:
            rows = predict(parts, name, args)
            shown = [[f"{row[key]:,.{digits}f}" for key, (_, digits) in SHOWN.items()] for row in rows]
            table = {"head": [head for head, _ in SHOWN.values()], "rows": shown}
            tell({"case": name, **{f"{key}_{row['workers']:g}": row[key] for row in rows for key in row}}, key=name,
                 tables={"workers": table})  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
