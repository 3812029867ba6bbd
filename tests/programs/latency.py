"""From sending to receiving: how long messages took, which ones are lost, and what the receiver knew at the time.

Messages have a sender's clock and a receiver's, both in nanoseconds. A receipt belongs to a message when its number is
that of the message and it came at most a second later; a message may be received more than once.
"""

import vernier as vn
from vernier import col


class Sent(vn.Schema):
    link: vn.String
    number: vn.Int64
    sent: vn.TimestampNs


class Received(vn.Schema):
    link: vn.String
    number: vn.Int64
    received: vn.TimestampNs


class Setting(vn.Schema):
    link: vn.String
    since: vn.TimestampNs
    route: vn.String


app = vn.App("latency", retain="10m")
sent, received = app.source("sent", Sent), app.source("received", Received)
settings = app.source("settings", Setting)

near = {"left_time": "sent", "right_time": "received", "lower": 0, "upper": "1s"}
matched = sent.interval_join(received, on=["link", "number"], **near)
took = matched.with_columns(took=col("received") - col("sent"))
app.view("took", took.select("link", "number", "sent", "took"))
app.view("lost", sent.interval_join(received, on=["link", "number"], how="anti", **near))

# The route that was set when a message was sent, and how long messages take on each.
routed = took.as_of_join(settings, on="link", left_time="sent", right_time="since", how="left")
by_route = routed.group_by("route").agg(messages=vn.count(), slowest=vn.max("took"), fastest=vn.min("took"))
app.view("by_route", by_route, key=["route"])
app.view("slowest", took.top_k(2, by=col("took").desc(), within="link").select("link", "number", "took"))
