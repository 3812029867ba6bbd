"""The ranks of leaderboard against sorted lists."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import pytest

import vernier as vn
from tests.examples.data import at, program, updates
from tests.programs.snapshots import Held, Row, compare, graph


def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
    """The board by counting for every player those with more points."""
    points: Counter[str] = Counter()
    matches: Counter[str] = Counter()
    for (_, player, scored), copies in held["results"].items():
        points[player] += scored * copies
        matches[player] += copies
    scores = [(player, team, points[player], matches[player]) for player, team in held["players"] if matches[player]]
    ranks = [(*row, 1 + sum(other[2] > row[2] for other in scores)) for row in scores]
    best: dict[str, list[int]] = defaultdict(list)
    for _, team, scored, _ in sorted(scores, key=lambda row: -row[2]):
        best[team] = [*best[team], scored][:2]
    teams = [(team, sum(two), len(two)) for team, two in best.items()]
    sums = {total for _, total, _ in teams}
    first = sorted(scores, key=lambda row: (-row[2], row[0], row))[:3]
    return {
        "ranks": ranks,
        "podium": [(rank, player, scored) for player, _, scored, _, rank in ranks if rank <= 3],
        "three": [(player, scored) for player, _, scored, _ in first],
        "teams": [(*row, 1 + sum(total > row[1] for total in sums)) for row in teams],
    }


def test_the_data() -> None:
    assert compare(program("leaderboard"), updates("leaderboard"), answer) == 6


def test_equals_share_a_rank_and_the_next_one_is_left_out() -> None:
    with vn.testing.run(program("leaderboard")) as run:
        for source, changes in updates("leaderboard").items():
            run.update(source, changes)
        run.finish()
        podium = [(1, "badger", 55), (1, "owl", 55), (3, "heron", 50), (3, "otter", 50), (3, "trout", 50)]
        assert run.rows("podium", at=at("12:00:00")) == podium
        assert run.rows("three", at=at("12:00:00")) == [("badger", 55), ("heron", 50), ("owl", 55)]
        assert run.rows("teams", at=at("13:00:00")) == [("forest", 110, 2, 1), ("river", 100, 2, 2)]
        assert run.rows("teams") == [("forest", 100, 2, 2), ("river", 105, 2, 1)]


@pytest.mark.parametrize("seed", range(4))
def test_results_at_random_with_many_ties(seed: int) -> None:
    names, teams = tuple("abcdefg"), ("red", "blue")

    def result(choose: random.Random) -> Row:
        return choose.randrange(20), choose.choice(names), choose.randrange(3)

    inputs = {
        "players": [
            ((name, random.Random(name + str(seed)).choice(teams)), 1_700_000_000_000_000_000, 1) for name in names
        ],
        "results": graph(seed, 0, 80, edge=result),
    }
    assert compare(program("leaderboard"), inputs, answer, seed=seed) > 20
