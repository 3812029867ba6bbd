"""Steady epochs: does any of them take much longer than the median one, and do memory and files stay as they are?

Degrees of a window of edges (an edge in and an edge out an update, each update at its own time), in the local engine,
one worker. The first epochs fill the window's traces with merges of all sizes and are not counted. Beside CPU
seconds it counts updates that merges went through, which do not depend on the machine. The work of an epoch is
the same in each run, but disturbances of the machine are not: an epoch counts with its least time of `--runs` runs, and
the longest of each single run is reported, too.
`--stored` keeps the state in a directory too, as the service does: large merged batches beside the epochs. The answer
at the end is compared with a recount. One JSON line; `--plot` draws docs/images/bench-steady.png.
"""

import argparse
import gc
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import vernier as vn
from bench.edges import random_edges
from bench.record import tell
from vernier.operators.engine.worker import Worker, WorkerState
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.storage.blob.segment import Entry
from vernier.storage.state.background_writer import BackgroundWriter
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME, Ints, Updates


class Edge(vn.Schema):
    """A directed edge."""

    src: vn.Int64
    dst: vn.Int64


def program() -> vn.App:
    """How many edges each node has."""
    app = vn.App("degrees", retain="50us")  # times are numbers of updates, read as nanoseconds
    edges = app.source("edges", Edge)
    app.view("degrees", edges.group_by("src").agg(n=vn.count()), key=["src"])
    return app


class Stored:
    """The worker's state in a directory of its own, an epoch at a time. keep: epochs that stay; every: epochs between
    two collections."""

    def __init__(self, path: str | StateDirectory, keep: int = 2, every: int = 1) -> None:
        self.state = StateDirectory(path) if isinstance(path, str) else path
        self.state.acquire()
        self.keep, self.every = keep, every
        self.background_writer = BackgroundWriter(self.state)
        self.epoch = 0
        self.most_files = 0

    def store(self, state: WorkerState) -> None:
        """Commit the worker's state as the next epoch."""
        before, self.epoch = self.epoch, self.epoch + 1
        self.background_writer.tend(state.traces.values(), self.epoch, f"a{self.epoch}", 0, f"a{before}")
        fresh = [batch for trace in state.traces.values() for batch in trace.named if batch.ref is None]
        entries = [Entry(f"layer-{i}", batch.meta(), batch.arrays()) for i, batch in enumerate(fresh)]
        for batch, ref in zip(fresh, self.state.write(self.epoch, f"a{self.epoch}", 0, entries), strict=True):
            batch.ref = ref
        traces = {}
        for name, trace in state.traces.items():
            refs: list[BatchRef] = [batch.ref for batch in trace.named]
            traces[name] = TraceEntry(trace.key_width, trace.val_width, trace.depth, [refs])
        manifest = Manifest(
            epoch=self.epoch, attempt=f"a{self.epoch}", lower=self.epoch, upper=self.epoch + 1, committed_ns=0,
            workers=1, app="steady", program="1", traces=traces,
        )  # fmt: skip
        self.state.commit(manifest)
        if self.epoch % self.every == 0:
            self.state.gc(self.keep)
        if self.every == 1:  # it lists the folder
            self.most_files = max(self.most_files, len(self.state.segments()))


def changes(edges: Ints, window: int, first: int, stop: int) -> Updates:
    """Updates first..stop-1: edge window+i is inserted and edge i is deleted, at time i + 1."""
    i = np.arange(first, stop)
    rows = np.concatenate((edges[(window + i) % len(edges)], edges[i % len(edges)]))
    diffs = np.repeat(np.array([1, -1], np.int64), len(i))
    return Updates.of(rows, np.concatenate((i + 1, i + 1)), diffs)


def resident() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def recount(plan: Plan, worker: Worker, edges: Ints, window: int, moved: int, upper: int) -> None:
    """End the program if the view differs from a recount of the window after `moved` updates."""
    found = worker.state.traces[plan.views["degrees"].trace].cursor_through(upper).range()
    sources, counts = np.unique(edges[(moved + np.arange(window)) % len(edges), 0], return_counts=True)
    total: dict[tuple[int, int], int] = {}
    for row in found.tolist():
        total[row[1], row[2]] = total.get((row[1], row[2]), 0) + row[-1]
    if {row: n for row, n in total.items() if n} != dict.fromkeys(zip(sources.tolist(), counts.tolist()), 1):
        raise SystemExit("the degrees differ from a recount")


