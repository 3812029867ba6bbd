"""The programs of the benchmarks, each the same computation as its peers' (bench/peers): rows of two numbers."""

from __future__ import annotations

from collections.abc import Callable

import vernier as vn
from vernier import Collection, col


class Edge(vn.Schema):
    """A directed edge."""

    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    """Where to start."""

    node: vn.Int64


def distances(edges: Collection, roots: Collection) -> Collection:
    """How far each node is from the root, by minimum."""
    start = roots.with_columns(dist=vn.lit(0))

    @vn.fixpoint
    def dists(dists: Collection, *, edges: Collection, start: Collection) -> Collection:
        step = dists.join(edges, left_on="node", right_on="src").select(node=col("dst"), dist=col("dist") + 1)
        return vn.union(start, step).group_by("node").agg(dist=vn.min("dist"))

    return dists(start, edges=edges, start=start)


def bfs(edges: Collection, roots: Collection) -> Collection:
    """How many nodes there are at each distance from the root."""
    return distances(edges, roots).group_by("dist").agg(n=vn.count())


def degrees(edges: Collection, roots: Collection) -> Collection:
    """How many nodes have how many edges."""
    return edges.group_by("src").agg(degree=vn.count()).group_by("degree").agg(nodes=vn.count())


def degrees_general(edges: Collection, roots: Collection) -> Collection:
    """The same inside a loop, where times are partially ordered: by the general form of a reduction, which keeps its
    output. What comes round is empty, so the loop is at its limit after one round; without it the planner would take
    the counts out of the loop."""

    @vn.fixpoint
    def counted(counted: Collection, *, edges: Collection) -> Collection:
        none = counted.filter(col("nodes") < 0).select(src="degree", dst="nodes")
        return degrees(vn.union(edges, none), roots)

    return counted(edges.filter(col("src") < 0).select(degree="src", nodes="dst"), edges=edges)


def reach(edges: Collection, roots: Collection) -> Collection:
    """Which nodes can be reached from which root: the program of "Differential dataflow roadmap"."""
    start = roots.select(node="node", root="node")

    @vn.fixpoint
    def reached(reached: Collection, *, edges: Collection, start: Collection) -> Collection:
        step = reached.join(edges, left_on="node", right_on="src").select(node=col("dst"), root=col("root"))
        return vn.union(start, step).distinct()

    return reached(start, edges=edges, start=start).select("root", "node")


def spread(start: Collection, edges: Collection) -> Collection:
    """The least label that reaches each node along edges.

    The loop begins with nothing, as the peer's does: `start` has a row for each edge, and the first round would pass
    labels on that often.
    """

    @vn.fixpoint
    def labels(labels: Collection, *, edges: Collection, start: Collection) -> Collection:
        passed = labels.join(edges, left_on="node", right_on="src").select(node=col("dst"), label=col("label"))
        return vn.union(start, passed).group_by("node").agg(label=vn.min("label"))

    return labels(start.filter(vn.lit(False)), edges=edges, start=start)


def components(edges: Collection, roots: Collection) -> Collection:
    """How many nodes each connected component has, by its least node."""
    both = vn.union(edges, turned(edges))
    return spread(both.select(node=col("src"), label=col("src")), both).group_by("label").agg(nodes=vn.count())


def scc(edges: Collection, roots: Collection) -> Collection:
    """How many nodes have how many edges to nodes of their own strongly connected component."""

    @vn.fixpoint
    def inside(inside: Collection, *, edges: Collection, back: Collection) -> Collection:
        return agreeing(agreeing(inside, edges), back)

    return degrees(inside(edges, edges=edges, back=turned(edges)), roots)


def agreeing(cycle: Collection, edges: Collection) -> Collection:
    """The edges, turned round, to whose ends the same least node leads along the cycle's edges."""
    known = spread(edges.select(node=col("dst"), label=col("dst")), cycle)
    tails = edges.join(known.rename(label="tail"), left_on="src", right_on="node").drop("node")
    both = tails.join(known.rename(label="head"), left_on="dst", right_on="node")
    return both.filter(col("tail") == col("head")).select(src=col("dst"), dst=col("src"))


def turned(edges: Collection) -> Collection:
    """The edges, the other way round."""
    return edges.select(src=col("dst"), dst=col("src"))


ROOTS = {"reach": 10}
"""The first nodes are roots, if a program has more than one."""
PROGRAMS: dict[str, Callable[[Collection, Collection], Collection]] = {
    "bfs": bfs,
    "degrees": degrees,
    "degrees_general": degrees_general,
    "reach": reach,
    "components": components,
    "scc": scc,
}


def program(name: str, retain: str = "1us") -> vn.App:
    """A program with its one view, `answer`. Times are numbers of updates, so nearly nothing past is kept."""
    app = vn.App(name, retain=retain)
    edges, roots = app.source("edges", Edge), app.source("roots", Root)
    app.view("answer", PROGRAMS[name](edges, roots))
    return app
