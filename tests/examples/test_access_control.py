"""The rights of access_control against a walk through the groups, user by user."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest

import vernier as vn
from tests.examples.data import at, program, updates
from tests.programs.snapshots import Held, Row, compare, graph


def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
    """What each user may use, by walking from the user through all groups."""
    may: list[Row] = []
    overruled: list[Row] = []
    for (user,) in held["users"]:
        known, waiting = {user}, [user]
        while waiting:
            one = waiting.pop()
            new = {group for member, group in held["members"] if member == one} - known
            known |= new
            waiting += new
        permitted = {resource for principal, resource in held["allowed"] if principal in known}
        refused = {resource for principal, resource in held["denied"] if principal in known}
        may += [(user, resource) for resource in permitted - refused]
        overruled += [(user, resource) for resource in permitted & refused]
    return {"may": may, "overruled": overruled}


def test_the_data() -> None:
    assert compare(program("access_control"), updates("access_control"), answer) == 7


def test_rights_of_250_nanoseconds_are_seen() -> None:
    with vn.testing.run(program("access_control")) as run:
        for source, changes in updates("access_control").items():
            run.update(source, changes)
        run.finish()
        began, ended = at("10:00:00"), at("10:00:00.000000250")
        right = ("analyst-1", "production")
        assert [change for change in run.changes("may") if change[0] == right] == [
            (right, began, 1),
            (right, ended, -1),
        ]
        assert run.rows("overruled", at=at("12:00:00")) == [("builder-2", "production"), ("guest-1", "calendar")]


@pytest.mark.parametrize("seed", range(4))
def test_groups_at_random_with_circles(seed: int) -> None:
    users, groups, resources = ("u0", "u1", "u2"), ("g0", "g1", "g2", "g3"), ("r0", "r1")

    def member(choose: random.Random) -> Row:
        return choose.choice(users + groups), choose.choice(groups)

    def rule(choose: random.Random) -> Row:
        return choose.choice(users + groups), choose.choice(resources)

    inputs = {
        "users": graph(seed, 0, 6, edge=lambda choose: (choose.choice(users),)),
        "members": graph(seed + 10, 0, 50, edge=member),
        "allowed": graph(seed + 20, 0, 20, edge=rule),
        "denied": graph(seed + 30, 0, 20, edge=rule),
    }
    assert compare(program("access_control"), inputs, answer, seed=seed) > 20
