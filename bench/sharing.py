"""People you may know, with one arrangement of the friendships for all, and with one for each operator.

Friends of friends who are not friends yet, for some people: `asks ⋈ knows ⋈ knows`, less `knows`. With sharing the
program names its source three times and the plan arranges it once by person and once by pair; without, it has three
sources that get the same updates, as in systems in which each operator has its own index. Memory is that of all
arrangements, time is CPU of epochs in which one friendship is inserted and one is deleted. Answers are compared. One
JSON line.
"""

import argparse
import os
import time

import numpy as np

import vernier as vn
from bench.edges import random_edges
from bench.record import tell
from bench.steady import resident
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Ints, Updates


class Knows(vn.Schema):
    """A friendship."""

    person: vn.Int64
    friend: vn.Int64


class Asks(vn.Schema):
    """A person who gets suggestions."""

    person: vn.Int64


def program(shared: bool) -> vn.App:
    """The query on one source of friendships, or on three."""
    app = vn.App("people")
    asks = app.source("asks", Asks)
    names = ["knows"] * 3 if shared else ["knows", "knows_2", "knows_3"]
    sources = {name: app.source(name, Knows) for name in dict.fromkeys(names)}
    first, second, third = (sources[name] for name in names)
    friends = asks.join(first, on="person")
    further = friends.join(second.rename(person="friend", friend="other"), on="friend")
    maybe = further.filter(col("person") != col("other")).select("person", friend="other")
    app.view("maybe", maybe.join(third, on=["person", "friend"], how="anti"), key=["person", "friend"])
    return app


def run(shared: bool, knows: Ints, asks: Ints, epochs: int) -> tuple[dict[str, float], list[list[int]]]:
    """Load, then change one friendship in each epoch; returns the cost, and the last changes."""
    plan = compile_app(program(shared))
    worker = Worker(plan)
    sources = [name for name in plan.sources if name != "asks"]
    before = resident()
    window = len(knows) // 2
    first = {name: Updates.of(knows[:window], 0, 1) for name in sources}
    worker.run_epoch(MIN_TIME, 1, {**first, "asks": Updates.of(asks[:, None], 0, 1)})
    took, seen = [], []
    for epoch in range(epochs):
        at = epoch + 1
        rows = np.stack((knows[window + epoch], knows[epoch]))
        batch = {name: Updates.of(rows, at, np.array([1, -1])) for name in sources}
        began = time.process_time()
        result = worker.run_epoch(at, at + 1, batch)
        took.append(time.process_time() - began)
        seen += result.changes["maybe"].consolidate().data.tolist()
    ms = np.array(took[epochs // 10 :]) * 1e3
    measured = {
        "arrangements": float(len([one for one in plan.arrangements.values() if not one.retained])),
        "arranged_mb": worker.state.nbytes / 2**20,
        "resident_mb": (resident() - before) / 2**20,
        "epoch_cpu_ms_p50": float(np.median(ms)),
        "epoch_cpu_ms_p99": float(np.percentile(ms, 99)),
    }
    return measured, seen


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--friendships", type=int, default=500_000)
    parser.add_argument("--asks", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=500)
    args = parser.parse_args()
    knows = random_edges(2 * args.friendships, degree=10)
    asks = np.unique(np.random.default_rng(1).integers(0, args.friendships // 5, args.asks))
    shared, one = run(True, knows, asks, args.epochs)
    apart, other = run(False, knows, asks, args.epochs)
    if one != other:
        raise SystemExit("the answers differ")
    result: dict[str, object] = {"friendships": args.friendships, "asks": len(asks)}
    for name in shared:
        result[name] = {"shared": round(shared[name], 2), "apart": round(apart[name], 2)}
    result["memory_ratio"] = round(shared["arranged_mb"] / apart["arranged_mb"], 2)
    result["time_ratio"] = round(shared["epoch_cpu_ms_p50"] / apart["epoch_cpu_ms_p50"], 2)
    result["load"] = round(os.getloadavg()[0], 1)
    tell(result)


if __name__ == "__main__":
    main()
