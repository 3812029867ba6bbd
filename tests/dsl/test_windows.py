"""Windows on data columns against arithmetic and a walk along sorted rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.recompute import check, cuts, updates
from tests.oracle.model import Change, Collection
from tests.profiles import examples
from vernier.operators.errors import ArithmeticOverflow, ProgramError

Answered = Iterable[tuple[tuple[Any, ...], int]]


class Event(vn.Schema):
    user: vn.Int64
    at: vn.Int64 | None


SCHEMAS: dict[str, type[vn.Schema]] = {"events": Event}
rows = st.tuples(st.integers(0, 1), st.one_of(st.none(), st.integers(-9, 12)))


@examples(40)
@given(
    changes=updates(rows), cuts=cuts, size=st.integers(1, 9), every=st.integers(1, 9), workers=st.sampled_from((1, 2))
)
def test_hopping_and_tumbling_windows(
    changes: list[Change], cuts: list[int], size: int, every: int, workers: int
) -> None:
    size, every = max(size, every), min(size, every)

    def hop(events: Collection, size: int, every: int) -> Answered:
        for (user, at), count in events.items():
            for start in range(-30, 30):
                if at is not None and start % every == 0 and start <= at < start + size:
                    yield (user, at, start, start + size), count

    def hopping(events: vn.Collection) -> vn.Collection:
        return events.window("at", hop=size, every=every)

    def tumbling(events: vn.Collection) -> vn.Collection:
        return events.window("at", tumble=size)

    check(hopping, SCHEMAS, lambda events: hop(events, size, every), {"events": changes}, cuts, workers)
    check(tumbling, SCHEMAS, lambda events: hop(events, size, size), {"events": changes}, cuts, workers)


@pytest.mark.parametrize("by", [True, False])
@examples(40)
@given(changes=updates(rows), cuts=cuts, gap=st.integers(1, 4), workers=st.sampled_from((1, 2)))
def test_sessions(by: bool, changes: list[Change], cuts: list[int], gap: int, workers: int) -> None:
    def answer(events: Collection) -> Answered:
        there = sorted((user if by else 0, at) for (user, at), count in events.items() if count > 0 and at is not None)
        sessions: dict[tuple[int, int], tuple[int, int]] = {}
        for _, part in groupby(there, lambda row: row[0]):
            session: list[tuple[int, int]] = []
            for row in part:
                if session and row[1] - session[-1][1] > gap:
                    session = []
                session.append(row)
                for one in session:
                    sessions[one] = (session[0][1], session[-1][1] + gap)
        for (user, at), count in events.items():
            if count > 0 and at is not None:
                yield (user, at, *sessions[user if by else 0, at]), count

    def build(events: vn.Collection) -> vn.Collection:
        return events.window("at", session=gap, by="user" if by else ())

    check(build, SCHEMAS, answer, {"events": changes}, cuts, workers)


class Visit(vn.Schema):
    at: vn.TimestampNs
    day: vn.Date


def test_windows_have_the_type_of_their_column() -> None:
    app = vn.App("t")
    visits = app.source("visits", Visit)
    app.view("minutes", visits.window("at", hop="1m", every="30s").drop("day"))
    app.view("weeks", visits.window("day", tumble="7d").drop("at"))
    app.view("sessions", visits.window("day", session=2).drop("at"))
    with vn.testing.run(app) as t:
        t.insert("visits", (61_000_000_000, date(1970, 1, 9)), at=1)
        t.insert("visits", (62_000_000_000, date(1970, 1, 11)), at=2)
        t.finish()
        at, half = 61_000_000_000, 30_000_000_000
        assert t.rows("minutes", at=1) == [(at, half, 3 * half), (at, 2 * half, 4 * half)]
        assert t.rows("weeks", at=1) == [(date(1970, 1, 9), date(1970, 1, 8), date(1970, 1, 15))]
        assert t.rows("sessions", at=1) == [(date(1970, 1, 9), date(1970, 1, 9), date(1970, 1, 11))]
        assert t.rows("sessions") == [
            (date(1970, 1, 9), date(1970, 1, 9), date(1970, 1, 13)),
            (date(1970, 1, 11), date(1970, 1, 9), date(1970, 1, 13)),
        ]


@pytest.mark.parametrize("window", [{"tumble": 7}, {"hop": 7, "every": 2}, {"session": 5}])
def test_windows_beyond_the_calendar_are_an_error(window: dict[str, Any]) -> None:
    app = vn.App("t")
    app.view("v", app.source("visits", Visit).window("day", **window))
    with vn.testing.run(app) as t:
        t.insert("visits", (0, date(9999, 12, 29)), at=1)
        with pytest.raises(ArithmeticOverflow, match=r'col\("day"\)'):
            t.finish()


@pytest.mark.parametrize("window", [{"tumble": 5}, {"hop": 5, "every": 2}, {"session": 5}])
def test_windows_beyond_64_bits_are_an_error(window: dict[str, Any]) -> None:
    app = vn.App("t")
    app.view("v", app.source("events", Event).window("at", **window))
    with vn.testing.run(app) as t:
        t.insert("events", (1, 2**63 - 6), at=1)
        t.advance(2)
        t.insert("events", (1, 2**63 - 3), at=2)
        with pytest.raises(ArithmeticOverflow, match=r'(window|session) of col\("at"\): 9223372036854775805'):
            t.finish()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, 'window takes tumble="1m", or length='),
        ({"tumble": 5, "session": 5}, "window takes"),
        ({"hop": 5}, "window takes"),
        ({"tumble": 5, "every": 5}, "window takes"),
        ({"tumble": 0}, "tumble must be above 0"),
        ({"hop": 3, "every": 5}, "a window begins at least once in its length"),
        ({"hop": "1d", "every": "1ns"}, "a row is in 10000 at most"),
        ({"tumble": 5, "by": "user"}, "by= is for sessions"),
        ({"session": 5, "by": "at"}, "cannot have it in by="),
        ({"session": "5 parsecs"}, 'must be like "10m"'),
    ],
)
def test_wrong_windows_are_told(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ProgramError, match=problem):
        vn.App("t").source("events", Event).window("at", **arguments)
