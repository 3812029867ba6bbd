"""People you may know, for a changing set of people: the latency to the first answer for one more of them.

The program of "Differential dataflow roadmap", with its antijoin: friends of friends who are no friends yet, the ten
with whom a person has the most friends in common. Friendships are arranged once by person and once by pair, for all
operators. Growing numbers of people get suggestions; then others ask, one in an epoch of its own, and leave again in
another one. Latency is the clock time of the epoch that has the first answer; the first suggestions of every tenth
person are compared with a count over the friendships in plain Python.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import vernier as vn
from bench.edges import random_edges
from bench.seeds.experiment import Found, curve, percentiles, shown
from bench.sharing import Asks, Knows
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Ints, Updates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRIENDSHIPS = 500_000
"""Each counts both ways; ten for each person, so twenty friends."""
ALREADY = (0, 10, 100, 1_000, 10_000)
MORE = 50
BEST = 10


def program() -> vn.App:
    """The query, on one source of friendships."""
    app = vn.App("people", retain="1us")
    asks, told = app.source("asks", Asks), app.source("knows", Knows)
    knows = vn.union(told, told.select(person="friend", friend="person"))
    friends = asks.join(knows, on="person")
    further = friends.join(knows.rename(person="friend", friend="other"), on="friend")
    maybe = further.filter(col("person") != col("other")).select("person", friend="other")
    new = maybe.join(knows, on=["person", "friend"], how="anti")
    counted = new.group_by("person", "friend").agg(common=vn.count())
    best = counted.top_k(BEST, by=[col("common").desc(), "friend"], within="person")
    app.view("suggestions", best, key=["person", "friend"])
    return app


def recounted(friends: dict[int, list[int]], person: int) -> list[tuple[int, int, int]]:
    """The suggestions for a person."""
    common = Counter(other for friend in friends[person] for other in friends[friend])
    found = [(-n, other) for other, n in common.items() if other != person and other not in friends[person]]
    return [(person, other, -n) for n, other in sorted(found)[:BEST]]


class People:
    """The running program."""

    def __init__(self, knows: Ints) -> None:
        self.plan = compile_app(program())
        self.worker = Worker(self.plan)
        self.now = 1
        self.worker.run_epoch(MIN_TIME, 1, {"knows": Updates.of(knows, 0, 1)})
        self.friends: dict[int, list[int]] = defaultdict(list)
        for one, other in knows.tolist():
            self.friends[one].append(other)
            self.friends[other].append(one)

    def ask(self, people: Ints, diff: int) -> tuple[tuple[int, int], list[tuple[int, ...]]]:
        """People come or go: nanoseconds of the epoch by the clock and of CPU, and the suggestions that came."""
        batch = {"asks": Updates.of(people[:, None], self.now, diff)}
        began, before = time.perf_counter_ns(), time.process_time_ns()
        result = self.worker.run_epoch(self.now, self.now + 1, batch)
        took = time.perf_counter_ns() - began, time.process_time_ns() - before
        self.now += 1
        changes = result.changes["suggestions"].consolidate().data.tolist()
        return took, sorted(tuple(row[:3]) for row in changes if row[-1] > 0)

    def more(self, others: Sequence[int]) -> tuple[list[int], list[int]]:
        """Each asks and leaves again; the nanoseconds until its first answer, by the clock and of CPU."""
        taken = []
        for place, person in enumerate(others):
            took, got = self.ask(np.array([person]), 1)
            taken.append(took)
            if place % 10 == 0 and got != sorted(recounted(self.friends, person)):
                raise SystemExit(f"people: the suggestions for {person} are wrong")
            self.ask(np.array([person]), -1)
        return [wall for wall, _ in taken], [cpu for _, cpu in taken]


def people(scale: float) -> Found:
    """The experiment."""
    friendships = max(200, round(FRIENDSHIPS * scale))
    persons = max(2, friendships // 10)
    pairs = np.sort(random_edges(friendships, degree=10), axis=1)
    knows = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    order = np.random.default_rng(1).permutation(persons)
    running, others = People(knows), order[:MORE].tolist()
    running.more(others[:5])  # kernels and caches
    taken: dict[int, list[int]] = {}
    values: dict[str, Any] = {
        "friendships": len(knows), "people": persons, "already": {},
        "arrangements": len([one for one in running.plan.arrangements.values() if not one.retained]),
    }  # fmt: skip
    rows, before = [], 0
    for already in ALREADY:
        if already > persons - MORE:
            break
        joined = 0, 0
        if already > before:
            joined, _ = running.ask(order[MORE + before : MORE + already], 1)
            before = already
        taken[already], cpu = running.more(others)
        arranged = running.worker.state.nbytes / 2**20
        one = {
            **percentiles(taken[already]),
            "cpu_ms": round(float(np.median(cpu)) / 1e6, 3),
            "all_joined_cpu_s": round(joined[1] / 1e9, 3),
            "all_joined_s": round(joined[0] / 1e9, 3),
            "arranged_mb": round(arranged, 1),
        }
        values["already"][str(already)] = one
        rows.append([f"{already:,}", *(shown(one[name]) for name in one)])

    def draw(axes: Sequence[Axes]) -> None:
        for already, one in taken.items():
            curve(axes[0], one, f"{already:,}")
        axes[0].set_title(f"first suggestions, {len(knows):,} friendships", fontsize="medium")
        axes[0].legend(title="people already there", fontsize="small")

    head = [
        "people with suggestions", "first answer for one more, p50, ms", "p90, ms", "p99, ms", "longest, ms",
        "CPU, p50, ms", "all that were added, at once, s of CPU", "by the clock, s", "arranged, MB",
    ]  # fmt: skip
    return Found(values, {"people": {"head": head, "rows": rows}}, draw)
