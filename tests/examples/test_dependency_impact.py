"""The impact of dependency_impact against walks over the same graph, and the graph against what is installed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import vernier as vn
from tests.examples.data import at, program, updates
from tests.programs.snapshots import Held, Row, compare, graph

DAY = "2026-11-22"


def walk(start: Iterable[str], edges: Mapping[str, set[str]]) -> dict[str, int]:
    """The distance of everything that can be reached, breadth first."""
    found = dict.fromkeys(start, 0)
    border = list(found)
    while border:
        nearer, border = border, []
        for one in nearer:
            for other in edges.get(one, ()):
                if other not in found:
                    found[other] = found[one] + 1
                    border.append(other)
    return found


def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
    """Both questions, from the users of each package."""
    users: dict[str, set[str]] = defaultdict(set)
    for package, required in held["requirements"]:
        users[required].add(package)
    affected: list[Row] = []
    distances = walk((package for (package,) in held["reviews"]), users)
    for package, distance in distances.items():
        nearer = [one for one in distances if package in users[one] and distances[one] == distance - 1]
        affected.append((package, distance, min(nearer) if distance else package))
    everyone = {package: len(walk([package], users)) - 1 for package in users}
    impact = [(package, len(users[package]), everyone[package]) for package in users if everyone[package]]
    ranking = sorted((-count, package) for package, _, count in impact)
    return {"affected": affected, "impact": impact, "most": [(package, -count) for count, package in ranking[:5]]}


def test_the_data() -> None:
    assert compare(program("dependency_impact"), updates("dependency_impact"), answer) == 6


def test_what_a_review_affects() -> None:
    with vn.testing.run(program("dependency_impact")) as run:
        for source, changes in updates("dependency_impact").items():
            run.update(source, changes)
        run.finish()
        affected = run.rows("affected", at=at("09:00:00", DAY))
        assert ("boto3", 2, "botocore") in affected
        assert ("vernier", 3, "boto3") in affected
        assert ("urllib3", 0, "urllib3") in run.rows("affected", at=at("10:00:00", DAY))
        assert ("boto3", 2, "botocore") not in run.rows("affected", at=at("10:00:00", DAY))
        assert run.rows("affected") == [
            ("moto", 2, "responses"),
            ("responses", 1, "urllib3"),
            ("urllib3", 0, "urllib3"),
            ("vernier", 3, "moto"),
        ]


def test_the_graph_has_the_packages_of_the_lock(root: Path) -> None:
    lines = (root / "requirements.lock").read_text("utf-8").splitlines()
    locked = {line.partition("==")[0].partition("[")[0] for line in lines if re.match("[a-z0-9]", line)}
    named = {name for row, _, diff in updates("dependency_impact")["requirements"] if diff > 0 for name in row}
    assert len(named) > 100
    assert len(named - locked - {"vernier"}) < len(named) // 10, "run examples/dependency_impact/collect.py again"


@pytest.mark.parametrize("seed", range(4))
def test_graphs_at_random_with_circles(seed: int) -> None:
    names = tuple("abcdefgh")
    inputs = {
        "requirements": graph(seed, 0, 60, edge=lambda choose: (choose.choice(names), choose.choice(names))),
        "reviews": graph(seed + 10, 0, 12, edge=lambda choose: (choose.choice(names),)),
    }
    assert compare(program("dependency_impact"), inputs, answer, seed=seed) > 20
