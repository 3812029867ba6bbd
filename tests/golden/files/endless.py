import vernier as vn
from vernier import col


class Node(vn.Schema):
    node: vn.Int64


app = vn.App("endless")
nodes = app.source("nodes", Node)


@vn.fixpoint(max_rounds=10)
def count_up(numbers):
    return numbers.select(node=col("node") + 1)


app.view("numbers", count_up(nodes))
