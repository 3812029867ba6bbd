"""The greatest value of each key, with a window in which it may be taken back: a window made by `delay`.

Every row stays for a window after it came, also if it is not the greatest; then it is forgotten, unless it is. The
variable carries the answer of one tick ago, so the greatest value outlives its window. Times are whole ticks
(`coarsen`), so that nothing happens between an answer and its return: a row that becomes the greatest in the last tick
of its window is carried as well. Each row has one copy at most: the variable carries rows, not copies.
"""

import vernier as vn

TICK, WINDOW = 10, 100


class Value(vn.Schema):
    key: vn.Int64
    value: vn.Int64


app = vn.App("delay_window", retain="0ns")
values = app.source("values", Value).coarsen(TICK)
carried = vn.Variable("carried", Value, delay=TICK)
live = vn.union(values, values.delay(WINDOW).negate(), carried)
greatest = live.group_by("key").agg(value=vn.max("value"))
# What will still be in its window a tick later is not carried: it would be there twice, and could not be deleted.
stays = values.union(values.delay(WINDOW - TICK).negate())
carried.set(greatest.join(stays, on=["key", "value"], how="anti"))
app.view("greatest", greatest, key=["key"])
app.view("live", live.distinct())
