"""Points-to analysis (Andersen's): which objects a variable of a program may hold, while the program is edited.

Four kinds of statements, and two relations that define each other:

    v = new o        holds(v, o)
    v = w            holds(v, o)        where holds(w, o)
    b.f = w          field(p, f, o)     where holds(b, p) and holds(w, o)
    v = b.f          holds(v, o)        where holds(b, p) and field(p, f, o)
"""

import vernier as vn
from vernier import col


class New(vn.Schema):
    variable: vn.Int64
    obj: vn.Int64


class Assign(vn.Schema):
    target: vn.Int64
    source: vn.Int64


class Store(vn.Schema):
    base: vn.Int64
    field: vn.Int64
    source: vn.Int64


class Load(vn.Schema):
    target: vn.Int64
    base: vn.Int64
    field: vn.Int64


app = vn.App("points_to", retain="10m")
news = app.source("news", New)
assigns = app.source("assigns", Assign)
stores = app.source("stores", Store)
loads = app.source("loads", Load)


@vn.fixpoint
def analyse(holds, fields, *, news, assigns, stores, loads):
    copied = assigns.join(holds, left_on="source", right_on="variable").select(variable=col("target"), obj=col("obj"))
    bases = loads.join(holds.rename(obj="owner"), left_on="base", right_on="variable")
    loaded = bases.select("target", "field", "owner").join(fields, on=["owner", "field"])
    owners = stores.join(holds.rename(obj="owner"), left_on="base", right_on="variable")
    stored = owners.select("owner", "field", "source").join(holds, left_on="source", right_on="variable")
    return (
        vn.union(news, copied, loaded.select(variable=col("target"), obj=col("obj"))).distinct(),
        stored.select("owner", "field", "obj").distinct(),
    )


nothing = stores.filter(vn.lit(False)).select(owner=col("base"), field=col("field"), obj=col("source"))
holds, fields = analyse(news, nothing, news=news, assigns=assigns, stores=stores, loads=loads)
app.view("holds", holds, key=["variable", "obj"])
app.view("fields", fields, key=["owner", "field", "obj"])
