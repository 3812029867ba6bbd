"""PageRank in integers: ranks in millionths of a surfer, twenty rounds, the same on every machine.

In a round each node keeps a sixth of what it began with and gets five sixths of what its predecessors give, each of
which divides its rank among its edges, rounding down.
"""

import vernier as vn
from vernier import col

START = 6_000_000
ROUNDS = 20


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


app = vn.App("pagerank", retain="10m")
edges = app.source("edges", Edge).distinct()
nodes = vn.union(edges.select(node=col("src")), edges.select(node=col("dst"))).distinct()
degrees = edges.group_by("src").agg(degree=vn.count())
links = edges.join(degrees, on="src")


@vn.fixpoint(max_rounds=ROUNDS, on_limit="truncate")
def rank(ranks, *, links, base):
    share = vn.coalesce((col("rank") * 5) // (col("degree") * 6), 0)
    given = ranks.join(links, left_on="node", right_on="src").select(node=col("dst"), rank=share)
    return vn.union(base, given).group_by("node").agg(rank=vn.sum("rank"))


ranks = rank(nodes.with_columns(rank=START), links=links, base=nodes.with_columns(rank=START // 6))
app.view("ranks", ranks, key=["node"])
