"""Recursive programs in SQL beside the same programs in Python: CPU time of an update, and both plans.

    python -m bench.recursion [--nodes 1000] [--edges 2000] [--batches 1,100] [--updates 1000] [--programs reach,bfs]

Both read the same updates in the same epochs, in turns in one process: a random edge goes and another one comes. A time
is the median of the epochs, and the answers are compared after the last. `vernier explain` of both plans is printed to
standard error. Exit status 1 if answers differ.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import vernier as vn
from bench.programs import Edge, Root, spread, turned
from bench.record import tell
from vernier import Collection, col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.service.cli.explain import as_text
from vernier.service.sql.front import FRONT
from vernier.storage.updates import Updates

EDGES = """
CREATE TABLE edges (src BIGINT NOT NULL, dst BIGINT NOT NULL);
CREATE TABLE roots (node BIGINT NOT NULL);
"""
REACH = """
CREATE MATERIALIZED VIEW v AS WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 1000)
  r (node BIGINT) AS (SELECT node FROM roots UNION SELECT e.dst FROM r JOIN edges e ON r.node = e.src)
SELECT * FROM r;
"""
BFS = """
CREATE MATERIALIZED VIEW v AS WITH MUTUALLY RECURSIVE
  d (node BIGINT, distance BIGINT) AS (
    SELECT node, min(distance) AS distance
    FROM (SELECT node, 0 AS distance FROM roots
          UNION ALL SELECT e.dst, d.distance + 1 FROM d JOIN edges e ON d.node = e.src)
    GROUP BY node)
SELECT * FROM d;
"""
COMPONENTS = """
CREATE VIEW both AS SELECT src, dst FROM edges UNION ALL SELECT dst, src FROM edges;
CREATE MATERIALIZED VIEW v AS WITH MUTUALLY RECURSIVE
  c (node BIGINT, label BIGINT) AS (
    SELECT node, min(label) AS label
    FROM (SELECT src AS node, src AS label FROM both
          UNION ALL SELECT b.dst, c.label FROM c JOIN both b ON c.node = b.src)
    GROUP BY node)
SELECT * FROM c;
"""
STRONG = """
CREATE MATERIALIZED VIEW v AS WITH MUTUALLY RECURSIVE
  inside (src BIGINT, dst BIGINT) AS (SELECT src, dst FROM edges EXCEPT ALL SELECT src, dst FROM cut),
  forward (node BIGINT, label BIGINT) AS (
    WITH MUTUALLY RECURSIVE l (node BIGINT, label BIGINT) AS (
      SELECT node, min(label) AS label
      FROM (SELECT dst AS node, dst AS label FROM edges
            UNION ALL SELECT i.dst, l.label FROM l JOIN inside i ON l.node = i.src)
      GROUP BY node)
    SELECT * FROM l),
  backward (node BIGINT, label BIGINT) AS (
    WITH MUTUALLY RECURSIVE l (node BIGINT, label BIGINT) AS (
      SELECT node, min(label) AS label
      FROM (SELECT src AS node, src AS label FROM edges
            UNION ALL SELECT i.src, l.label FROM l JOIN inside i ON l.node = i.dst)
      GROUP BY node)
    SELECT * FROM l),
  kept (src BIGINT, dst BIGINT) AS (
    SELECT e.src, e.dst
    FROM edges e JOIN forward f ON e.src = f.node JOIN forward g ON e.dst = g.node AND f.label = g.label
      JOIN backward h ON e.src = h.node JOIN backward i ON e.dst = i.node AND h.label = i.label),
  cut (src BIGINT, dst BIGINT) AS (SELECT src, dst FROM edges EXCEPT ALL SELECT src, dst FROM kept)
