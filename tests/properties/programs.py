"""Known programs as a user writes them, each the twin of one in tests/oracle/programs.py.

One app holds them all as views, so they also share what can be shared: `known_programs(names)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import vernier as vn
from tests.oracle import programs as oracle
from tests.oracle.plan import Node
from vernier import col

C = vn.Collection


class Edge(vn.Schema):
    """An edge of a graph."""

    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    """Where a search starts."""

    node: vn.Int64


def flipped(edges: C) -> C:
    return edges.select(src=col("dst"), dst=col("src"))


def nodes_of(edges: C) -> C:
    return vn.union(edges.select(node=col("src")), edges.select(node=col("dst"))).distinct()


def step(nodes: C, edges: C) -> C:
    return nodes.join(edges, left_on="node", right_on="src").select(node=col("dst"))


def induced(edges: C, nodes: C) -> C:
    """The edges with both ends among these nodes."""
    from_them = edges.join(nodes, left_on="src", right_on="node").select("src", "dst")
    return from_them.join(nodes, left_on="dst", right_on="node").select("src", "dst")


def without(nodes: C, others: C) -> C:
    """The nodes that are not present among the others."""
    return nodes.union(nodes.join(others.distinct(), on="node").negate())


@vn.fixpoint
def reach(seen: C, *, edges: C, roots: C) -> C:
    return vn.union(roots, step(seen, edges)).distinct()


def bfs(roots: C, edges: C) -> C:
    start = roots.with_columns(dist=vn.lit(0))

    @vn.fixpoint(max_rounds=1000)
    def nearest(near: C) -> C:
        further = near.join(edges, left_on="node", right_on="src").select(node=col("dst"), dist=col("dist") + 1)
        return start.union(further).group_by("node").agg(dist=vn.min("dist"))

    result: C = nearest(start)
    return result


def labels(edges: C, nodes: C) -> C:
    """(node, least node that a path of `edges` leads from), for all of `nodes`."""
    start = nodes.with_columns(label=col("node"))

    @vn.fixpoint
    def spread(known: C, *, start: C) -> C:
        passed = known.join(edges, left_on="node", right_on="src").select(node=col("dst"), label=col("label"))
        return start.union(passed).group_by("node").agg(label=vn.min("label"))

    result: C = spread(start, start=start)
    return result


def agreeing(edges: C, known: C) -> C:
    """The edges whose two ends have the same label."""
    tail = edges.join(known.rename(label="tail"), left_on="src", right_on="node").drop("node")
    both = tail.join(known.rename(label="head"), left_on="dst", right_on="node")
    return both.filter(col("tail") == col("head")).select("src", "dst")


def strong_edges(edges: C) -> C:
    edges = edges.distinct()
    nodes = nodes_of(edges)

    @vn.fixpoint
    def trim(left: C) -> C:
        forward = agreeing(left, labels(left, nodes))
        back = flipped(forward)
        return flipped(agreeing(back, labels(back, nodes)))

    result: C = trim(edges)
    return result


def core(k: int, roots: C, edges: C) -> C:
    edges = edges.distinct()

    @vn.fixpoint
    def shrink(left: C) -> C:
        inside = induced(edges, left)
        start = roots.distinct().join(left, on="node")
        reached = reach(start, edges=inside, roots=start)
        among = induced(inside, reached)
        degrees = among.union(flipped(among)).group_by(node="src").agg(n=vn.count())
        return degrees.filter(col("n") >= k).select("node")

    result: C = shrink(nodes_of(edges))
    return result


def strong_core(edges: C) -> C:
    @vn.fixpoint
    def thin(left: C) -> C:
        strong = strong_edges(left)
        entered = strong.group_by("dst").agg(n=vn.count()).filter(col("n") >= 2)
        return strong.join(entered.select("dst"), on="dst").select("src", "dst")

    result: C = thin(edges.distinct())
    return result


def even_odd(roots: C, edges: C) -> tuple[C, C]:
    @vn.fixpoint
    def walk(even: C, odd: C) -> tuple[C, C]:
        return roots.union(step(odd, edges)).distinct(), step(even, edges).distinct()

    even, odd = walk(roots, roots.filter(vn.lit(False)))
    return even, odd


def fed_by_cycles(edges: C) -> C:
    @vn.fixpoint
    def keep(left: C) -> C:
        return step(left, edges).distinct()

    result: C = keep(nodes_of(edges))
    return result


def winning(moves: C, rounds: int | None) -> C:
    """The game on these moves to its end or, with `rounds`, as far as that."""
    everyone = nodes_of(moves)
    limits = vn.fixpoint(max_rounds=1000 if rounds is None else rounds, on_limit="truncate" if rounds else "error")

    @limits
    def win(won: C) -> C:
        lost = without(everyone, won)
        return lost.join(moves, left_on="node", right_on="dst").select(node=col("src")).distinct()

    result: C = win(everyone)
    return result


def walks(rounds: int, roots: C, edges: C) -> C:
    @vn.fixpoint(max_rounds=rounds, on_limit="truncate")
    def walk(ends: C) -> C:
        return step(ends, edges)

    result: C = walk(roots)
    return result


def flips(outer: int, inner: int, roots: C, edges: C) -> C:
    nodes = nodes_of(edges)

    @vn.fixpoint(max_rounds=outer, on_limit="truncate")
    def turn(one: C) -> C:
        @vn.fixpoint(max_rounds=inner, on_limit="truncate")
        def back(two: C) -> C:
            return without(vn.union(nodes, step(one, edges)), step(two, edges))

        return vn.union(back(one).negate(), nodes, step(one, edges)).distinct()

    result: C = turn(roots.distinct())
    return result


@dataclass(frozen=True)
class Known:
    """A program in both languages."""

    oracle: Node
    product: Callable[[C, C], C]
    """Of roots and edges."""


KNOWN: dict[str, Known] = {
    "reach": Known(oracle.reach(), lambda roots, edges: reach(roots, edges=edges, roots=roots)),
    "bfs": Known(oracle.bfs(), bfs),
    "distances": Known(oracle.distances(), lambda roots, edges: bfs(roots, edges).select("dist")),
    "histogram": Known(
        oracle.histogram(), lambda roots, edges: bfs(roots, edges).group_by("dist").agg(nodes=vn.count())
    ),
    "even": Known(oracle.even_odd()[0], lambda roots, edges: even_odd(roots, edges)[0]),
    "odd": Known(oracle.even_odd()[1], lambda roots, edges: even_odd(roots, edges)[1]),
    "strong": Known(oracle.strong_edges(), lambda roots, edges: strong_edges(edges)),
    "components": Known(
        oracle.components(), lambda roots, edges: labels(strong_edges(edges), nodes_of(edges.distinct()))
    ),
    "core": Known(oracle.core(2), lambda roots, edges: core(2, roots, edges)),
    "core3": Known(oracle.core(3), lambda roots, edges: core(3, roots, edges)),
    "strong_core": Known(oracle.strong_core(), lambda roots, edges: strong_core(edges)),
    "fed": Known(oracle.fed_by_cycles(), lambda roots, edges: fed_by_cycles(edges.distinct())),
    "winning": Known(
        oracle.winning(),
        lambda roots, edges: winning(edges.filter(col("src") < col("dst")).distinct(), None),
    ),
    "winning5": Known(oracle.winning_in(5), lambda roots, edges: winning(edges.distinct(), 5)),
    "winning8": Known(oracle.winning_in(8), lambda roots, edges: winning(edges.distinct(), 8)),
    "walks": Known(oracle.walks(3), lambda roots, edges: walks(3, roots, edges)),
    "flips": Known(oracle.flips(3, 3), lambda roots, edges: flips(3, 3, roots, edges)),
    "self_join": Known(
        oracle.siblings(),
        lambda roots, edges: (
            edges.select("src", a=col("dst")).join(edges.select("src", b=col("dst")), on="src").select("a", "b")
        ),
    ),
}


def known_programs(names: Iterable[str]) -> vn.App:
    """An app with these programs as its views."""
    app = vn.App("known")
    edges, roots = app.source("edges", Edge), app.source("roots", Root)
    for name in names:
        app.view(name, KNOWN[name].product(roots, edges))
    return app
