"""Bill of materials: how many of each part are in a product, through all its assemblies, and what the product costs."""

import vernier as vn
from vernier import col


class Use(vn.Schema):
    assembly: vn.Int64
    part: vn.Int64
    quantity: vn.Int64


class Price(vn.Schema):
    part: vn.Int64
    cents: vn.Int64


app = vn.App("bill_of_materials", retain="10m")
uses = app.source("uses", Use)
prices = app.source("prices", Price)


def total(needs):
    return needs.group_by("assembly", "part").agg(quantity=vn.sum("quantity"))


# An assembly that contains itself would never settle: then the loop stops with an error that shows it.
@vn.fixpoint(max_rounds=50)
def needs(needs, *, uses):
    inner = uses.select(inner="assembly", piece="part", each="quantity")
    deeper = needs.join(inner, left_on="part", right_on="inner")
    deeper = deeper.select(assembly="assembly", part="piece", quantity=col("quantity") * col("each"))
    return total(vn.union(uses, deeper))


everything = needs(total(uses), uses=uses)
bought = everything.join(uses, left_on="part", right_on="assembly", how="anti")
app.view("needs", everything, key=["assembly", "part"])
app.view("bought", bought, key=["assembly", "part"])
priced = bought.join(prices, on="part", how="left")
known = vn.when(col("cents").is_null(), 1).otherwise(0)
costs = priced.group_by("assembly").agg(cents=vn.sum(col("quantity") * col("cents")), unpriced=vn.sum(known))
app.view("costs", costs, key=["assembly"])
