"""How far each node is from the nearest root, and how many nodes there are at each distance."""

import vernier as vn
from vernier import col


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    node: vn.Int64


app = vn.App("bfs", retain="10m")
edges = app.source("edges", Edge)
roots = app.source("roots", Root)


@vn.fixpoint(max_rounds=10_000)
def bfs(distances, *, edges, start):
    step = distances.join(edges, left_on="node", right_on="src").select(node=col("dst"), dist=col("dist") + 1)
    return vn.union(start, step).group_by("node").agg(dist=vn.min("dist"))


start = roots.distinct().with_columns(dist=0)
distances = bfs(start, edges=edges, start=start)
app.view("distances", distances, key=["node"])
app.view("histogram", distances.group_by("dist").agg(nodes=vn.count()), key=["dist"])
