"""Neighbours and sessions, of which a change reads what is around the rows that it changes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.continued import check_continued
from tests.operators.recounts import BETWEEN, CUTS, FEW, WORKERS, check, check_cut, drifting, fitting, logs
from tests.profiles import examples
from tests.properties.engine import Between, run
from vernier import col
from vernier.operators.planning import reductions
from vernier.operators.planning.planner import compile_app

LONG = "a text that is longer than fifteen bytes, "
Row = tuple[int, str, int, int | None]
Log = list[tuple[Row, int, int]]


class Event(vn.Schema):
    key: vn.Int64
    name: vn.String
    rank: vn.Int64
    at: vn.Int64 | None


def program() -> vn.App:
    app = vn.App("around", retain="1us")
    events = app.source("events", Event)
    plain = events.select("key", "rank", "at")
    app.view("lag", plain.lag("rank", by="at", within="key", name="v"))
    app.view("lead", plain.lead("rank", by=["at", "rank"], within="key", n=2, name="v"))
    app.view("down", events.lag("name", by=col("rank").desc(), within="key", name="v"))
    app.view("named", events.lag("at", by="rank", within="key", n=2, default=-1, name="v"))
    app.view("mixed", events.lead("rank", by=["rank", col("at").desc()], within="key", name="v"))
    app.view("texts", events.lag("rank", by="name", within="key", name="v"))
    app.view("same", plain.lag("at", by="rank", within="key", n=0, name="v"))
    app.view("sessions", events.window("at", session=2, by="key"))
    return app


def _null_first(value: int | None) -> tuple[bool, int]:
    return value is not None, value or 0


def _null_last(value: int | None) -> tuple[bool, int]:
    return value is None, -(value or 0)


def truth(rows: Counter[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The views of these rows."""
    found: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in program().views}
    events: dict[int, Counter[Any]] = defaultdict(Counter)
    plain: dict[int, Counter[Any]] = defaultdict(Counter)
    for (key, *row), copies in rows.items():
        events[key][tuple(row)] += copies
        plain[key][tuple(row[1:])] += copies

    def shifted(
        view: str, of: dict[int, Counter[Any]], n: int, order: Callable[[Any], Any], word: int, none: Any = None
    ) -> None:
        for key, group in of.items():
            there = sorted((row for row, copies in group.items() if copies > 0), key=order)
            copies = [row for row in there for _ in range(group[row])]
            for at, row in enumerate(copies):
                other = copies[at - n][word] if 0 <= at - n < len(copies) else none
                found[view][(key, *row, other)] += 1

    shifted("lag", plain, 1, lambda r: (_null_first(r[1]), r[0]), 0)
    shifted("lead", plain, -2, lambda r: (_null_first(r[1]), r[0]), 0)
    shifted("down", events, 1, lambda r: (-r[1], r[0], _null_first(r[2])), 0)
    shifted("named", events, 2, lambda r: (r[1], r[0], _null_first(r[2])), 2, -1)
    shifted("mixed", events, -1, lambda r: (r[1], _null_last(r[2]), r[0]), 1)
    shifted("texts", events, 1, lambda r: (r[0], r[1], _null_first(r[2])), 1)
    shifted("same", plain, 0, lambda r: (r[0], _null_first(r[1])), 1)
    for key, group in events.items():
        times = sorted({at for (_, _, at), copies in group.items() if copies > 0 and at is not None})
        for row, copies in group.items():
            if copies > 0 and row[2] is not None:
                first = last = row[2]
                while any(first - 2 <= at < first for at in times):
                    first = min(at for at in times if first - 2 <= at < first)
                while any(last < at <= last + 2 for at in times):
                    last = max(at for at in times if last < at <= last + 2)
                found["sessions"][(key, *row, first, last + 2)] = copies
    return found


EVENTS = logs(
    st.integers(0, 1),
    st.sampled_from(["", LONG + "a", LONG + "b"]),
    st.integers(0, 4),
    st.none() | st.integers(0, 12),
)


@pytest.mark.parametrize("few", FEW)
@given(EVENTS, CUTS, WORKERS, BETWEEN)
@examples(15)
def test_neighbours_and_sessions_are_those_of_the_rows(
    few: int | None, log: Log, cuts: set[int], workers: int, between: Between
) -> None:
    check_cut(program(), truth, few, log, cuts, workers, between)


@pytest.mark.parametrize("seed", range(2))
def test_changes_far_from_each_other_in_large_groups(seed: int) -> None:
    choose = random.Random(seed)

    def event() -> Row:
        name = choose.choice(["b", LONG + str(choose.randrange(3))])
        return (0, name, choose.randrange(60), choose.choice([None, *range(0, 400, 3), *range(400)]))

    log = drifting(choose, event, 120, 60, 2)
    check(run(program(), {"events": log}, cuts=(1, 20, 21, 40), slice_updates=5), log, truth)
    check(run(fitting(program()), {"events": log}, cuts=(1, 20, 21, 40), slice_updates=5), log, truth)


def test_a_state_with_rows_in_their_own_order_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(1)

    def event() -> Row:
        return choose.randrange(3), choose.choice("abc"), choose.randrange(9), choose.randrange(40)

    with monkeypatch.context() as patch:
        patch.setattr(reductions, "surroundings_of", lambda *_: None)
        patch.setattr(reductions, "build_session_ends", lambda planner, node, _: reductions.build_whole(planner, node))
        before = compile_app(program())
    check_continued(program(), before, event)
