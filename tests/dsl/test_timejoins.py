"""As-of and interval joins against nested loops."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.recompute import check, cuts, updates
from tests.oracle.model import Change, Collection
from tests.profiles import examples
from vernier.operators.errors import ProgramError

Row = tuple[Any, ...]
Answered = Iterable[tuple[Row, int]]


class Trade(vn.Schema):
    sym: vn.Int64 | None
    at: vn.Int64 | None
    size: vn.Int64


class Quote(vn.Schema):
    sym: vn.Int64 | None
    seen: vn.Int64 | None
    bid: vn.Int64


SCHEMAS: dict[str, type[vn.Schema]] = {"trades": Trade, "quotes": Quote}
rows = st.tuples(st.sampled_from((0, 1, None)), st.one_of(st.none(), st.integers(-3, 8)), st.integers(0, 1))
both = st.fixed_dictionaries({"trades": updates(rows), "quotes": updates(rows)})


def partner(trade: Row, quotes: Collection, direction: str, tolerance: int | None, keyed: bool) -> Row | None:
    """The quote that a trade meets."""
    found = []
    for quote, count in quotes.items():
        if count <= 0 or quote[1] is None or trade[1] is None or (keyed and (quote[0] is None or quote[0] != trade[0])):
            continue
        distance = trade[1] - quote[1] if direction == "backward" else quote[1] - trade[1]
        if distance >= 0 and (tolerance is None or distance <= tolerance):
            place = [(value is not None, value or 0) for value in quote]
            found.append((-distance, place, quote))
    return max(found, key=lambda one: one[:2])[2] if found else None


@pytest.mark.parametrize("keys", ["on", "left_on", "none"])
@examples(40)
@given(
    changes=both,
    direction=st.sampled_from(("backward", "forward")),
    tolerance=st.one_of(st.none(), st.integers(0, 4)),
    how=st.sampled_from(("inner", "left")),
    cuts=cuts,
    workers=st.sampled_from((1, 2)),
)
def test_an_as_of_join_is_its_nested_loop(
    keys: str,
    changes: dict[str, list[Change]],
    direction: str,
    tolerance: int | None,
    how: str,
    cuts: list[int],
    workers: int,
) -> None:
    arguments: dict[str, dict[str, Any]] = {"on": {"on": "sym"}, "left_on": {"left_on": "sym", "right_on": "symbol"}}

    def build(trades: vn.Collection, quotes: vn.Collection) -> vn.Collection:
        return trades.as_of_join(
            quotes if keys == "on" else quotes.rename(sym="symbol"),
            left_time="at",
            right_time="seen",
            direction=direction,
            tolerance=tolerance,
            how=how,
            **arguments.get(keys, {}),
        )

    def answer(trades: Collection, quotes: Collection) -> Answered:
        for trade, count in trades.items():
            quote = partner(trade, quotes, direction, tolerance, keys != "none")
            if quote is not None:
                yield (*trade, *(quote[1:] if keys == "on" else quote)), count
            elif how == "left":
                yield (*trade, *(None,) * (2 if keys == "on" else 3)), count

    check(build, SCHEMAS, answer, changes, cuts, workers)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("keys", ["on", "left_on", "none"])
@examples(15)
@given(
    changes=both,
    bounds=st.tuples(st.integers(-4, 4), st.integers(-4, 4)),
    cuts=cuts,
    workers=st.sampled_from((1, 2)),
)
def test_an_interval_join_is_its_nested_loop(
    keys: str,
    how: str,
    changes: dict[str, list[Change]],
    bounds: tuple[int, int],
    cuts: list[int],
    workers: int,
) -> None:
    lower, upper = min(bounds), max(bounds)
    arguments: dict[str, dict[str, Any]] = {"on": {"on": "sym"}, "left_on": {"left_on": "sym", "right_on": "symbol"}}

    def build(trades: vn.Collection, quotes: vn.Collection) -> vn.Collection:
        return trades.interval_join(
            quotes if keys == "on" else quotes.rename(sym="symbol"),
            left_time="at",
            right_time="seen",
            lower=lower,
            upper=upper,
            how=how,
            **arguments.get(keys, {}),
        )

    def fits(trade: Row, quote: Row) -> bool:
        if keys != "none" and (trade[0] is None or trade[0] != quote[0]):
            return False
        return trade[1] is not None and quote[1] is not None and lower <= quote[1] - trade[1] <= upper

    def answer(trades: Collection, quotes: Collection) -> Answered:
        for trade, count in trades.items():
            near = [quote for quote in quotes if fits(trade, quote)]
            matched = any(quotes[quote] > 0 for quote in near)
            if how == ("semi" if matched else "anti"):
                yield trade, count
            if how in ("inner", "left"):
                for quote in near:
                    yield (*trade, *(quote[1:] if keys == "on" else quote)), count * quotes[quote]
                if how == "left" and not matched:
                    yield (*trade, *(None,) * (2 if keys == "on" else 3)), count

    check(build, SCHEMAS, answer, changes, cuts, workers)


class Sent(vn.Schema):
    at: vn.TimestampNs
    day: vn.Date


def test_distances_of_times_and_dates() -> None:
    app = vn.App("t")
    one, two = app.source("one", Sent), app.source("two", Sent).rename(at="then", day="date")
    app.view("times", one.interval_join(two, left_time="at", right_time="then", lower="-1s", upper="500ms"))
    app.view("dates", one.interval_join(two, left_time="day", right_time="date", lower=-1, upper="2d"))
    app.view("asof", one.as_of_join(two, left_time="at", right_time="then", tolerance="1ms"))
    with vn.testing.run(app) as t:
        t.insert("one", (0, date(2024, 1, 1)), at=1)
        for at in (-1_000_000_001, -1_000_000_000, -1_000_000, 500_000_000, 500_000_001):
            t.insert("two", (at, date(2024, 2, 1)), at=1)
        for day in (30, 31):
            t.insert("two", (2**62, date(2023, 12, day)), at=1)
        for day in (3, 4):
            t.insert("two", (2**62, date(2024, 1, day)), at=1)
        t.finish()
        assert [row[2] for row in t.rows("times")] == [-1_000_000_000, -1_000_000, 500_000_000]
        assert [row[3] for row in t.rows("dates")] == [date(2023, 12, 31), date(2024, 1, 3)]
        assert [row[2] for row in t.rows("asof")] == [-1_000_000]


def test_the_ends_of_64_bits_are_as_near_as_any() -> None:
    app = vn.App("t")
    trades, quotes = app.source("trades", Trade), app.source("quotes", Quote)
    app.view("near", trades.interval_join(quotes, on="sym", left_time="at", right_time="seen", lower=-2, upper=2))
    app.view("next", trades.as_of_join(quotes, on="sym", left_time="at", right_time="seen", tolerance=2**62 - 1))
    low, high = -(2**63), 2**63 - 1
    with vn.testing.run(app) as t:
        for at in (low, high):
            t.insert("trades", (1, at, 0), at=1)
            for seen in (at, at + 1 if at < 0 else at - 1, at + 3 if at < 0 else at - 3):
                t.insert("quotes", (1, seen, 0), at=1)
        t.finish()
        assert [row[1::2] for row in t.rows("near")] == [(low, low), (low, low + 1), (high, high - 1), (high, high)]
        assert [row[1::2] for row in t.rows("next")] == [(low, low), (high, high)]


@pytest.mark.parametrize(
    ("method", "arguments", "problem"),
    [
        ("as_of_join", {"on": "sym", "left_time": "at", "right_time": "sen"}, "did you mean 'seen'"),
        ("as_of_join", {"on": "sym", "left_time": "at", "right_time": "seen", "how": "full"}, "it has inner, left"),
        ("as_of_join", {"on": "sym", "left_time": "at", "right_time": "seen", "direction": "back"}, '"backward" or'),
        ("as_of_join", {"on": "sym", "left_time": "sym", "right_time": "seen"}, "the times themselves cannot be keys"),
        ("as_of_join", {"on": "sym", "left_time": "at", "right_time": "seen", "tolerance": -1}, "tolerance must be"),
        ("interval_join", {"left_time": "at", "right_time": "seen", "lower": 3, "upper": 1}, "nothing would match"),
        ("interval_join", {"left_time": "at", "right_time": "seen", "lower": 0, "upper": 1}, "both sides of the join"),
        ("interval_join", {"left_on": "sym", "left_time": "at", "right_time": "seen", "lower": 0, "upper": 1}, "key"),
    ],
)
def test_wrong_joins_along_time_are_told(method: str, arguments: dict[str, Any], problem: str) -> None:
    app = vn.App("t")
    trades, quotes = app.source("trades", Trade), app.source("quotes", Quote)
    with pytest.raises(ProgramError, match=problem):
        getattr(trades, method)(quotes, **arguments)


class Message(vn.Schema):
    sender: vn.String
    at: vn.Int64
    text: vn.String


def test_texts_go_through_joins_along_time() -> None:
    app = vn.App("t")
    one = app.source("one", Message)
    two = app.source("two", Message).rename(at="then", text="said")
    app.view("asof", one.as_of_join(two, on="sender", left_time="at", right_time="then", how="left"))
    app.view(
        "near", one.interval_join(two, on="sender", left_time="at", right_time="then", lower=0, upper=5, how="left")
    )
    long = "a text that is too long for its words: "
    with vn.testing.run(app, workers=2) as t:
        t.insert("one", (long + "ann", 10, "short"), at=1)
        t.insert("one", ("bob", 10, long + "0"), at=1)
        for letter in "caedb":
            t.insert("two", (long + "ann", 10, long + letter), at=1)
        t.finish()
        # Of several at one time the greatest in the order of what they hold.
        assert t.rows("asof") == [
            (long + "ann", 10, "short", 10, long + "e"),
            ("bob", 10, long + "0", None, None),
        ]
        assert t.rows("near") == [
            *((long + "ann", 10, "short", 10, long + letter) for letter in "abcde"),
            ("bob", 10, long + "0", None, None),
        ]
