"""Strongly connected components: nested loops that trim edges between components until none is left.

An edge lies inside a component when both of its ends can be reached from the same nodes, forwards and backwards. The
inner loop spreads the least node that reaches each node; the outer one keeps the edges whose ends agree, turns them
round, and goes on until nothing changes.
"""

import vernier as vn
from vernier import col


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


app = vn.App("strong_components", retain="10m")
edges = app.source("edges", Edge).distinct()
nodes = vn.union(edges.select(node=col("src")), edges.select(node=col("dst"))).distinct()


@vn.fixpoint
def spread(known, *, edges, start):
    passed = known.join(edges, left_on="node", right_on="src").select(node=col("dst"), label=col("label"))
    return vn.union(start, passed).group_by("node").agg(label=vn.min("label"))


def labels(edges):
    start = nodes.with_columns(label=col("node"))
    return spread(start, edges=edges, start=start)


def turned(edges):
    return edges.select(src=col("dst"), dst=col("src"))


def agreeing(edges):
    """The edges whose ends have one label."""
    known = labels(edges)
    tails = edges.join(known.rename(label="tail"), left_on="src", right_on="node").drop("node")
    both = tails.join(known.rename(label="head"), left_on="dst", right_on="node")
    return both.filter(col("tail") == col("head")).select("src", "dst")


@vn.fixpoint
def trim(inside):
    return turned(agreeing(turned(agreeing(inside))))


inner = trim(edges)
app.view("edges_inside", inner, key=["src", "dst"])
app.view("components", labels(inner).rename(label="component"), key=["node"])
