"""Dependency impact: which packages are affected by those under review, how far away they are, and through what.

`affected` follows the requirements backwards from the packages under review and keeps, for each package, the shortest
way. `impact` counts for every package those that require it, directly and through others.
"""

import vernier as vn
from vernier import col


class Requirement(vn.Schema):
    package: vn.String
    requires: vn.String


class Review(vn.Schema):
    package: vn.String


app = vn.App("dependency_impact", retain="1h")
requirements = app.source("requirements", Requirement).distinct()
reviews = app.source("reviews", Review)


@vn.fixpoint
def affected(affected, *, requirements, start):
    users = affected.join(requirements, left_on="package", right_on="requires", suffix="_that_uses")
    users = users.select(package="package_that_uses", distance=col("distance") + 1, through="package")
    nearest = {"distance": vn.min("distance"), "through": vn.arg_min("through", "distance")}
    return vn.union(start, users).group_by("package").agg(**nearest)


@vn.fixpoint
def needed(needed, *, requirements):
    deeper = needed.join(requirements.rename(package="inner", requires="deeper"), left_on="requires", right_on="inner")
    return vn.union(requirements, deeper.select(package="package", requires="deeper")).distinct()


start = reviews.distinct().select(package="package", distance=0, through="package")
app.view("affected", affected(start, requirements=requirements, start=start), key=["package"])

direct = requirements.group_by("requires").agg(direct=vn.count())
everything = needed(requirements, requirements=requirements).filter(col("package") != col("requires"))
impact = everything.group_by("requires").agg(all=vn.count()).join(direct, on="requires")
app.view("impact", impact.select(package="requires", direct="direct", all="all"), key=["package"])
app.view("most", impact.top_k(5, by=[col("all").desc(), "requires"]).select(package="requires", all="all"))
