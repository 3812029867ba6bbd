"""Programs on undirected graphs against networkx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import networkx as nx
import pytest

from tests.programs.snapshots import Held, Row, check, graph

SEEDS = (1, 2, 3)


def undirected(edges: Iterable[Row]) -> Any:
    """Without loops."""
    made = nx.Graph()
    made.add_edges_from((a, b) for a, b in edges if a != b)
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_degree_distribution(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        degrees = nx.DiGraph(list(held["edges"])).out_degree()
        found = {node: degree for node, degree in degrees if degree}
        return {"degrees": list(found.items()), "distribution": list(Counter(found.values()).items())}

    assert check("degrees", {"edges": graph(seed, 12, 100)}, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_people_you_may_know(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        friends = undirected(held["friendships"])
        found: list[Row] = []
        for person in friends:
            known = {other: len(list(nx.common_neighbors(friends, person, other))) for other in friends}
            strangers = [other for other in friends if other != person and not friends.has_edge(person, other)]
            best = sorted((-known[other], other) for other in strangers if known[other])[:3]
            found += [(person, other, -common) for common, other in best]
        return {"suggestions": found}

    assert check("people_you_may_know", {"friendships": graph(seed, 9, 60)}, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_triangles(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        found = undirected(held["edges"])
        by_node = nx.triangles(found)
        threes = combinations(sorted(found), 3)
        listed = [three for three in threes if all(found.has_edge(*two) for two in combinations(three, 2))]
        assert sum(by_node.values()) == 3 * len(listed)
        return {
            "triangles": listed,
            "total": [(len(listed),)] if listed else [],
            "by_node": [(node, count) for node, count in by_node.items() if count],
        }

    assert check("triangles", {"edges": graph(seed, 8, 70)}, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_k_core(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        core = nx.k_core(undirected(held["edges"]), 3)
        return {
            "edges": [edge for a, b in core.edges() for edge in ((a, b), (b, a))],
            "nodes": list(core.degree()),
        }

    assert check("k_core", {"edges": graph(seed, 8, 80, stay=0.65)}, answer)
