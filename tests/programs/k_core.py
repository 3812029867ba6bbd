"""The 3-core: what is left of an undirected graph when nodes of fewer than three neighbours are taken away for ever."""

import vernier as vn
from vernier import col

K = 3


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


app = vn.App("k_core", retain="10m")
edges = app.source("edges", Edge)
both = vn.union(edges, edges.select(src="dst", dst="src")).filter(col("src") != col("dst")).distinct()


@vn.fixpoint
def core(kept):
    strong = kept.group_by("src").agg(degree=vn.count()).filter(col("degree") >= K).select(node="src")
    tails = kept.join(strong, left_on="src", right_on="node", how="semi")
    return tails.join(strong, left_on="dst", right_on="node", how="semi")


inside = core(both)
app.view("edges", inside, key=["src", "dst"])
app.view("nodes", inside.group_by("src").agg(degree=vn.count()).rename(src="node"), key=["node"])
