"""Recursive programs in SQL give the changes of the same programs in Python, times included."""

from __future__ import annotations

import random

import networkx
import pytest

from bench.recursion import EDGES, MATERIAL, PARTS, PROGRAMS, STRONG, in_python
from tests.oracle.model import Change, collection_at
from tests.sql.snapshots import Oracle, check
from vernier.operators import testing
from vernier.operators.planning.planner import compile_app

pytestmark = pytest.mark.spark

TABLES = EDGES
DELAYED = """
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


def test_a_bill_of_materials_is_that_of_spark(oracle: Oracle) -> None:
    choose = random.Random(3)
    made = [((whole := choose.randint(1, 6), choose.randint(whole + 1, 8), choose.randint(1, 3)), 1) for _ in range(14)]
    changes = [(row, time, diff) for time, (row, diff) in enumerate(made, 1)]
    changes += [(row, 20 + time, -1) for time, (row, _) in enumerate(made[:6])]
    needs = MATERIAL.partition(" AS\n")[2].rstrip().rstrip(";")
    check(oracle, PARTS, {"needs": needs}, {"parts": changes}, (6, 14, 30), epochs=(10, 21))


@pytest.mark.parametrize("text", [STRONG, DELAYED])
def test_components_by_nested_blocks_are_strong(oracle: Oracle, text: str) -> None:
    given = graph(9)
    with testing.run(oracle.build(TABLES + text), epochs=(20,)) as run:
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


def parts(seed: int) -> dict[str, list[Change]]:
    """Parts of wholes, without a cycle, that come and go."""
    choose = random.Random(seed)
    held: list[tuple[int, int, int]] = []
    found: list[Change] = []
    for time in range(1, 50):
        if held and choose.random() < 0.4:
            found.append((held.pop(choose.randrange(len(held))), time, -1))
        else:
            whole = choose.randint(1, 6)
            held.append((whole, choose.randint(whole + 1, 8), choose.randint(1, 3)))
            found.append((held[-1], time, 1))
    return {"parts": found}


@pytest.mark.parametrize("name", PROGRAMS)
def test_recursive_sql_is_the_program_in_python(oracle: Oracle, name: str) -> None:
    text, build = PROGRAMS[name]
    given = parts(7) if name == "material" else graph(7)
    changes = []
    for workers, one in enumerate((in_python(build), oracle.build(text)), 1):
        with testing.run(one, epochs=(7, 21, 22), workers=workers) as run:
            for source, updates in given.items():
                run.update(source, updates)
            run.finish()
            changes.append(run.changes("v"))
    assert changes[0] == changes[1]
    assert changes[0]


def test_bindings_that_no_round_reads_from_the_one_before_are_no_variables(oracle: Oracle) -> None:
    (loop,) = [
        one for one in compile_app(oracle.build(EDGES + STRONG)).explain()["operators"]
        if one["kind"] == "loop" and one["depth"] == 0
    ]  # fmt: skip
    assert loop["name"] == "inside, cut"
