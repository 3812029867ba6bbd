import vernier as vn


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


app = vn.App("typo")
edges = app.source("edges", Edge)
app.view("out", edges.groupBy("source").agg(n=vn.count()))