def plot(result: dict[str, Any], series: dict[str, list[float]], path: Path) -> None:
    """Time of each epoch and memory over the epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    seconds, memory = figure.subplots(1, 2, width_ratios=[2, 1])
    seconds.plot(series["cpu_ms"], ".", markersize=1)
    seconds.set(xlabel="epoch", ylabel="ms of CPU", ylim=(0, None), title=f"{result['batch']} updates an epoch")
    memory.plot(series["resident_mb"])
    memory.set(
        xlabel="hundreds of epochs", ylabel="MB resident", ylim=(0, 1.2 * max(series["resident_mb"])), title="memory"
    )
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def once(plan: Plan, edges: Ints, args: argparse.Namespace) -> tuple[dict[str, list[float]], int]:
    """The series of one run, and how many segments there were at most; ends the program when the answer is wrong."""
    worker = Worker(plan)
    worker.run_epoch(MIN_TIME, 1, {"edges": Updates.of(edges[: args.window], 0, 1)})
    gc.freeze()  # as a worker does with objects from its start
    series: dict[str, list[float]] = {"cpu_ms": [], "resident_mb": [], "merged": [], "stored_ms": []}
    with tempfile.TemporaryDirectory() as folder:
        stored = Stored(folder) if args.stored else None
        at = 0
        for epoch in range(args.warm + args.epochs):
            if epoch == args.warm:
                # As the service's workers do: loaded objects are hidden from the garbage collector.
                gc.collect()
                gc.freeze()
            batch = {"edges": changes(edges, args.window, at, at + args.batch)}
            spent = sum(trace.spent for trace in worker.state.traces.values())
            began = time.thread_time()
            worker.run_epoch(at + 1, at + 1 + args.batch, batch)
            cpu = time.thread_time() - began
            at += args.batch
            began = time.perf_counter()
            if stored is not None:
                stored.store(worker.state)
            if epoch >= args.warm:
                series["cpu_ms"].append(cpu * 1e3)
                series["stored_ms"].append((time.perf_counter() - began) * 1e3)
                series["merged"].append(sum(trace.spent for trace in worker.state.traces.values()) - spent)
                if epoch % 100 == 0:
                    series["resident_mb"].append(resident() / 2**20)
    recount(plan, worker, edges, args.window, at, at + 1)
    return series, 0 if stored is None else stored.most_files


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2_000)
    parser.add_argument("--warm", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--window", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3, help="of the same epochs; each counts with its least time")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    plan = compile_app(program())
    edges = random_edges(2 * args.window)
    series, most_files = once(plan, edges, args)
    runs = [series["cpu_ms"]] + [once(plan, edges, args)[0]["cpu_ms"] for _ in range(args.runs - 1)]
    series["cpu_ms"] = np.min(runs, axis=0).tolist()
    cpu_ms, memory = np.array(series["cpu_ms"]), np.array(series["resident_mb"])
    median = float(np.median(cpu_ms))
    quarter = max(1, len(memory) // 4)
    result = {
        "epochs": args.epochs, "batch": args.batch, "window": args.window, "runs": args.runs, "cpu_ms_p50": median,
        "p99": float(np.percentile(cpu_ms, 99)) / median, "p999": float(np.percentile(cpu_ms, 99.9)) / median,
        "longest": float(cpu_ms.max()) / median,
        "longest_of_each_run": [round(float(np.max(run) / np.median(run)), 2) for run in runs],
        "merged_p50": float(np.median(series["merged"])), "merged_longest": max(series["merged"]),
        "memory_last_to_first_quarter": float(memory[-quarter:].mean() / memory[:quarter].mean()),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    if args.stored:
        result["most_segments"] = most_files
        result["stored_ms_p50"] = float(np.median(series["stored_ms"]))
        result["stored_ms_longest"] = max(series["stored_ms"])
    if args.plot:
        plot(result, series, args.plot)
    tell({name: round(one, 3) if isinstance(one, float) else one for name, one in result.items()})


if __name__ == "__main__":
    main()
