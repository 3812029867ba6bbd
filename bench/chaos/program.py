"""The program under chaos: sources in all formats, and views of every family, with long nullable texts.

bench/chaos/truth.py recomputes each view from scratch and shares no code with it.
"""

import vernier as vn
from vernier import col


class Link(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Person(vn.Schema):
    id: vn.Int64
    name: vn.String | None
    city: vn.String | None


class Order(vn.Schema):
    id: vn.Int64
    person: vn.Int64 | None
    item: vn.String | None
    amount: vn.Decimal(15, 2) | None


class Payment(vn.Schema):
    id: vn.Int64
    order: vn.Int64
    method: vn.String | None


class Click(vn.Schema):
    person: vn.Int64
    page: vn.String | None
    at: vn.TimestampNs


class Note(vn.Schema):
    person: vn.Int64
    text: vn.String | None
    stars: vn.Int64


class Odd(vn.Schema):
    """The columns that hostile messages are for (tests/attack/hostile.py); no row of it ever enters."""

    id: vn.Int64
    m: vn.Decimal(15, 2) | None
    note: vn.String | None
    at: vn.TimestampNs | None
    day: vn.Date | None
    x: vn.Float64 | None
    tags: vn.List(vn.Int64) | None
    raw: vn.Binary | None


app = vn.App("chaos", retain="10m")
links = app.source("links", Link)
people = app.source("people", Person)
orders = app.source("orders", Order)
payments = app.source("payments", Payment)
clicks = app.source("clicks", Click)
notes = app.source("notes", Note)

odd = [
    app.source("odd_vernier", Odd),
    app.source("odd_json", Odd),
    app.source("odd_arrow", Odd),
    app.source("odd_upsert", Odd),
    app.source("odd_insert_delete", Odd),
    app.source("odd_debezium", Odd),
    app.source("odd_avro", Odd),
    app.source("odd_protobuf", Odd),
]

# --- strongly connected components: a loop in a loop ------------------------------------------------------------------

edges = links.distinct()
nodes = vn.union(edges.select(node=col("src")), edges.select(node=col("dst"))).distinct()


@vn.fixpoint
def spread(known, *, edges, start):
    passed = known.join(edges, left_on="node", right_on="src").select(node=col("dst"), label=col("label"))
    return vn.union(start, passed).group_by("node").agg(label=vn.min("label"))


def labels(edges):
    start = nodes.with_columns(label=col("node"))
    return spread(start, edges=edges, start=start)


def turned(edges):
    return edges.select(src=col("dst"), dst=col("src"))


def agreeing(edges):
    known = labels(edges)
    tails = edges.join(known.rename(label="tail"), left_on="src", right_on="node").drop("node")
    both = tails.join(known.rename(label="head"), left_on="dst", right_on="node")
    return both.filter(col("tail") == col("head")).select("src", "dst")


@vn.fixpoint
def trim(inside):
    return turned(agreeing(turned(agreeing(inside))))


app.view("components", labels(trim(edges)).rename(label="component"), key=["node"])

# --- outer joins, also by texts that are long or null -----------------------------------------------------------------

named = people.rename(id="person")
purchases = orders.join(named, on="person", how="full")
app.view("purchases", purchases.select("person", "id", "item", "amount", "name", "city"))
paid = orders.join(payments.select("order", "method"), left_on="id", right_on="order", how="left")
app.view("billing", paid.select("id", "item", "method"))
quoted = notes.rename(person="author").join(
    clicks.select("page", reader=col("person")), left_on="text", right_on="page", how="full"
)
app.view("quoted", quoted.select("author", "text", "stars", "reader", "page"))

# --- aggregates, the first of each, windows ---------------------------------------------------------------------------

cities = people.rename(id="person").join(orders.rename(id="order"), on="person", how="left")
app.view(
    "cities",
    cities.group_by("city").agg(
        n=vn.count(),
        total=vn.sum("amount"),
        least=vn.min("item"),
        greatest=vn.max("item"),
        items=vn.count_distinct("item"),
    ),
    key=["city"],
)
app.view("best", orders.top_k(2, by=col("amount").desc(), within="person"))
app.view(
    "tens",
    clicks.window("at", tumble="10s").group_by("window_start").agg(n=vn.count(), pages=vn.count_distinct("page")),
    key=["window_start"],
)
sessions = clicks.window("at", session="2s", by="person")
app.view("visits", sessions.group_by("person", "window_start").agg(n=vn.count()), key=["person", "window_start"])

# --- as they came: what the arrival clock has made of each update -----------------------------------------------------

app.view("odd_now", vn.union(*[source.select("id", "note") for source in odd]))
app.view("people_now", people, key=["id"])
app.view("clicks_now", clicks)
app.view("notes_now", notes)
