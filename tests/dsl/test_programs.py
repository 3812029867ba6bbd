"""The programs under tests/programs against networkx, at every data time of random histories."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import vernier as vn

PROGRAMS = Path(__file__).parent.parent / "programs"
Update = tuple[tuple[int, ...], int, int]


def history(seed: int, nodes: int = 9, updates: int = 60) -> tuple[list[Update], list[Update]]:
    """Edges and roots that come and go: inserts, deletes of what is there, several at one time, doubled edges."""
    draw = random.Random(seed)
    edges: list[Update] = []
    roots: list[Update] = [((0,), 1, 1)]
    alive: list[tuple[int, int]] = []
    time = 1
    for _ in range(updates):
        time += draw.choice([0, 0, 1, 1, 5])
        if alive and draw.random() < 0.45:
            edges.append((alive.pop(draw.randrange(len(alive))), time, -1))
        else:
            edge = (draw.randrange(nodes), draw.randrange(nodes))
            alive.append(edge)
            edges.append((edge, time, 1))
        if draw.random() < 0.1:
            roots.append(((draw.randrange(nodes),), time, 1))
    return edges, roots


def at(updates: list[Update], time: int) -> Counter[tuple[int, ...]]:
    """What is there at a time."""
    total: Counter[tuple[int, ...]] = Counter()
    for row, when, diff in updates:
        if when <= time:
            total[row] += diff
    return +total


def distances(edges: Counter[tuple[int, ...]], roots: Counter[tuple[int, ...]]) -> dict[int, int]:
    """The hops from the nearest root to each node that can be reached."""
    graph: Any = nx.DiGraph()
    graph.add_nodes_from(node for (node,) in roots)
    graph.add_edges_from(edges)
    return dict(nx.multi_source_dijkstra_path_length(graph, {node for (node,) in roots}, weight=lambda *_: 1))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("workers", [1, 2])
def test_graphs_equal_networkx_at_every_time(seed: int, workers: int) -> None:
    edges, roots = history(seed)
    times = sorted({time for _, time, _ in (*edges, *roots)})
    cuts = random.Random(seed).sample(times, seed)
    for program in ("bfs", "reachability"):
        app = vn.load_program(PROGRAMS / f"{program}.py")
        with vn.testing.run(app, epochs=cuts, workers=workers) as t:
            t.update("edges", edges)
            t.update("roots", roots)
            t.finish()
            for time in times:
                there = at(edges, time)
                far = distances(there, at(roots, time))
                if program == "bfs":
                    assert t.rows("distances", at=time) == sorted(far.items())
                    assert t.rows("histogram", at=time) == sorted(Counter(far.values()).items())
                else:
                    assert t.rows("reach", at=time) == [(node,) for node in sorted(far)]
                    degrees: Counter[int] = Counter()
                    for (src, _), count in there.items():
                        degrees[src] += count if src in far else 0
                    assert t.rows("by_out_degree", at=time) == sorted((+degrees).items())
