"""Degree distribution: how many nodes have how many edges."""

import vernier as vn


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


app = vn.App("degrees", retain="10m")
edges = app.source("edges", Edge)

degrees = edges.group_by("src").agg(degree=vn.count())
app.view("degrees", degrees, key=["src"])
app.view("distribution", degrees.group_by("degree").agg(nodes=vn.count()), key=["degree"])
