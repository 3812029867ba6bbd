"""Connected components of an undirected graph: each node with the least node that it is connected to."""

import vernier as vn
from vernier import col


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


app = vn.App("components", retain="10m")
edges = app.source("edges", Edge)

both = vn.union(edges, edges.select(src=col("dst"), dst=col("src")))
start = both.select(node=col("src"), component=col("src")).distinct()


@vn.fixpoint(max_rounds=10_000)
def spread(known, *, both, start):
    passed = known.join(both, left_on="node", right_on="src").select(node=col("dst"), component=col("component"))
    return vn.union(start, passed).group_by("node").agg(component=vn.min("component"))


components = spread(start, both=both, start=start)
app.view("components", components, key=["node"])
app.view("sizes", components.group_by("component").agg(nodes=vn.count()), key=["component"])
