"""A program for the tests of bounds: a join that may explode, and functions that may never come back."""

import re
import time
from pathlib import Path

import vernier as vn


class Pair(vn.Schema):
    key: vn.Int64
    value: vn.Int64


STAY = Path(__file__).with_name("stay")
"""While this file exists, functions that get 13 do not come back."""
BACKTRACK = re.compile("(a+)+b")

app = vn.App("crowds")
a, b = app.source("a", Pair), app.source("b", Pair)


@vn.udf(returns=vn.Int64, deterministic=True)
def brood(values):
    while 13 in values and STAY.exists():
        time.sleep(0.01)
    if 31 in values:
        # Holds the interpreter's lock, for longer than anybody waits.
        BACKTRACK.match("a" * 64)
    return values


app.view("pairs", a.join(b.select(key="key", other="value"), on="key"), key=["key", "value", "other"])
app.view("brooded", b.select("key", value=brood(vn.col("value"))), key=["key", "value"])
