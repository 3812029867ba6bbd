"""Recursive programs in SQL give the changes of the same programs in Python, times included."""

from __future__ import annotations

import random

import networkx
import pytest

import vernier as vn
from bench.recursion import BFS, COMPONENTS, EDGES, REACH
from tests.oracle.model import Change, collection_at
from tests.sql.snapshots import Oracle, check
from vernier import col
from vernier.operators import testing

pytestmark = pytest.mark.spark

STRONG = """
CREATE MATERIALIZED VIEW v AS WITH MUTUALLY RECURSIVE
  intra (src BIGINT, dst BIGINT) AS (
    SELECT src, dst FROM edges EXCEPT ALL SELECT src, dst FROM delayed
    UNION ALL
    SELECT e.src, e.dst FROM edges e, forward f, forward g, backward h, backward i
    WHERE e.src = f.node AND e.dst = g.node AND e.src = h.node AND e.dst = i.node
      AND f.label = g.label AND h.label = i.label),
  forward (node BIGINT, label BIGINT) AS (
    WITH MUTUALLY RECURSIVE l (node BIGINT, label BIGINT) AS (
      SELECT node, min(label) AS label
      FROM (SELECT dst AS node, dst AS label FROM edges UNION ALL SELECT src, src FROM edges
            UNION ALL SELECT i.dst, l.label FROM intra i JOIN l ON i.src = l.node)
      GROUP BY node)
    SELECT * FROM l),
  backward (node BIGINT, label BIGINT) AS (
    WITH MUTUALLY RECURSIVE l (node BIGINT, label BIGINT) AS (
      SELECT node, min(label) AS label
      FROM (SELECT dst AS node, dst AS label FROM edges UNION ALL SELECT src, src FROM edges
            UNION ALL SELECT i.src, l.label FROM intra i JOIN l ON i.dst = l.node)
      GROUP BY node)
    SELECT * FROM l),
  delayed (src BIGINT, dst BIGINT) AS (SELECT src, dst FROM edges)
SELECT * FROM intra;
"""


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    node: vn.Int64


def python_reach(edges: vn.Collection, roots: vn.Collection) -> vn.Collection:
    @vn.fixpoint
    def reach(reached: vn.Collection) -> vn.Collection:
        step = reached.join(edges, left_on="node", right_on="src").select(node=col("dst"))
        return vn.union(roots, step).distinct()

    found: vn.Collection = reach(roots)
    return found


def python_bfs(edges: vn.Collection, roots: vn.Collection) -> vn.Collection:
    start = roots.with_columns(distance=vn.lit(0))

    @vn.fixpoint
    def bfs(d: vn.Collection) -> vn.Collection:
        step = d.join(edges, left_on="node", right_on="src").select(node=col("dst"), distance=col("distance") + 1)
        return vn.union(start, step).group_by("node").agg(distance=vn.min("distance"))

    found: vn.Collection = bfs(start)
    return found


def python_components(edges: vn.Collection, roots: vn.Collection) -> vn.Collection:
    both = vn.union(edges, edges.select(src="dst", dst="src"))
    start = both.select(node="src", label="src")

    @vn.fixpoint
    def components(c: vn.Collection) -> vn.Collection:
        step = c.join(both, left_on="node", right_on="src").select(node="dst", label="label")
        return vn.union(start, step).group_by("node").agg(label=vn.min("label"))

    found: vn.Collection = components(start)
    return found


def python_strong(edges: vn.Collection, roots: vn.Collection) -> vn.Collection:
    """The edges between nodes that agree on who reaches them, forwards and backwards, until none is dropped."""
    ends = vn.union(edges.select(node="src"), edges.select(node="dst")).distinct()

    @vn.fixpoint
    def spread(known: vn.Collection, *, edges: vn.Collection, start: vn.Collection) -> vn.Collection:
        step = known.join(edges, left_on="node", right_on="src").select(node="dst", label="label")
        return vn.union(start, step).group_by("node").agg(label=vn.min("label"))

    def agreeing(edges: vn.Collection) -> vn.Collection:
        start = ends.with_columns(label=col("node"))
        known = spread(start, edges=edges, start=start)
        tails = edges.join(known.rename(label="tail"), left_on="src", right_on="node").drop("node")
        both = tails.join(known.rename(label="head"), left_on="dst", right_on="node")
        return both.filter(col("tail") == col("head")).select("src", "dst")

    def turned(edges: vn.Collection) -> vn.Collection:
        return edges.select(src="dst", dst="src")

    @vn.fixpoint
    def trim(inside: vn.Collection) -> vn.Collection:
        return turned(agreeing(turned(agreeing(inside))))

    found: vn.Collection = trim(edges)
    return found


