"""Latency from sending to receiving: a flow that keeps only what is not paired yet.

When both ends of a message are there, they are a pair, and the delay later both leave their inputs. The variable keeps
what left counted: a pair is counted once, directly until it left and through the variable from then on.
"""

import vernier as vn
from vernier import col


class Sent(vn.Schema):
    link: vn.Int64
    number: vn.Int64
    sent: vn.Int64


class Received(vn.Schema):
    link: vn.Int64
    number: vn.Int64
    received: vn.Int64


class Pair(vn.Schema):
    link: vn.Int64
    number: vn.Int64
    sent: vn.Int64
    received: vn.Int64


app = vn.App("send_receive", retain="0ns")
sent, received = app.source("sent", Sent), app.source("received", Received)
paired = vn.Variable("paired", Pair, delay="30ns")
waiting_sent = sent.union(paired.select("link", "number", "sent").negate())
waiting_received = received.union(paired.select("link", "number", "received").negate())
now = waiting_sent.join(waiting_received, on=["link", "number"]).select("link", "number", "sent", "received")
done = paired.union(now)
paired.set(done)
took = done.select("link", took=col("received") - col("sent"))
app.view("by_link", took.group_by("link").agg(messages=vn.count(), total=vn.sum("took")), key=["link"])
app.view("waiting_sent", waiting_sent)
app.view("waiting_received", waiting_received)