SELECT * FROM inside;
"""
PARTS = "CREATE TABLE parts (whole BIGINT NOT NULL, part BIGINT NOT NULL, amount BIGINT NOT NULL);\n"
MATERIAL = """
CREATE MATERIALIZED VIEW v AS
WITH RECURSIVE needs (whole, part, amount) AS (
  SELECT whole, part, amount FROM parts
  UNION ALL SELECT n.whole, p.part, n.amount * p.amount FROM needs n JOIN parts p ON n.part = p.whole)
SELECT whole, part, sum(amount) AS amount FROM needs GROUP BY whole, part;
"""


class Part(vn.Schema):
    """How often a part is in a whole."""

    whole: vn.Int64
    part: vn.Int64
    amount: vn.Int64


def reach(edges: Collection, roots: Collection) -> Collection:
    """The nodes that can be reached from the roots."""

    @vn.fixpoint
    def reached(reached: Collection) -> Collection:
        step = reached.join(edges, left_on="node", right_on="src").select(node=col("dst"))
        return vn.union(roots, step).distinct()

    found: Collection = reached(roots)
    return found


def bfs(edges: Collection, roots: Collection) -> Collection:
    """The distance of each node from the nearest root."""
    start = roots.with_columns(distance=vn.lit(0))

    @vn.fixpoint
    def distances(d: Collection) -> Collection:
        step = d.join(edges, left_on="node", right_on="src").select(node=col("dst"), distance=col("distance") + 1)
        return vn.union(start, step).group_by("node").agg(distance=vn.min("distance"))

    found: Collection = distances(start)
    return found


def components(edges: Collection, roots: Collection) -> Collection:
    """The least node that each node is connected with."""
    both = vn.union(edges, turned(edges))
    return spread(both.select(node="src", label="src"), both)


def strong(edges: Collection, roots: Collection) -> Collection:
    """The edges within strongly connected components."""
    heads, tails = edges.select(node="dst", label="dst"), edges.select(node="src", label="src")

    @vn.fixpoint
    def inside(inside: Collection) -> Collection:
        forward, backward = spread(heads, inside), spread(tails, turned(inside))
        found = edges
        for known in (forward, backward):
            found = found.join(known.rename(label="tail"), left_on="src", right_on="node").drop("node")
            found = found.join(known.rename(label="head"), left_on="dst", right_on="node").drop("node")
            found = found.filter(col("tail") == col("head")).select("src", "dst")
        return found

    result: Collection = inside(edges)
    return result


def material(parts: Collection) -> Collection:
    """How often each part is in each whole, over all ways."""

    @vn.fixpoint
    def needs(needs: Collection) -> Collection:
        below = parts.select(inner="whole", below="part", times="amount")
        step = needs.join(below, left_on="part", right_on="inner")
        return vn.union(parts, step.select("whole", part=col("below"), amount=col("amount") * col("times")))

    return needs(parts).group_by("whole", "part").agg(amount=vn.sum("amount"))


PROGRAMS: dict[str, tuple[str, Callable[..., Collection]]] = {
    "reach": (EDGES + REACH, reach),
    "bfs": (EDGES + BFS, bfs),
    "components": (EDGES + COMPONENTS, components),
    "strong": (EDGES + STRONG, strong),
    "material": (PARTS + MATERIAL, material),
}


def in_python(build: Callable[..., Collection]) -> vn.App:
    """A program in Python, with one view."""
    app = vn.App("python")
    sources = (
        [app.source("parts", Part)] if build is material else [app.source("edges", Edge), app.source("roots", Root)]
    )
    app.view("v", build(*sources))
    return app


Rows = dict[str, list[tuple[tuple[int, ...], int]]]
"""Rows with their changes, by source."""


def changes(name: str, nodes: int, edges: int, batch: int, updates: int) -> list[Rows]:
    """The first rows, and epochs of `batch` updates each: as many rows go as come."""
    choose = random.Random(7)

    def row() -> tuple[int, ...]:
        if name != "material":
            return choose.randrange(nodes), choose.randrange(nodes)
        # Wholes of ten layers: a part lies in the layer below.
        layer, width = choose.randrange(9), nodes // 10
        return layer * width + choose.randrange(width), (layer + 1) * width + choose.randrange(width), 2

    source = "parts" if name == "material" else "edges"
    held = [row() for _ in range(edges)]
    first: Rows = {source: [(one, 1) for one in held]}
    if name != "material":
        first["roots"] = [((0,), 1)]
    found = [first]
    for _ in range(max(3, updates // batch)):
        made = []
        for at in range(batch):
            if at % 2 == len(found) % 2:
                held.append(row())
                made.append((held[-1], 1))
            else:
                made.append((held.pop(choose.randrange(len(held))), -1))
        found.append({source: made})
    return found


class Running:
    """A program that runs, and the CPU time of its epochs."""

    def __init__(self, app: vn.App) -> None:
        self.app, self.plan = app, compile_app(app)
        self.engine = LocalEngine(self.plan)
        self.taken: list[int] = []
        self.rows: Counter[Any] = Counter()

    def epoch(self, at: int, given: Rows) -> None:
        """One epoch."""
        inputs = {}
        for name, updates in given.items():
            words = self.app.sources[name].schema.encode_rows([row for row, _ in updates], self.engine.heap)
            inputs[name] = Updates.of(words, at, [diff for _, diff in updates])
        before = time.process_time_ns()
        found = self.engine.run_epoch(at, at + 1, inputs)["v"]
        self.taken.append(time.process_time_ns() - before)
        rows = self.app.views["v"].node.schema.decode_rows(found.rows, self.engine.heap)
        for row, diff in zip(rows, found.diff.tolist(), strict=True):
            self.rows[row] += diff

    def answer(self) -> dict[Any, int]:
        """The rows of the view."""
        return {row: count for row, count in self.rows.items() if count}


def shape(plan: Mapping[str, Any]) -> Counter[str]:
    """How many operators of each kind a plan has."""
    return Counter(str(one["kind"]) for one in plan["operators"])


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--edges", type=int, default=2_000)
    parser.add_argument("--batches", default="1,100")
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    given = parser.parse_args()
    values: dict[str, Any] = {}
    rows, failed = [], False
    for name in given.programs.split(","):
        text, build = PROGRAMS[name]
        for batch in map(int, given.batches.split(",")):
            both = {"python": Running(in_python(build)), "sql": Running(FRONT.program(text, f"{name}.sql"))}
            if not any(key.startswith(f"{name} ") for key in values):
                for language, one in both.items():
                    print(f"# {name} in {language}\n{as_text(one.plan.explain())}\n", file=sys.stderr)
            for at, epoch in enumerate(changes(name, given.nodes, given.edges, batch, given.updates)):
                for one in both.values():
                    one.epoch(at, epoch)
            took = {language: statistics.median(one.taken[1:]) / batch / 1e3 for language, one in both.items()}
            speed = took["python"] / took["sql"]
            same = both["python"].answer() == both["sql"].answer()
            kinds = {language: shape(one.plan.explain()) for language, one in both.items()}
            values[f"{name} {batch}"] = {
                **{f"{language}_us": round(one, 2) for language, one in took.items()},
                "speed_ratio": round(speed, 2), "same_answers": same,
                "operators": {language: sum(one.values()) for language, one in kinds.items()},
                "only_python": dict(kinds["python"] - kinds["sql"]), "only_sql": dict(kinds["sql"] - kinds["python"]),
            }  # fmt: skip
            rows.append([name, batch, round(took["python"], 1), round(took["sql"], 1), round(speed, 2)])
            print(*rows[-1], values[f"{name} {batch}"], file=sys.stderr, flush=True)
            failed |= not same
    head = ["program", "updates a batch", "Python, µs an update", "SQL, µs an update", "speed of SQL"]
    tell(values, tables={"recursion": {"head": head, "rows": rows}})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
