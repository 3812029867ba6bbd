"""Graphs in motion, made from a seed, and ways to cut them into epochs and slices."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import get_args

from tests.oracle.model import Change
from tests.properties.engine import Between


@dataclass(frozen=True)
class Motion:
    """Updates of `edges` and `roots`, and how they come."""

    updates: dict[str, list[Change]]
    cuts: list[int]
    workers: int
    slice_updates: int
    between: Between
    interpret: bool
    keep_views: bool


def motion(seed: int, *, deep: bool = False, spurious: bool = False) -> Motion:
    """A random graph in motion.

    Few nodes, edges that come and go (some twice, some at one time, now and then in and out at one time), roots that do
    the same. deep: long paths, so that loops run many rounds. spurious: some edges go that never came.
    """
    choose = random.Random(seed)
    nodes = 14 if deep else choose.choice((4, 5, 6, 7))
    held: list[tuple[int, int]] = []
    edges: list[Change] = []
    time = choose.choice((0, 1_700_000_000_000_000_000))
    first = time
    for _ in range(choose.randrange(12, 34)):
        time += choose.choice((0, 1, 1, 5))
        source = choose.randrange(nodes)
        edge = (source, (source + choose.choice((1, 1, 1, 2))) % nodes if deep else choose.randrange(nodes))
        if spurious and choose.random() < 0.1:
            edges.append((edge, time, -1))
        elif held and choose.random() < 0.35:
            edges.append((held.pop(choose.randrange(len(held))), time, -1))
        elif choose.random() < 0.1:
            edges += [(edge, time, 1), (edge, time, -1)]
        else:
            held.append(edge)
            edges.append((edge, time, 1))
    if deep:
        edges += [((node, node + 1), choose.randint(first, time), 1) for node in range(nodes - 1)]
    half = (first + time) // 2
    roots: list[Change] = [((0,), first, 1), ((1,), half, 1), ((0,), half, -1), ((0,), choose.randint(half, time), 1)]
    choose.shuffle(edges)
    times = sorted({at for _, at, _ in edges + roots})
    cuts = choose.choice(([], times, sorted(choose.sample(times, choose.randrange(len(times))))))
    workers = choose.choice((1, 1, 2, 3))
    slice_updates = choose.choice((0, 1, 3, 8, 1024))
    between = choose.choice(get_args(Between))
    interpret = choose.choice((True, True, False))
    keep_views = choose.choice((True, False))
    return Motion({"edges": edges, "roots": roots}, cuts, workers, slice_updates, between, interpret, keep_views)
