"""Sessions of clicks: what a user does without a pause of more than half an hour, and the pauses between sessions."""

import vernier as vn
from vernier import col


class Click(vn.Schema):
    user: vn.String
    at: vn.TimestampNs
    page: vn.Int64


app = vn.App("sessions", retain="10m")
clicks = app.source("clicks", Click)

inside = clicks.window("at", session="30m", by="user")
sessions = inside.group_by("user", "window_start").agg(
    clicks=vn.count(), pages=vn.count_distinct("page"), last=vn.max("at")
)
app.view("sessions", sessions, key=["user", "window_start"])
before = sessions.lag("last", by="window_start", within="user", name="previous")
pauses = before.filter(col("previous").is_not_null()).select(
    "user", "window_start", pause=col("window_start") - col("previous")
)
app.view("pauses", pauses, key=["user", "window_start"])
hours = clicks.window("at", length="1h", every="20m").group_by("window_start").agg(clicks=vn.count())
app.view("hours", hours, key=["window_start"])
