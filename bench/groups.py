"""Large groups: many updates in few groups, and one change in a group of a million rows.

`python -m bench.groups --updates 100000 --rows 1000000`: first 100,000 updates, a third of them deletions, each at its
own time, in four groups, for each aggregate, in turns; seconds of CPU, the least of the turns, and the ratio to `max`.
What is held at the end is compared with a recount. Then epochs of one change in one group: `top_k` of the ten best, and
`max` whose value leaves in every other epoch; microseconds of CPU by epoch. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import vernier as vn
from bench.record import tell
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Updates

GROUPS, VALUES = 4, 100_000


class Reading(vn.Schema):
    group: vn.Int64
    id: vn.Int64
    value: vn.Int64


Row = tuple[int, int, int]
AGGREGATES: dict[str, Callable[[], Any]] = {
    "max": lambda: vn.max("value"),
    "quantile": lambda: vn.quantile("value", 0.9),
    "median": lambda: vn.median("value"),
    "mode": lambda: vn.mode("value"),
    "count_distinct": lambda: vn.count_distinct("value"),
}
NAMES = (*AGGREGATES, "top_k")


def program(name: str) -> vn.App:
    """One aggregate of the groups."""
    app = vn.App("groups")
    readings = app.source("readings", Reading)
    if name == "top_k":
        app.view("out", readings.top_k(10, by=col("value").desc(), within="group"))
    else:
        app.view("out", readings.group_by("group").agg(x=AGGREGATES[name]()))
    return app


def many(count: int) -> tuple[list[Row], list[int]]:
    """Insertions, and deletions of a row that is there."""
    choose = random.Random(1)
    rows, diffs, live = list[Row](), list[int](), list[Row]()
    for number in range(count):
        if live and choose.random() < 1 / 3:
            at = choose.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            rows.append(live.pop())
            diffs.append(-1)
        else:
            live.append((choose.randrange(GROUPS), number, choose.randrange(VALUES)))
            rows.append(live[-1])
            diffs.append(1)
    return rows, diffs


def recounted(name: str, rows: list[Row], diffs: list[int]) -> set[tuple[int, ...]]:
    """The view at the end."""
    held = Counter[Row]()
    for row, diff in zip(rows, diffs, strict=True):
        held[row] += diff
    found = set[tuple[int, ...]]()
    for group in range(GROUPS):
        here = sorted(((row[2], row[1]) for row, copies in held.items() if copies and row[0] == group))
        values = [value for value, _ in here]
        if not values:
            continue
        counted = Counter(values)
        last = len(values) - 1
        chosen = {
            "max": values[-1],
            "quantile": values[max(-(-len(values) * 9 // 10), 1) - 1],
            "median": values[last // 2],
            "mode": min((-copies, value) for value, copies in counted.items())[1],
            "count_distinct": len(counted),
        }
        if name == "top_k":
            best = sorted(here, key=lambda one: (-one[0], one[1]))[:10]
            found |= {(group, number, value) for value, number in best}
        else:
            found.add((group, chosen[name]))
    return found


def run_many(name: str, rows: list[Row], diffs: list[int]) -> float:
    """Seconds of CPU for all updates in one epoch."""
    worker = Worker(compile_app(program(name)))
    updates = {"readings": Updates.of(rows, range(len(rows)), diffs)}
    began = time.process_time()
    result = worker.run_epoch(MIN_TIME, len(rows), updates)
    took = time.process_time() - began
    held = Counter[tuple[int, ...]]()
    for *row, _, diff in result.changes["out"].data.tolist():
        held[tuple(row)] += diff
    if {row for row, copies in held.items() if copies} != recounted(name, rows, diffs):
        raise SystemExit(f"{name}: the view is not what a recount gives")
    return took


def run_one(name: str, size: int, epochs: int) -> list[float]:
    """Microseconds of CPU of epochs with one change each in a group of `size` rows: rows that come on top, and leave
    again."""
    worker = Worker(compile_app(program(name)))
    choose = np.random.default_rng(1)
    rows = np.column_stack((np.zeros(size, np.int64), np.arange(size), choose.integers(0, VALUES, size)))
    loaded = np.column_stack((rows, np.zeros(size, np.int64), np.ones(size, np.int64)))
    worker.run_epoch(MIN_TIME, 1, {"readings": Updates(np.ascontiguousarray(loaded), 3, 0)})
    took, at = list[float](), 1
    for epoch in range(epochs):
        row = (0, size + epoch // 2, VALUES + epoch // 2)
        updates = {"readings": Updates.of([row], [at], [1 if epoch % 2 == 0 else -1])}
        began = time.process_time_ns()
        result = worker.run_epoch(at, at + 1, updates)
        took.append((time.process_time_ns() - began) / 1000)
        if len(result.changes["out"].data) != 2:
            raise SystemExit(f"{name}: a change on top must change two rows")
        at += 1
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    rows, diffs = many(given.updates)
    least = dict.fromkeys(NAMES, float("inf"))
    for _ in range(given.turns):
        for name in NAMES:
            least[name] = min(least[name], run_many(name, rows, diffs))
    one = {name: run_one(name, given.rows, given.epochs)[given.epochs // 10 :] for name in ("top_k", "max")}
    tell(
        {
            "updates": given.updates,
            "groups": GROUPS,
            **{f"{name}_ms": round(1000 * took, 1) for name, took in least.items()},
            **{f"{name}_to_max_ratio": round(took / least["max"], 1) for name, took in least.items() if name != "max"},
            "rows": given.rows,
            **{f"one_{name}_us_p50": round(float(np.median(took)), 1) for name, took in one.items()},
            **{f"one_{name}_us_p99": round(float(np.quantile(took, 0.99)), 1) for name, took in one.items()},
        }
    )


if __name__ == "__main__":
    main()