CASES = {
    "reachability": (REACH, python_reach),
    "bfs": (BFS, python_bfs),
    "components": (COMPONENTS, python_components),
    "strong": (STRONG, python_strong),
}


PARTS = "CREATE TABLE parts (whole BIGINT NOT NULL, part BIGINT NOT NULL, amount BIGINT NOT NULL);"
MATERIAL = """
WITH RECURSIVE needs (whole, part, amount) AS (
  SELECT whole, part, amount FROM parts
  UNION ALL SELECT n.whole, p.part, n.amount * p.amount FROM needs n JOIN parts p ON n.part = p.whole)
SELECT whole, part, sum(amount) AS amount FROM needs GROUP BY whole, part
"""


class Part(vn.Schema):
    whole: vn.Int64
    part: vn.Int64
    amount: vn.Int64


def python_materials() -> vn.App:
    app = vn.App("materials")
    parts = app.source("parts", Part)

    @vn.fixpoint
    def needs(needs: vn.Collection, *, parts: vn.Collection) -> vn.Collection:
        inner = parts.select(inner="whole", piece="part", each="amount")
        deeper = needs.join(inner, left_on="part", right_on="inner")
        deeper = deeper.select(whole="whole", part="piece", amount=col("amount") * col("each"))
        return vn.union(parts, deeper)

    app.view("needs", needs(parts, parts=parts).group_by("whole", "part").agg(amount=vn.sum("amount")))
    return app


def test_a_bill_of_materials_is_that_of_spark_and_of_python(oracle: Oracle) -> None:
    choose = random.Random(3)
    made = [((whole := choose.randint(1, 6), choose.randint(whole + 1, 8), choose.randint(1, 3)), 1) for _ in range(14)]
    changes = [(row, time, diff) for time, (row, diff) in enumerate(made, 1)]
    changes += [(row, 20 + time, -1) for time, (row, _) in enumerate(made[:6])]
    check(oracle, PARTS, {"needs": MATERIAL}, {"parts": changes}, (6, 14, 30), epochs=(10, 21))
    found = []
    for app in (python_materials(), oracle.build(f"{PARTS}\nCREATE MATERIALIZED VIEW needs AS {MATERIAL};")):
        with testing.run(app, epochs=(10, 21)) as run:
            run.update("parts", changes)
            run.finish()
            found.append(run.changes("needs"))
    assert found[0] == found[1]
    assert found[0]


def test_components_by_nested_blocks_are_strong(oracle: Oracle) -> None:
    given = graph(9)
    with testing.run(oracle.build(EDGES + STRONG), epochs=(20,)) as run:
        for source, updates in given.items():
            run.update(source, updates)
        run.finish()
        for time in range(1, 51):
            edges = [edge for edge, count in collection_at(given["edges"], time).items() if count]
            parts = list(networkx.strongly_connected_components(networkx.DiGraph(edges)))
            wanted = {edge: 1 for edge in edges if any(set(edge) <= part for part in parts)}
            assert run.counts("v", at=time) == wanted, f"at {time}"


def graph(seed: int) -> dict[str, list[Change]]:
    """Edges among eight nodes that come and go, and two roots, one of which goes."""
    choose = random.Random(seed)
    held: list[tuple[int, int]] = []
    edges: list[Change] = []
    for time in range(1, 50):
        if held and (choose.random() < 0.4 or len(held) > 12):
            edges.append((held.pop(choose.randrange(len(held))), time, -1))
        else:
            edge = choose.randint(1, 8), choose.randint(1, 8)
            if edge not in held:
                held.append(edge)
                edges.append((edge, time, 1))
    return {"edges": edges, "roots": [((1,), 2, 1), ((5,), 10, 1), ((5,), 33, -1)]}


@pytest.mark.parametrize("name", CASES)
def test_recursive_sql_is_the_program_in_python(oracle: Oracle, name: str) -> None:
    text, build = CASES[name]
    app = vn.App("python")
    app.view("v", build(app.source("edges", Edge), app.source("roots", Root)))
    changes = []
    for workers, one in enumerate((app, oracle.build(EDGES + text)), 1):
        with testing.run(one, epochs=(7, 21, 22), workers=workers) as run:
            for source, updates in graph(7).items():
                run.update(source, updates)
            run.finish()
            changes.append(run.changes("v"))
    assert changes[0] == changes[1]
    assert changes[0]
