"""Access control by nested groups: who may use what, when a denial beats every permission.

A user belongs to the groups that list the user, to the groups that list those, and so on. Groups may list each other in
a circle. A rule names a user or a group, and holds for all who belong to it.
"""

import vernier as vn


class User(vn.Schema):
    user: vn.String


class Member(vn.Schema):
    member: vn.String
    group: vn.String


class Rule(vn.Schema):
    principal: vn.String
    resource: vn.String


app = vn.App("access_control", retain="1h")
users = app.source("users", User)
members = app.source("members", Member)
allowed, denied = app.source("allowed", Rule), app.source("denied", Rule)


@vn.fixpoint
def belongs(belongs, *, members, start):
    higher = belongs.join(members, left_on="principal", right_on="member").select(user="user", principal="group")
    return vn.union(start, higher).distinct()


start = users.distinct().select(user="user", principal="user")
principals = belongs(start, members=members, start=start)


def reached(rules):
    """Who is reached by one of these rules, through any group, and for which resource."""
    return principals.join(rules, on="principal").select("user", "resource").distinct()


permitted, refused = reached(allowed), reached(denied)
may = permitted.join(refused, on=["user", "resource"], how="anti")
app.view("may", may, key=["user", "resource"])
app.view("overruled", permitted.join(refused, on=["user", "resource"], how="semi"), key=["user", "resource"])
