"""The ten newest readings of each sensor, with retention: a flow that retracts its own input.

A reading that is not among the ten leaves the input after the delay. So up to nine of the ten may be deleted, and the
answer is still right: the rows that are left.
"""

import vernier as vn
from vernier import col


class Reading(vn.Schema):
    sensor: vn.Int64
    at: vn.Int64


app = vn.App("top_ten", retain="0ns")
readings = app.source("readings", Reading)
gone = vn.Variable("gone", Reading, delay="50ns")
live = readings.union(gone.negate())
newest = live.top_k(10, by=col("at").desc(), within="sensor")
gone.set(readings.union(newest.negate()))
app.view("newest", newest)
app.view("live", live)
