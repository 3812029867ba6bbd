"""Large groups: many updates in few groups, and one change in a group of a million rows.

`python -m bench.groups --updates 100000 --rows 1000000`: first 100,000 updates, a third of them deletions, each at its
own time, in four groups, for each aggregate, in turns; seconds of CPU, the least of the turns, and the ratio to `max`.
What is held at the end is compared with a recount. Then epochs of one change in one group, for each case of `ONE`: the
ten best, a greatest value that leaves, neighbours, sums and ranks with ten rows behind the change; microseconds of
CPU by epoch, their changes compared with what the sorted rows tell. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import vernier as vn
from bench.record import tell
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.group_functions.frames import FrameSums
from vernier.operators.group_functions.sessions import Sessions
from vernier.operators.language.collection.ordering import grouped_by
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


Rows = vn.Collection


def _sliding(readings: Rows) -> Rows:
    """The sum over the row, and the two on either side of it."""
    spec = FrameSums((("value", False),), "x", (), ("id",), -2, 2)
    return readings._of(grouped_by(readings.node, ("group",), spec))


def _session_starts(readings: Rows) -> Rows:
    """All rows are one session; each row with its start, as `session_window()` in SQL has it."""
    return readings._of(grouped_by(readings.node, ("group",), Sessions("value", 10, ends=False)))


@dataclass(frozen=True)
class One:
    """A view of a group of which one row changes. changes: how many rows of the view each change adds and retracts.
    place: its value (`TOP`: above all but BEHIND rows; `BOTTOM`: below all but these; `MIDDLE`: between two
    rows; `BEST`: above all; `MOVES`: in the middle, where a row comes from BEHIND places below). value: what the view
    says of the row, if that is simple to tell from the ids in order and the place of the row among them."""

    view: Callable[[Rows], Rows]
    changes: int
    place: str = "TOP"
    value: Callable[[Any, int], int] | None = None


BEHIND = 10
_AFTER = 1 + 2 * BEHIND
ONE: dict[str, One] = {
    "top_k": One(lambda rows: rows.top_k(10, by=col("value").desc(), within="group"), 2, "BEST"),
    "max": One(lambda rows: rows.group_by("group").agg(x=vn.max("value")), 2, "BEST"),
    "lag": One(
        lambda rows: rows.lag("id", by="value", within="group", name="x"), 3, "MIDDLE", lambda ids, at: ids[at - 1]
    ),
    "session": One(lambda rows: rows.window("value", session=1, by="group"), 1, "MIDDLE"),
    "session_start": One(_session_starts, 1, "MIDDLE", lambda ids, at: 0),
    "frame": One(_sliding, 9, "MIDDLE", lambda ids, at: int(ids[at - 2 : at + 3].sum())),
    "running_sum": One(
        lambda rows: rows.running_sum("id", by="value", within="group", name="x"),
        _AFTER,
        value=lambda ids, at: int(ids[: at + 1].sum()),
    ),
    "running_sum_down": One(
        lambda rows: rows.running_sum("id", by=col("value").desc(), within="group", name="x"),
        _AFTER,
        "BOTTOM",
        value=lambda ids, at: int(ids[at:].sum()),
    ),
    "running_max": One(
        lambda rows: rows.running_max("id", by="value", within="group", name="x"),
        _AFTER,
        value=lambda ids, at: int(ids[: at + 1].max()),
    ),
    "row_number": One(
        lambda rows: rows.row_number(by="value", within="group", name="x"), _AFTER, value=lambda ids, at: at + 1
    ),
    "rank": One(lambda rows: rows.rank(by="value", within="group", name="x"), _AFTER, value=lambda ids, at: at + 1),
    "dense_rank": One(
        lambda rows: rows.dense_rank(by="value", within="group", name="x"), _AFTER, value=lambda ids, at: at + 1
    ),
    "median": One(lambda rows: rows.group_by("group").agg(x=vn.median("value")), 2, "MIDDLE"),
    "quantile": One(lambda rows: rows.group_by("group").agg(x=vn.quantile("value", 0.9)), 2, "BEST"),
    "rank_that_moves": One(
        lambda rows: rows.rank(by=col("value").desc(), within="group", name="x"),
        2 * BEHIND,
        "MOVES",
        lambda ids, at: len(ids) - at,
    ),
}
"""What is measured with one change in a large group."""


def run_one(name: str, size: int, epochs: int) -> list[float]:
    """Microseconds of CPU of epochs with one change each in a group of `size` rows: a row comes, and leaves again.

    The values are 10 apart, in no order. In every other epoch the row is new; it has the place that the case names.
    """
    case = ONE[name]
    app = vn.App("groups")
    app.view("out", case.view(app.source("readings", Reading)))
    worker = Worker(compile_app(app))
    values = 10 * np.random.default_rng(1).permutation(size)
    ids = np.argsort(values)
    loaded = np.column_stack((np.zeros(size, np.int64), np.arange(size), values, np.zeros(size, np.int64)))
    loaded = np.ascontiguousarray(np.column_stack((loaded, np.ones(size, np.int64))))
    worker.run_epoch(MIN_TIME, 1, {"readings": Updates(loaded, 3, 0)})
    # How many of the loaded rows have a lower value than the new one.
    at = {"TOP": size - BEHIND, "BOTTOM": BEHIND, "MIDDLE": size // 2, "MOVES": size // 2, "BEST": size}[case.place]
    took = list[float]()
    for epoch in range(1, epochs + 1):
        comes, number = epoch % 2 == 1, size + epoch // 2
        rows, diffs = [(0, number - (not comes), 10 * at - 5)], [1 if comes else -1]
        if case.place == "MOVES":
            # The player who was BEHIND places lower gains as many.
            number, low = int(ids[at - BEHIND]), 10 * (at - BEHIND)
            rows, diffs = [(0, number, 10 * at - 5), (0, number, low)], [diffs[0], -diffs[0]]
        updates = {"readings": Updates.of(rows, [epoch] * len(rows), diffs)}
        began = time.process_time_ns()
        result = worker.run_epoch(epoch, epoch + 1, updates)
        took.append((time.process_time_ns() - began) / 1000)
        _check(name, result.changes["out"].data, rows[0], diffs[0], ids, at)
    return took


def _check(name: str, changes: Any, row: Row, diff: int, ids: Any, at: int) -> None:
    """Compare an epoch's changes with what the sorted rows tell."""
    case = ONE[name]
    if len(changes) != case.changes:
        raise SystemExit(f"{name}: {len(changes)} rows have changed, not {case.changes}")
    if case.value is None:
        return
    there = np.insert(ids, at, row[1]) if case.place != "MOVES" else ids
    wanted = (*row, int(case.value(there, at if case.place != "MOVES" else at - 1)), diff)
    if wanted not in [(*one[:3], one[-3], one[-1]) for one in changes.tolist()]:
        raise SystemExit(f"{name}: the change {wanted} is missing")


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
    one = {name: run_one(name, given.rows, given.epochs)[given.epochs // 10 :] for name in ONE}
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
