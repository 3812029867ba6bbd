"""Programs on graphs against networkx and plain Python."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

import networkx as nx
import pytest

from tests.programs.snapshots import Held, Row, check, graph

SEEDS = (1, 2, 3)


def bare(kind: Any, edges: Iterable[Row]) -> Any:
    made = kind()
    made.add_edges_from(edges)
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_reachability(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        found = bare(nx.DiGraph, held["edges"])
        roots = {node for (node,) in held["roots"]}
        reached = roots | {node for root in roots if root in found for node in nx.descendants(found, root)}
        degrees = {node: found.out_degree(node) for node in reached if node in found}
        return {
            "reach": [(node,) for node in reached],
            "by_out_degree": [(node, degree) for node, degree in degrees.items() if degree],
        }

    assert check("reachability", {"edges": graph(seed, 9, 70), "roots": graph(seed, 9, 12, edge=one_node)}, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_bfs(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        found = bare(nx.DiGraph, held["edges"])
        roots = {node for (node,) in held["roots"]}
        found.add_nodes_from(roots)
        near = nx.multi_source_dijkstra_path_length(found, roots) if roots else {}
        return {"distances": list(near.items()), "histogram": list(Counter(near.values()).items())}

    assert check("bfs", {"edges": graph(seed, 12, 60), "roots": graph(seed, 12, 8, edge=one_node)}, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_components(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        parts = list(nx.connected_components(bare(nx.Graph, held["edges"])))
        return {
            "components": [(node, min(part)) for part in parts for node in part],
            "sizes": [(min(part), len(part)) for part in parts],
        }

    assert check("components", {"edges": graph(seed, 14, 60)}, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_strong_components(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        found = bare(nx.DiGraph, held["edges"])
        component = {node: min(part) for part in nx.strongly_connected_components(found) for node in part}
        return {
            "edges_inside": [edge for edge in held["edges"] if component[edge[0]] == component[edge[1]]],
            "components": list(component.items()),
        }

    assert check("strong_components", {"edges": graph(seed, 9, 60, stay=0.7)}, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_parity(seed: int) -> None:
    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        after = bare(nx.DiGraph, held["edges"])
        seen = {(node, 0) for (node,) in held["roots"]}
        queue = deque(seen)
        while queue:
            node, odd = queue.popleft()
            for following in after.successors(node) if node in after else ():
                if (following, 1 - odd) not in seen:
                    seen.add((following, 1 - odd))
                    queue.append((following, 1 - odd))
        return {"even": [(n,) for n, odd in seen if not odd], "odd": [(n,) for n, odd in seen if odd]}

    assert check("parity", {"edges": graph(seed, 8, 50), "roots": graph(seed, 8, 10, edge=one_node)}, answer)


def one_node(choose: Any) -> Row:
    return (choose.randrange(8),)
