"""A leaderboard with ties: ranks, a podium on which equals stand together, and teams that count their two best."""

import vernier as vn
from vernier import col


class Player(vn.Schema):
    player: vn.String
    team: vn.String


class Result(vn.Schema):
    match: vn.Int64
    player: vn.String
    points: vn.Int64


app = vn.App("leaderboard", retain="1h")
players, results = app.source("players", Player), app.source("results", Result)

totals = results.group_by("player").agg(points=vn.sum("points"), matches=vn.count())
scores = players.join(totals, on="player").select("player", "team", "points", "matches")
best = col("points").desc()

ranked = scores.rank(by=best)
app.view("ranks", ranked, key=["player"])
app.view("podium", ranked.filter(col("rank") <= 3).select("rank", "player", "points"))
app.view("three", scores.top_k(3, by=[best, "player"]).select("player", "points"))
counted = scores.top_k(2, by=[best, "player"], within="team")
teams = counted.group_by("team").agg(points=vn.sum("points"), players=vn.count())
app.view("teams", teams.dense_rank(by=best), key=["team"])
