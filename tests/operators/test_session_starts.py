"""Starts of sessions, of which a change reads the rows whose start it changes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.continued import check_continued
from tests.operators.recounts import BETWEEN, CUTS, FEW, WORKERS, Log, check, check_cut, drifting, fitting, logs
from tests.profiles import examples
from tests.properties.engine import Between, run
from vernier.operators.errors import ArithmeticOverflow
from vernier.operators.group_functions.sessions import Sessions
from vernier.operators.language.collection.ordering import grouped_by
from vernier.operators.planning import reductions
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import SessionsOp

GAP = 2
LONG = "a text that is longer than fifteen bytes, "
Row = tuple[str, int, int, int | None]


class Event(vn.Schema):
    key: vn.String
    rank: vn.Int64
    day: vn.Int64
    at: vn.Int64 | None


def starts(rows: vn.Collection, on: str, *by: str, gap: int = GAP) -> vn.Collection:
    """The rows with the starts of their sessions, as queries in SQL have them."""
    return rows._of(grouped_by(rows.node, by, Sessions(on, gap, ends=False)))


def program() -> vn.App:
    app = vn.App("starts", retain="1us")
    events = app.source("events", Event)
    app.view("maybe", starts(events, "at", "key"))
    app.view("days", starts(events.select("key", "day"), "day", "key"))
    app.view("all", starts(events, "day"))
    sessions = starts(events, "at", "key")
    app.view("counted", sessions.group_by("key", "window_start").agg(n=vn.count(), last=vn.max("at")))
    return app


def truth(rows: Counter[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The views of these rows."""
    found: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in program().views}

    def put(view: str, given: Counter[Any], on: int, by: slice, first: tuple[Any, ...] = ()) -> None:
        times: dict[Any, set[int]] = defaultdict(set)
        for row, copies in given.items():
            if copies > 0 and row[on] is not None:
                times[row[by]].add(row[on])
        for row, copies in given.items():
            if copies > 0 and row[on] is not None:
                start = row[on]
                while near := [at for at in times[row[by]] if start - GAP <= at < start]:
                    start = min(near)
                found[view][(*first, *row, start)] += copies

    put("maybe", rows, 3, slice(0, 1))
    days: Counter[Any] = Counter()
    for row, copies in rows.items():
        days[row[0], row[2]] += copies
    put("days", days, 1, slice(0, 1))
    put("all", rows, 2, slice(0, 0), (0,))
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row, copies in found["maybe"].items():
        groups[row[0], row[4]] += [row[3]] * copies
    found["counted"] = Counter((*key, len(times), max(times)) for key, times in groups.items())
    return found


EVENTS = logs(st.sampled_from(["", LONG + "a"]), st.integers(0, 1), st.integers(0, 9), st.none() | st.integers(0, 12))


@pytest.mark.parametrize("few", FEW[1:])
@given(EVENTS, CUTS, WORKERS, BETWEEN)
@examples(30)
def test_starts_are_those_of_the_rows(
    few: int | None, log: Log, cuts: set[int], workers: int, between: Between
) -> None:
    check_cut(program(), truth, few, log, cuts, workers, between)


@pytest.mark.parametrize(("seed", "span"), [(0, 400), (1, 120), (2, 60)])
def test_sessions_join_and_part_in_large_groups(seed: int, span: int) -> None:
    choose = random.Random(seed)

    def event() -> Row:
        return LONG, choose.randrange(3), choose.randrange(span), choose.choice([None, *range(span)])

    log = drifting(choose, event, 120, 60, 4)
    check(run(program(), {"events": log}, cuts=(1, 20, 21, 40), slice_updates=7), log, truth)
    check(run(program(), {"events": log}, cuts=(30,), slice_updates=10_000), log, truth)
    check(run(fitting(program()), {"events": log}, cuts=(1, 20, 21, 40), slice_updates=7), log, truth)


def test_a_state_without_starts_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(1)

    def event() -> Row:
        return "k", choose.randrange(3), choose.randrange(90), choose.randrange(90)

    with monkeypatch.context() as patch:
        patch.setattr(reductions, "build_sessions", lambda planner, node, _: reductions.build_whole(planner, node))
        before = compile_app(program())
    assert not before.of(SessionsOp)
    assert compile_app(program()).of(SessionsOp)
    check_continued(program(), before, event)


def test_a_session_that_would_end_beyond_its_type_is_an_error() -> None:
    app = vn.App("late")
    app.view("v", starts(app.source("events", Event), "day", "key"))
    run(app, {"events": [(("k", 0, 2**63 - 1 - GAP, None), 0, 1)]})
    with pytest.raises(ArithmeticOverflow, match=str(2**63 - GAP)):
        run(app, {"events": [(("k", 0, 2**63 - GAP, None), 0, 1)]})
