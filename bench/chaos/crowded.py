"""A join that explodes: pairing all rows of one key on both sides needs more memory than there is."""

import vernier as vn


class Pair(vn.Schema):
    key: vn.Int64
    value: vn.Int64


app = vn.App("crowded")
left, right = app.source("left", Pair), app.source("right", Pair)
app.view("pairs", left.join(right.select(key="key", other="value"), on="key"))
