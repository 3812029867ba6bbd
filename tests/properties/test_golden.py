"""The worked table of "High resolution, high throughput", times and all: the answers to four changes of a graph."""

from __future__ import annotations

import itertools

import pytest

import vernier as vn
from tests.oracle import programs
from tests.oracle.model import Change, changes
from tests.properties.engine import run
from tests.properties.programs import known_programs

EDGES: list[Change] = [((0, 3), 0, 1), ((0, 2), 5, 1), ((2, 3), 10, 1), ((0, 3), 11, -1)]
ROOTS: list[Change] = [((0,), 0, 1)]
DISTANCES: list[Change] = [((0,), 0, 1), ((1,), 0, 1), ((1,), 5, 1), ((1,), 11, -1), ((2,), 11, 1)]
"""The seed's table, and before it the root, which is at distance 0 of itself."""
HISTOGRAM: list[Change] = [
    ((0, 1), 0, 1),
    ((1, 1), 0, 1),
    ((1, 1), 5, -1),
    ((1, 2), 5, 1),
    ((1, 1), 11, 1),
    ((1, 2), 11, -1),
    ((2, 1), 11, 1),
]
"""The same as (distance, number of nodes)."""
TIMES = (0, 5, 10, 11)
CUTS = [cuts for count in range(len(TIMES) + 1) for cuts in itertools.combinations(TIMES, count)]


def test_the_oracle_gives_the_table() -> None:
    updates = {"edges": EDGES, "roots": ROOTS}
    assert changes(programs.distances(), updates) == DISTANCES
    assert changes(programs.histogram(), updates) == sorted(HISTOGRAM, key=lambda change: (change[1], change[0]))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_the_engine_gives_the_table_however_it_is_cut(cuts: tuple[int, ...], workers: int) -> None:
    app = known_programs(["distances", "histogram"])
    for slice_updates in (1, 1024):
        found = run(app, {"edges": EDGES, "roots": ROOTS}, cuts=cuts, workers=workers, slice_updates=slice_updates)
        assert found["distances"] == DISTANCES
        assert found["histogram"] == sorted(HISTOGRAM, key=lambda change: (change[1], change[0]))


def test_a_program_gives_the_table_in_a_test_of_its_own() -> None:
    with vn.testing.run(known_programs(["distances"])) as session:
        session.update("edges", EDGES)
        session.update("roots", ROOTS)
        session.advance(12)
        assert session.changes("distances") == DISTANCES
        assert session.rows("distances", at=10) == [(0,), (1,), (1,)]
        assert session.rows("distances", at=11) == [(0,), (1,), (2,)]
