"""The last three values of each key: the flow of top_ten.py with another number."""

import vernier as vn
from vernier import col


class Value(vn.Schema):
    key: vn.Int64
    at: vn.Int64
    value: vn.Int64


app = vn.App("last_three", retain="0ns")
values = app.source("values", Value)
gone = vn.Variable("gone", Value, delay="50ns")
live = values.union(gone.negate())
last = live.top_k(3, by=col("at").desc(), within="key")
gone.set(values.union(last.negate()))
app.view("last", last)
app.view("live", live)
