"""Rows that are exchanged next may stay in several matrices: the same answers as one worker, and as no engine."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vernier as vn
from tests.operators.test_changes import as_of
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.program import program_of
from vernier.operators.kernels import programs
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import Ints, Updates


class Link(vn.Schema):
    """A link between nodes."""

    src: vn.Int64
    dst: vn.Int64


class Name(vn.Schema):
    """A node's name."""

    node: vn.Int64
    name: vn.String


def reach() -> vn.App:
    """What is reached over roads and rails, and how many nodes lie behind each one."""
    app = vn.App("reach", retain=1000)
    roads, rails = app.source("roads", Link), app.source("rails", Link)
    roots = roads.filter(col("src") == 0).select(node=col("src"))

    @vn.fixpoint
    def reached(found: vn.Collection) -> vn.Collection:
        more = [found.join(links, left_on="node", right_on="src").select(node=col("dst")) for links in (roads, rails)]
        return vn.union(roots, *more).distinct()

    found = reached(roots.distinct())
    behind = found.join(roads, left_on="node", right_on="src").select(node=col("dst"))
    app.view("reached", found)
    app.view("behind", vn.union(behind, roots).group_by("node").agg(n=vn.count()))
    return app


def truth(roads: list[tuple[int, int]], rails: list[tuple[int, int]]) -> tuple[set[int], dict[int, int]]:
    """Both answers for the links that are there, by hand."""
    found = {0} if any(src == 0 for src, _ in roads) else set()
    while more := {dst for src, dst in (*roads, *rails) if src in found} - found:
        found |= more
    behind: dict[int, int] = {}
    for node in [dst for src, dst in roads if src in found] + [src for src, _ in roads if src == 0]:
        behind[node] = behind.get(node, 0) + 1
    return found, behind


links = st.tuples(st.sampled_from(["roads", "rails"]), st.integers(0, 5), st.integers(0, 5))


@settings(deadline=None, max_examples=25)
@given(
    steps=st.lists(links, min_size=1, max_size=60),
    cuts=st.lists(st.integers(1, 60), max_size=4),
    workers=st.sampled_from([1, 2, 3]),
)
def test_answers_at_every_time(steps: list[tuple[str, int, int]], cuts: list[int], workers: int) -> None:
    present: dict[str, set[tuple[int, int]]] = {"roads": set(), "rails": set()}
    rows: dict[str, list[list[int]]] = {"roads": [], "rails": []}
    expected = []
    for time, (name, *link) in enumerate(steps):
        pair = link[0], link[1]
        rows[name].append([*pair, time, -1 if pair in present[name] else 1])
        present[name] ^= {pair}
        expected.append(truth(list(present["roads"]), list(present["rails"])))
    reached: list[list[int]] = []
    behind: list[list[int]] = []
    edges = [0, *sorted({cut for cut in cuts if cut < len(steps)}), len(steps)]
    with LocalEngine(compile_app(reach()), workers) as engine:
        for lower, upper in itertools.pairwise(edges):
            some: dict[str, Ints] = {
                name: np.array([row for row in of if lower <= row[2] < upper], np.int64).reshape(-1, 4)
                for name, of in rows.items()
            }
            changes = engine.run_epoch(lower, upper, {name: Updates(data, 2, 0) for name, data in some.items()})
            reached += changes["reached"].data.tolist()
            behind += changes["behind"].data.tolist()
    for time, (nodes, counts) in enumerate(expected):
        assert {row[0] for row in as_of(reached, time)} == nodes
        assert {row[0]: row[1] for row in as_of(behind, time)} == counts


def test_only_rows_that_are_sent_next_stay_apart() -> None:
    program = program_of(compile_app(reach()))
    assert program is not None
    apart = program.code[program.code[:, programs.E] > 0, programs.KIND]
    assert set(apart) >= {programs.JOIN}
    app = vn.App("twice")
    roads = app.source("roads", Link)
    onward = roads.select(via=col("src"), end=col("dst"))
    two = roads.join(onward, left_on="dst", right_on="via").select(src=col("src"), dst=col("end"))
    app.view("two", two)
    app.view("ends", two.group_by("dst").agg(n=vn.count()))
    program = program_of(compile_app(app))
    assert program is not None
    assert not np.any((program.code[:, programs.KIND] == programs.JOIN) & (program.code[:, programs.E] > 0))


@pytest.mark.parametrize("long", [False, True])
def test_texts_in_chains(long: bool) -> None:
    app = vn.App("named")
    roads, names = app.source("roads", Link), app.source("names", Name)

    @vn.fixpoint
    def reached(found: vn.Collection) -> vn.Collection:
        more = found.join(roads, left_on="node", right_on="src").select(node=col("dst"), name=col("name"))
        return vn.union(names, more).distinct()

    app.view("answer", reached(names.distinct()))
    plan = compile_app(app)
    chance = random.Random(3)
    epochs = []
    for time in range(6):
        roads_now = [[chance.randrange(6), chance.randrange(6), time, 1] for _ in range(4)]
        label = f"a name of more than sixteen bytes {time}" if long else f"n{time}"
        epochs.append((np.array(roads_now, np.int64), (chance.randrange(6), label)))

    def answers(workers: int) -> list[list[tuple[object, ...]]]:
        found = []
        with LocalEngine(plan, workers) as engine:
            for time, (links, (node, label)) in enumerate(epochs):
                schema = plan.sources["names"]
                words = schema.encode_rows([(node, label)], engine.heap)
                given = Updates(np.hstack([words, [[time, 1]]]), schema.width, 0)
                changes = engine.run_epoch(time, time + 1, {"roads": Updates(links, 2, 0), "names": given})["answer"]
                found.append(sorted(map(tuple, changes.data.tolist())))
        return found

    assert answers(2) == answers(1)
