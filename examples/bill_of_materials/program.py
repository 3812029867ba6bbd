"""Bill of materials: how many of each part a product contains through all its assemblies, and what must be bought.

The quantities multiply down the tree and add up over all ways to a part. An assembly that contained itself would never
settle: the loop stops then, with an error that shows it.
"""

import vernier as vn
from vernier import col


class Use(vn.Schema):
    assembly: vn.String
    part: vn.String
    quantity: vn.Int64


class Price(vn.Schema):
    part: vn.String
    cents: vn.Int64


class Amount(vn.Schema):
    item: vn.String
    pieces: vn.Int64


app = vn.App("bill_of_materials", retain="1h")
uses, prices = app.source("uses", Use), app.source("prices", Price)
orders, stock = app.source("orders", Amount), app.source("stock", Amount)


def total(contents):
    return contents.group_by("assembly", "part").agg(quantity=vn.sum("quantity"))


@vn.fixpoint(max_rounds=50)
def contents(contents, *, uses):
    inner = uses.select(inner="assembly", piece="part", each="quantity")
    deeper = contents.join(inner, left_on="part", right_on="inner")
    deeper = deeper.select(assembly="assembly", part="piece", quantity=col("quantity") * col("each"))
    return total(vn.union(uses, deeper))


everything = contents(total(uses), uses=uses)
bought = everything.join(uses, left_on="part", right_on="assembly", how="anti")
app.view("contents", everything, key=["assembly", "part"])

priced = bought.join(prices, on="part", how="left")
unknown = vn.when(col("cents").is_null(), 1).otherwise(0)
cost = {"cents": vn.sum(col("quantity") * vn.coalesce("cents", 0)), "unpriced": vn.sum(unknown)}
app.view("costs", priced.group_by("assembly").agg(**cost), key=["assembly"])

# What the open orders need, less what is there.
ordered = bought.join(orders, left_on="assembly", right_on="item")
needed = ordered.select(part="part", pieces=col("quantity") * col("pieces"))
there = stock.select(part="item", pieces=-col("pieces"))
balance = vn.union(needed, there).group_by("part").agg(missing=vn.sum("pieces"))
app.view("to_buy", balance.filter(col("missing") > 0), key=["part"])
