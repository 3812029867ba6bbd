"""How fast the engine alone is on a random graph in motion, the benchmark of "Differential dataflow roadmap".

    python -m bench.engine --program bfs --nodes 1000 --edges 2000 --updates 20000 --batch 1000

An update puts an edge in and takes the oldest out, each update at its own time. Prints one JSON line: CPU and wall
microseconds an update, percentiles of an epoch, shares by operator.
"""

import argparse
import time

import numpy as np

import vernier as vn
from bench.programs import Edge, Root, bfs
from bench.record import tell
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Updates


def program(name: str) -> vn.App:
    """bfs (distances by minimum, and their histogram) or reachability."""
    app = vn.App(name)
    edges, roots = app.source("edges", Edge), app.source("roots", Root)
    if name == "bfs":
        app.view("histogram", bfs(edges, roots), key=["dist"])
    else:

        @vn.fixpoint
        def reach(reach, *, edges, roots):
            step = reach.join(edges, left_on="node", right_on="src").select(node=col("dst"))
            return vn.union(roots, step).distinct()

        app.view("reach", reach(roots, edges=edges, roots=roots), key=["node"])
    return app


def changes(edges: np.ndarray, count: int, first: int, last: int) -> Updates:
    """Updates first..last-1: edge count+i is inserted and edge i is deleted, at time i + 1."""
    i = np.arange(first, last)
    rows = np.concatenate((edges[count + i], edges[i]))
    times = np.concatenate((i + 1, i + 1))
    diffs = np.concatenate((np.ones(len(i), np.int64), -np.ones(len(i), np.int64)))
    return Updates.of(rows, times, diffs)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", choices=["bfs", "reachability"], default="bfs")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=2000)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--slice", type=int, default=0)
    args = parser.parse_args()
    plan = compile_app(program(args.program))
    edges = np.random.default_rng(0).integers(0, args.nodes, (args.edges + args.updates, 2))
    worker = Worker(plan, slice_updates=args.slice)
    first = {"roots": Updates.of([[0]], [0], [1]), "edges": Updates.of(edges[: args.edges], 0, 1)}
    worker.run_epoch(MIN_TIME, 1, first)
    warm = min(args.updates // 4, max(200, args.batch))
    at = 0
    wall: list[float] = []
    cpu = 0.0
    while at < args.updates:
        size = min(args.batch, args.updates - at)
        batch = changes(edges, args.edges, at, at + size)
        began, began_cpu = time.perf_counter(), time.process_time()
        worker.run_epoch(at + 1, at + 1 + size, {"edges": batch})
        if at >= warm:
            wall.append(time.perf_counter() - began)
            cpu += time.process_time() - began_cpu
        else:
            worker.totals()  # adds what its interpreter has counted
            for operator in worker.operators:
                operator.counters.seconds = 0.0
        at += size
    counted = args.updates - -(-warm // args.batch) * args.batch
    worker.totals()
    shares = {
        f"{operator.op.id} {operator.op.name}": round(operator.counters.seconds / sum(wall), 3)
        for operator in worker.operators
        if operator.counters.seconds > 0.02 * sum(wall)
    }
    tell(
        {
            "program": args.program,
            "batch": args.batch,
            "slice": worker.slice_updates,
            "cpu_us_per_update": round(cpu / counted * 1e6, 1),
            "wall_us_per_update": round(sum(wall) / counted * 1e6, 1),
            "epoch_ms_p50": round(float(np.percentile(wall, 50)) * 1e3, 2),
            "epoch_ms_p99": round(float(np.percentile(wall, 99)) * 1e3, 2),
            "shares": shares,
        }
    )


if __name__ == "__main__":
    main()
