"""Stable matching against deferred acceptance as the textbook has it: one student at a time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest

from tests.programs.snapshots import Change, Held, Row, check


def wishes(seed: int, students: int, schools: int, changes: int) -> list[Change]:
    """Wishes that come and go; no student or school ranks two the same."""
    choose = random.Random(seed)
    of_students = {one: choose.sample(range(schools), schools) for one in range(students)}
    of_schools = {one: choose.sample(range(students), students) for one in range(schools)}
    live: list[Row] = []
    found: list[Change] = []
    for time in range(changes):
        if live and choose.random() > 0.65:
            found.append((live.pop(choose.randrange(len(live))), time // 2, -1))
        else:
            student, school = choose.randrange(students), choose.randrange(schools)
            row = (student, school, of_students[student].index(school), of_schools[school].index(student))
            if row not in live:
                live.append(row)
                found.append((row, time // 2, 1))
    return found


def matched(held: Held) -> Mapping[str, Iterable[Row]]:
    lists: dict[int, list[tuple[int, int]]] = {}
    likes = {}
    for student, school, place, school_place in sorted(held["wishes"], key=lambda row: row[2]):
        lists.setdefault(student, []).append((place, school))
        likes[school, student] = school_place
    free, taken = list(lists), dict[int, int]()
    while free:
        student = free.pop()
        while lists[student]:
            _, school = lists[student].pop(0)
            rival = taken.get(school)
            if rival is None or likes[school, student] < likes[school, rival]:
                taken[school] = student
                if rival is not None:
                    free.append(rival)
                break
    return {"matches": [(student, school) for school, student in taken.items()]}


@pytest.mark.parametrize("seed", range(4))
def test_stable_matching(seed: int) -> None:
    assert check("stable_matching", {"wishes": wishes(seed, 5, 4, 60)}, matched)
