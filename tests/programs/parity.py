"""Even and odd paths: which nodes a walk of even, and of odd length leads to; two variables that step together."""

import vernier as vn
from vernier import col


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    node: vn.Int64


app = vn.App("parity", retain="10m")
edges = app.source("edges", Edge)
roots = app.source("roots", Root)


def step(nodes):
    return nodes.join(edges, left_on="node", right_on="src").select(node=col("dst"))


@vn.fixpoint
def walk(even, odd, *, roots):
    return vn.union(roots, step(odd)).distinct(), step(even).distinct()


even, odd = walk(roots, roots.filter(vn.lit(False)), roots=roots)
app.view("even", even, key=["node"])
app.view("odd", odd, key=["node"])
