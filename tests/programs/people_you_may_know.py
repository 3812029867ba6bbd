"""People you may know: for each person the three people with the most friends in common who are no friends yet."""

import vernier as vn
from vernier import col


class Friendship(vn.Schema):
    one: vn.Int64
    other: vn.Int64


app = vn.App("people_you_may_know", retain="10m")
friendships = app.source("friendships", Friendship)

# Friendship is mutual, whichever way it was stated, and no person is their own friend.
friends = (
    vn.union(friendships, friendships.select(one="other", other="one"))
    .filter(col("one") != col("other"))
    .select(person="one", friend="other")
    .distinct()
)
others = friends.select(common="person", other="friend")
pairs = friends.join(others, left_on="friend", right_on="common", where=col("person") != col("other"))
strangers = pairs.join(friends, left_on=["person", "other"], right_on=["person", "friend"], how="anti")
known = strangers.group_by("person", "other").agg(common=vn.count())
best = known.top_k(3, by=[col("common").desc(), "other"], within="person")
app.view("suggestions", best, key=["person", "other"])
