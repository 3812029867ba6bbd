"""Which nodes can be reached from the roots, and by their out-degree, while edges and roots come and go."""

import vernier as vn
from vernier import col


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    node: vn.Int64


app = vn.App("reach", retain="10m", on_late="dead_letter")
edges = app.source("edges", Edge)
roots = app.source("roots", Root)


@vn.fixpoint(max_rounds=10_000)
def reach(reach, *, edges, roots):
    step = reach.join(edges, left_on="node", right_on="src").select(node=col("dst"))
    return vn.union(roots, step).distinct()


r = reach(roots, edges=edges, roots=roots)
app.view("reach", r, key=["node"])
app.view(
    "by_out_degree",
    r.join(edges, left_on="node", right_on="src").group_by("node").agg(n=vn.count()),
    key=["node"],
)
