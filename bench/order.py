"""In which order a loop is computed: `python -m bench.order --nodes 100 --edges 100 --updates 10`.

Breadth-first search from node 0; each update inserts an edge and deletes the oldest, at a time of its own. Prints every
pair of data time and round at which a distance changes, in the order in which the loop came to it: once with an epoch
for each update, once with all updates in one epoch. In the first, data times come in order and rounds start again with
each of them; in the second, rounds come in order, each for all data times at once. Then, for the second, how many keys
had changes at 1, 2, 3 … different times in all. Both give the same answers. Source: "High
resolution, high throughput".
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np

import vernier as vn
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.language.collection.collection import Collection
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import CLOSED, MIN_TIME, Updates

Place = tuple[int, int]
Change = tuple[tuple[int, int], int, int]


class Edge(vn.Schema):
    """An edge."""

    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    """Where the search begins."""

    node: vn.Int64


class Watched:
    """The program, and where in (data time, round) its loop saw changes, in the order of computation."""

    def __init__(self) -> None:
        self.order: list[Place] = []
        self.times: dict[int, set[Place]] = defaultdict(set)
        app = vn.App("order")
        edges, roots = app.source("edges", Edge), app.source("roots", Root)
        start = roots.select("node", distance=0)

        def distances(found: Collection) -> Collection:
            step = found.join(edges, left_on="node", right_on="src").select(node="dst", distance=col("distance") + 1)
            return vn.union(start, step).group_by("node").agg(distance=vn.min("distance")).inspect(self._see)

        found = vn.fixpoint(distances)(start)
        app.view("distances", found, key=["node"])
        self.plan = compile_app(app)

    def _see(self, row: tuple[int, int], time: Place, diff: int) -> None:
        if not self.order or self.order[-1] != time:
            self.order.append(time)
        self.times[row[0]].add(time)


def sliding(edges: list[tuple[int, int]], window: int) -> list[Change]:
    """The first `window` edges at time 0, then one in and one out at each time."""
    updates = [(edge, 0, 1) for edge in edges[:window]]
    for at, (old, new) in enumerate(zip(edges, edges[window:], strict=False), 1):
        updates += [(new, at, 1), (old, at, -1)]
    return updates


def run(updates: list[Change], one_by_one: bool) -> tuple[Watched, list[list[int]]]:
    """Search from node 0, with an epoch for each time or one for all. Returns what was seen, and all changes."""
    watched = Watched()
    ends = [*sorted({time for _, time, _ in updates if time > 0}), CLOSED] if one_by_one else [CLOSED]
    found = []
    with LocalEngine(watched.plan) as engine:
        for lower, upper in pairwise([MIN_TIME, *ends]):
            mine = [one for one in updates if lower <= one[1] < upper]
            rows, times, diffs = ([one[i] for one in mine] for i in range(3))
            batch = {"edges": Updates.of(rows, times, np.array(diffs))}
            if lower == MIN_TIME:
                batch["roots"] = Updates.of([(0,)], [0], 1)
            found.append(engine.run_epoch(lower, upper, batch)["distances"])
    return watched, Updates.concat(found, 2).consolidate().data.tolist()


def seen(watched: Watched) -> list[Place]:
    """The order, each place where it came first: changes of one step are shown row by row."""
    return list(dict.fromkeys(watched.order))


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--edges", type=int, default=100)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    choose = np.random.default_rng(given.seed)
    edges = [(int(a), int(b)) for a, b in choose.integers(0, given.nodes, (given.edges + given.updates, 2))]
    updates = sliding(edges, given.edges)
    single, one = run(updates, True)
    together, other = run(updates, False)
    if one != other:
        raise SystemExit("the answers differ")
    for title, watched in (("an epoch for each update", single), ("one epoch", together)):
        print(f"{title}: (data time, round)")
        for time, round_ in seen(watched):
            print(f"  ({time}, {round_})")
    print("different times of a key: keys")
    for times, keys in sorted(Counter(len(times) for times in together.times.values()).items()):
        print(f"  {times}: {keys}")


if __name__ == "__main__":
    main()
