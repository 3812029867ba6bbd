"""The model of the pivoted order agrees with the oracle, and the known programs find every mistake planted in it."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from tests.oracle import programs, timed
from tests.oracle.model import Change, changes
from tests.oracle.pivoted import Flaw, changes_in_slices
from tests.oracle.plan import Node

VIEWS: dict[str, Node] = {
    "self join": programs.siblings(),
    "reach": programs.reach(),
    "bfs": programs.bfs(),
    "even": programs.even_odd()[0],
    "strong": programs.strong_edges(),
    "core": programs.core(2),
    "strong core": programs.strong_core(),
    "fed": programs.fed_by_cycles(),
    "winning": programs.winning(),
    "winning in 5": programs.winning_in(5),
    "walks": programs.walks(3),
    "flips": programs.flips(3, 3),
    "valid": timed.valid(),
    "copies": timed.copies(),
    "passing": timed.passing(),
    "slowly": timed.slowly(),
    "turning": timed.turning(),
    "recent": timed.recent(),
    "rounded": timed.rounded(),
    "fading": timed.fading(),
    "echo": timed.echo(),
    "per source": timed.per_source(),
}


def moving_graph(choose: random.Random, nodes: int, count: int) -> dict[str, list[Change]]:
    """Edges come and go, some at one time; now and then one that is not there goes."""
    held: list[tuple[int, int]] = []
    edges: list[Change] = []
    time = 0
    for _ in range(count):
        time += choose.choice((0, 1, 1, 3))
        if held and choose.random() < 0.4:
            edges.append((held.pop(choose.randrange(len(held))), time, -1))
        else:
            edge = (choose.randrange(nodes), choose.randrange(nodes))
            held.append(edge)
            edges.append((edge, time, 1))
    roots: list[Change] = [((0,), 0, 1), ((1,), time // 3, 1), ((0,), time // 2, -1), ((0,), time, 1)]
    return {"edges": edges, "roots": roots}


def case(seed: int) -> tuple[dict[str, list[Change]], list[int]]:
    """Updates and the ends of slices: one slice, one for each time, or some."""
    choose = random.Random(seed)
    updates = moving_graph(choose, choose.choice((4, 5, 6)), 30)
    times = sorted({time for part in updates.values() for _, time, _ in part})
    return updates, [[], times, choose.sample(times, len(times) // 3)][seed % 3]


@pytest.mark.parametrize("name", VIEWS)
def test_the_model_agrees_with_the_oracle(name: str) -> None:
    for seed in range(12):
        updates, cuts = case(seed)
        assert changes_in_slices([VIEWS[name]], updates, cuts) == [changes(VIEWS[name], updates)], f"seed {seed}"


FOUND_BY: dict[Flaw, tuple[str, ...]] = {
    "initial value is never taken back": ("core", "fed", "winning", "walks"),
    "join counts a shared change twice": ("self join",),
    "join forgets other rounds": ("strong core", "flips"),
    "no visits at later rounds": ("reach", "bfs", "even", "core", "winning in 5"),
    "visits from this slice's rounds only": ("reach", "even", "fed", "winning in 5"),
    "only this round's own times": ("reach", "bfs", "even", "fed", "winning", "flips"),
    "skips by the filter of single loops": ("flips",),
    "what ran before counts as earlier": ("core", "strong core", "flips"),
    "compaction folds rounds": ("winning in 5",),
    "parent does not wait for inner loop": ("strong", "core", "strong core", "flips"),
    "truncates one round early": ("winning in 5", "walks", "flips"),
    "truncates one round late": ("winning in 5", "walks", "flips"),
    "factors replace diffs": ("copies", "echo"),
    "held updates are released a slice late": ("valid", "recent", "fading"),
    "held updates forget their rounds": ("passing", "slowly", "turning"),
    "held updates are released again": ("valid", "passing", "slowly", "recent"),
    "bounds are not raised to the update's time": ("valid", "passing"),
    "rows that end before they start are taken away": ("valid",),
    "coarsened times are rounded down": ("slowly", "turning", "rounded"),
    "multiples are coarsened to the next": ("slowly", "turning", "rounded"),
    "slices are wider than the delay": ("fading", "echo"),
}
"""Which programs give wrong answers with a mistake, on some of the first 40 cases."""


def differs(view: Node, seed: int, flaw: Flaw) -> bool:
    """Whether the flaw shows; an assertion of the model counts."""
    updates, cuts = case(seed)
    try:
        return changes_in_slices([view], updates, cuts, {flaw}) != [changes(view, updates)]
    except AssertionError:
        return True


def test_every_planted_mistake_is_looked_for() -> None:
    assert set(FOUND_BY) == set(get_args(Flaw))


@pytest.mark.parametrize(("flaw", "name"), [(flaw, name) for flaw, names in FOUND_BY.items() for name in names])
def test_the_programs_find_every_planted_mistake(flaw: Flaw, name: str) -> None:
    assert any(differs(VIEWS[name], seed, flaw) for seed in range(40))
