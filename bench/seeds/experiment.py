"""What an experiment is: a function of a scale, which returns values, tables for the documentation, and a picture.

A scale of 1 is the article's size; less makes graphs, inputs and numbers of updates smaller. A player runs alone: the
largest sizes do not fit into memory beside each other, and the articles' tables are not ratios.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.edges import write_words
from bench.players import Player, Spec
from bench.record import Table
from bench.stream import random_graph
from bench.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PERCENTILES = (50, 90, 99, 100)


@dataclass(frozen=True)
class Found:
    """The result of an experiment. tables: by name; draw: draws into a row of axes, `axes` of them."""

    values: dict[str, Any]
    tables: dict[str, Table]
    draw: Callable[[Sequence[Axes]], None] | None = None
    axes: int = 1
    left_out: dict[str, str] = field(default_factory=dict)


Experiment = Callable[[float], Found]


@dataclass(frozen=True)
class Graph:
    """A graph of the articles, which moves by an edge in and an edge out."""

    nodes: int
    edges: int

    def __str__(self) -> str:
        return f"{short(self.nodes)}/{short(self.edges)}"

    def scaled(self, scale: float) -> Graph:
        """Smaller, with the same degrees; a thousand nodes remain, except in toys."""
        nodes = max(min(self.nodes, 1_000 if scale >= 0.01 else 20), round(self.nodes * scale))
        return Graph(nodes, max(40, round(nodes * self.edges / self.nodes)))


@contextmanager
def playing(name: str, program: str, graph: Graph, updates: int) -> Iterator[tuple[Player, dict[str, Any]]]:
    """A player (`Spec`) that has loaded the graph and has as many updates before it; and what the load took.

    Raises CannotBuild for a peer that this machine cannot build."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges"
        write_words(path, random_graph(graph.nodes, graph.edges + updates))
        with Player(Spec.of(name), program, path, graph.edges) as player:
            yield player, player.load()


def short(count: int) -> str:
    """1000 as 1k."""
    for unit, name in ((10**6, "m"), (10**3, "k")):
        if count >= unit and count % (unit // 10) == 0:
            return f"{count / unit:g}{name}"
    return f"{count}"


def percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Milliseconds."""
    at = np.percentile(np.array(nanoseconds) / 1e6, PERCENTILES)
    return {f"p{share}_ms": round(float(one), 3) for share, one in zip(PERCENTILES, at, strict=True)}


def shown(value: float | None) -> str:
    """A cell: three digits, or a dash."""
    return "–" if value is None else number(value)


def curve(axes: Axes, nanoseconds: Sequence[int], label: str, **style: Any) -> None:
    """A cumulative distribution of latencies."""
    ordered = np.sort(np.array(nanoseconds)) / 1e6
    axes.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", label=label, **style)
    axes.set(xscale="log", xlabel="ms", ylabel="share of updates")
    axes.grid(alpha=0.3)
