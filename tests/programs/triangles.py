"""Triangles of an undirected graph: which ones there are, how many, and how many each node is in."""

import vernier as vn
from vernier import col


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


app = vn.App("triangles", retain="10m")
edges = app.source("edges", Edge)

# Each edge once, from its smaller node to its greater one.
up = (
    vn.union(edges, edges.select(src="dst", dst="src"))
    .filter(col("src") < col("dst"))
    .select(a="src", b="dst")
    .distinct()
)
corners = up.join(up.select(c="b", b="a"), on="b").select("a", "b", "c")
triangles = corners.join(up, left_on=["a", "c"], right_on=["a", "b"], how="semi")
app.view("triangles", triangles, key=["a", "b", "c"])
app.view("total", triangles.group_by().agg(triangles=vn.count()))
members = vn.union(triangles.select(node="a"), triangles.select(node="b"), triangles.select(node="c"))
app.view("by_node", members.group_by("node").agg(triangles=vn.count()), key=["node"])
