"""Fraud rings: accounts among which large amounts went round in a circle within a day.

A transfer counts from the nanosecond at which it happens until 24 hours later. Two accounts are in one ring when money
could have gone from each to the other through transfers that count now: they are strongly connected.
"""

import vernier as vn
from vernier import col

DAY = 24 * 3_600 * 1_000_000_000
LARGE = 100_000


class Transfer(vn.Schema):
    transfer: vn.Int64
    payer: vn.String
    payee: vn.String
    cents: vn.Int64
    at: vn.TimestampNs


app = vn.App("fraud_rings", retain="1h")
transfers = app.source("transfers", Transfer)

large = transfers.filter(col("cents") >= LARGE, col("payer") != col("payee"))
recent = large.valid_between(to=col("at") + DAY)
edges = recent.select("payer", "payee").distinct()
accounts = vn.union(edges.select(account="payer"), edges.select(account="payee")).distinct()


@vn.fixpoint
def spread(known, *, edges, start):
    """The least account from which each account can be reached."""
    passed = known.join(edges, left_on="account", right_on="payer").select(account="payee", ring="ring")
    return vn.union(start, passed).group_by("account").agg(ring=vn.min("ring"))


def labels(edges):
    start = accounts.with_columns(ring=col("account"))
    return spread(start, edges=edges, start=start)


def agreeing(edges):
    """The edges whose two ends have one label."""
    known = labels(edges)
    tails = edges.join(known.rename(ring="tail"), left_on="payer", right_on="account").drop("account")
    both = tails.join(known.rename(ring="head"), left_on="payee", right_on="account")
    return both.filter(col("tail") == col("head")).select("payer", "payee")


def turned(edges):
    return edges.select(payer="payee", payee="payer")


# Trimmed forwards and backwards until nothing changes, only the edges inside of rings are left.
@vn.fixpoint
def trim(inside):
    return turned(agreeing(turned(agreeing(inside))))


inside = trim(edges)
members = labels(inside).join(inside.select(account="payer").distinct(), on="account", how="semi")
app.view("members", members, key=["account"])

moved = recent.join(inside, on=["payer", "payee"], how="semi").join(members, left_on="payer", right_on="account")
money = moved.group_by("ring").agg(transfers=vn.count(), cents=vn.sum("cents"))
sizes = members.group_by("ring").agg(accounts=vn.count())
app.view("rings", sizes.join(money, on="ring"), key=["ring"])
