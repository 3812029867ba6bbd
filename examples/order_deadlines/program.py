"""Order and shipment deadlines: what is open, overdue and late, and what that costs, with scans that come too late.

A deadline passes at its own nanosecond, without any message at that time. A scan has the time at which a parcel was
handed over; it may be reported much later, and then the answers from its arrival on take it into account.
"""

import vernier as vn
from vernier import col


class Order(vn.Schema):
    order: vn.Int64
    customer: vn.String
    placed: vn.TimestampNs
    due: vn.TimestampNs


class Scan(vn.Schema):
    order: vn.Int64
    at: vn.TimestampNs


class Terms(vn.Schema):
    customer: vn.String
    since: vn.TimestampNs
    cents: vn.Int64


app = vn.App("order_deadlines", retain="1h", on_late="advance")
orders, scans = app.source("orders", Order), app.source("scans", Scan)
terms = app.source("terms", Terms)

app.view("open", orders.valid_between(to="due").join(scans, on="order", how="anti"), key=["order"])
overdue = orders.valid_between("due").join(scans, on="order", how="anti")
app.view("overdue", overdue, key=["order"])

shipped = orders.join(scans.group_by("order").agg(at=vn.min("at")), on="order")
late = shipped.filter(col("at") > col("due"))
app.view("late", late.select(order="order", customer="customer", late_by=col("at") - col("due")), key=["order"])

# The terms that held when an order was placed decide what it costs; they may be corrected afterwards.
broken = vn.union(overdue, late.drop("at"))
priced = broken.as_of_join(terms, on="customer", left_time="placed", right_time="since", how="left")
penalties = priced.group_by("customer").agg(orders=vn.count(), cents=vn.sum(vn.coalesce("cents", 0)))
app.view("penalties", penalties, key=["customer"])
