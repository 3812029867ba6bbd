"""Stable matching of students and schools, one place each, by deferred acceptance (Gale and Shapley).

The loop gathers refusals. In a round every student asks the best school that has not refused them, and every school
refuses all of them but the one it likes best. When no student is refused any more, those that asked are matched.
"""

import vernier as vn


class Wish(vn.Schema):
    """What a student (`place` 1 is best) and a school think of each other."""

    student: vn.Int64
    school: vn.Int64
    place: vn.Int64
    school_place: vn.Int64


app = vn.App("stable_matching", retain="10m")
wishes = app.source("wishes", Wish).distinct()


def asking(refused):
    """Each student's best wish that was not refused."""
    open_wishes = wishes.join(refused, on=["student", "school"], how="anti")
    best = open_wishes.group_by("student").agg(place=vn.min("place"))
    return open_wishes.join(best, on=["student", "place"])


def liked(asked):
    """Of the students that ask a school, the one it likes best."""
    best = asked.group_by("school").agg(school_place=vn.min("school_place"))
    return asked.join(best, on=["school", "school_place"])


@vn.fixpoint
def refuse(refused):
    asked = asking(refused)
    turned_down = asked.join(liked(asked).select("student", "school"), on=["student", "school"], how="anti")
    return vn.union(refused, turned_down.select("student", "school")).distinct()


none = wishes.filter(vn.lit(False)).select("student", "school")
app.view("matches", asking(refuse(none)).select("student", "school"), key=["student"])
