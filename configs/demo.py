"""The demonstration: what can be reached from the roots, how far it is, and how many nodes are at each distance."""

import vernier as vn
from vernier import col


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    node: vn.Int64


app = vn.App("demo", retain="10m", on_late="dead_letter")
edges = app.source("edges", Edge)
roots = app.source("roots", Root)


@vn.fixpoint(max_rounds=10_000)
def reach(reach, *, edges, roots):
    step = reach.join(edges, left_on="node", right_on="src").select(node=col("dst"))
    return vn.union(roots, step).distinct()


@vn.fixpoint(max_rounds=10_000)
def bfs(found, *, edges, start):
    step = found.join(edges, left_on="node", right_on="src").select(node=col("dst"), distance=col("distance") + 1)
    return vn.union(start, step).group_by("node").agg(distance=vn.min("distance"))


app.view("reach", reach(roots, edges=edges, roots=roots), key=["node"])

start = roots.select(node=col("node"), distance=0)
distances = bfs(start, edges=edges, start=start)
app.view("distances", distances, key=["node"])
app.view("histogram", distances.group_by("distance").agg(nodes=vn.count()), key=["distance"])
