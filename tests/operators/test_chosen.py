"""Quantiles, modes and their like outside loops, which follow ranks: against a recount at every time."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.recounts import FEW, check, check_cut, drifting, fitting
from tests.profiles import examples
from tests.properties.engine import Between, run
from vernier import col
from vernier.operators.failures import AggregateOverflow
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import BatchedReduceOp, ChosenOp
from vernier.storage.trace import prefix_index

LONG = "a text that is longer than fifteen bytes, "
Row = tuple[int, str, int | None, int]
Log = list[tuple[Row, int, int]]


class Visit(vn.Schema):
    page: vn.Int64
    name: vn.String
    ms: vn.Int64 | None
    user: vn.Int64


SHARES = [Fraction(0), Fraction(1, 3), Fraction(9, 10), Fraction(1)]


def program() -> vn.App:
    app = vn.App("chosen", retain="1us")
    visits = app.source("visits", Visit)
    of = visits.group_by("page")
    app.view("median", visits.select("page", "user").group_by("page").agg(m=vn.median("user")))
    app.view("tail", visits.distinct().group_by("page").agg(n=vn.count(), p=vn.quantile("ms", 0.9), k=vn.count("ms")))
    app.view("null", of.agg(m=vn.median("ms")))
    app.view("mode", of.agg(m=vn.mode("ms")))
    app.view("names", of.agg(m=vn.mode("name"), q=vn.quantile("name", Fraction(1, 3))))
    shares = {f"q{i}": vn.quantile("user", share) for i, share in enumerate(SHARES)}
    app.view("shares", visits.distinct().group_by("page").agg(**shares))
    more = {"n": vn.count(), "known": vn.count("ms"), "least": vn.min("ms"), "most": vn.max("name")}
    app.view("more", of.agg(**more, users=vn.count_distinct("user"), m=vn.mode("user"), q=vn.quantile("ms", 0.9)))
    app.view("again", of.agg(m=vn.median("user")).group_by("m").agg(n=vn.count(), p=vn.mode("page")))
    return app


def quantile(values: Counter[Any], share: Fraction) -> Any:
    """SQL's percentile_disc of values with copies."""
    ordered = sorted(values.elements())
    return ordered[max(math.ceil(len(ordered) * share), 1) - 1] if ordered else None


def mode(values: Counter[Any]) -> Any:
    return min((-copies, value) for value, copies in values.items())[1] if values else None


def truth(rows: Counter[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The views of these rows."""
    found: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in program().views}
    groups: dict[int, dict[tuple[str, int | None, int], int]] = defaultdict(dict)
    users_of: dict[int, Counter[int]] = defaultdict(Counter)
    for (page, *rest), copies in rows.items():
        if copies:
            groups[page][tuple(rest)] = copies  # type: ignore[index]
            users_of[page][rest[2]] += copies  # type: ignore[index]
    for page, copies_of in users_of.items():
        there = Counter({user: copies for user, copies in copies_of.items() if copies > 0})
        if there:
            found["median"][(page, quantile(there, Fraction(1, 2)))] = 1
    medians: dict[int, list[int]] = defaultdict(list)
    for page, group in groups.items():
        names, ms, users, seen = Counter[str](), Counter[int](), Counter[int](), Counter[int]()
        for (name, one, user), copies in group.items():
            if copies > 0:
                names[name] += copies
                users[user] += copies
                seen[user] += 1
                if one is not None:
                    ms[one] += copies
        found["null"][(page, quantile(ms, Fraction(1, 2)))] = 1
        found["mode"][(page, mode(ms))] = 1
        once = Counter(one for (_, one, _), copies in group.items() if copies > 0 and one is not None)
        if any(copies > 0 for copies in group.values()):
            there = sum(copies > 0 for copies in group.values())
            found["tail"][(page, there, quantile(once, Fraction(9, 10)), sum(once.values()))] = 1
        if users:
            found["names"][(page, mode(names), quantile(names, Fraction(1, 3)))] = 1
            found["shares"][(page, *(quantile(seen, share) for share in SHARES))] = 1
            counts = sum(group.values()), sum(copies for (_, one, _), copies in group.items() if one is not None)
            ends = min(ms, default=None), max(names)
            found["more"][(page, *counts, *ends, len(users), mode(users), quantile(ms, Fraction(9, 10)))] = 1
            medians[quantile(users, Fraction(1, 2))].append(page)
    for median, pages in medians.items():
        found["again"][(median, len(pages), min(pages))] = 1
    return found


VISITS = st.lists(
    st.tuples(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(["", "b", LONG + "a", LONG + "b"]),
            st.none() | st.integers(-1, 3),
            st.integers(0, 3),
        ),
        st.integers(0, 8),
        st.sampled_from([1, 1, 1, 2, 3, -1, -2]),
    ),
    max_size=24,
)


@pytest.mark.parametrize("few", FEW)
@given(VISITS, st.sets(st.integers(1, 8), max_size=4), st.integers(1, 2), st.sampled_from(["go on", "reopen"]))
@examples(15)
def test_what_ranks_choose_is_what_the_rows_say(
    few: int | None, log: Log, cuts: set[int], workers: int, between: Between
) -> None:
    check_cut(program(), truth, few, log, cuts, workers, between)


@pytest.mark.parametrize("seed", range(3))
def test_ranks_of_large_groups(seed: int) -> None:
    choose = random.Random(seed)

    def visit() -> Row:
        ms = choose.choice([None, *range(-40, 90)])
        return choose.randrange(2), choose.choice(["b", LONG + "a"]), ms, choose.randrange(300)

    log = drifting(choose, visit, 200, 60, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_index, "_READ", 1)
        check(run(program(), {"visits": log}, cuts=(1, 20, 21, 40), slice_updates=5), log, truth)
        check(run(fitting(program()), {"visits": log}, cuts=(1, 20, 21, 40), slice_updates=5), log, truth)


def test_groups_of_many_values() -> None:
    choose = random.Random(5)
    log: Log = []
    held: list[Row] = []
    for at in range(300):
        if held and choose.random() < 0.4:
            log.append((held.pop(choose.randrange(len(held))), at // 2, -1))
        else:
            row = (choose.randrange(2), choose.choice(["b", LONG + "a"]), choose.randrange(60), choose.randrange(50))
            held.append(row)
            log.append((row, at // 2, 1))
    check(run(program(), {"visits": log}, cuts=(40, 41, 90), slice_updates=64), log, truth)


def test_no_group_is_read_by_a_function_of_whole_groups() -> None:
    plan = compile_app(program())
    assert plan.of(ChosenOp)
    assert not plan.of(BatchedReduceOp)


def test_copies_that_do_not_fit_are_refused() -> None:
    app = vn.App("far")
    app.view("median", app.source("visits", Visit).group_by("page").agg(m=vn.median("user")))
    rows = [((1, "", 0, user), 5, 2**62) for user in range(2)]
    with pytest.raises(AggregateOverflow, match="page=1"):
        run(app, {"visits": rows})
    # At the end of each time they fit.
    gone = [*rows, ((1, "", 0, 1), 6, -(2**62)), ((1, "", 0, 2), 6, 2**62), ((1, "", 0, 0), 5, -1)]
    assert run(app, {"visits": gone})["median"] == [((1, 1), 5, 1), ((1, 1), 6, -1), ((1, 2), 6, 1)]


def test_medians_of_expressions() -> None:
    app = vn.App("doubled")
    app.view("median", app.source("visits", Visit).group_by("page").agg(m=vn.median(col("user") * 2)))
    assert run(app, {"visits": [((1, "", None, 4), 1, 1)]})["median"] == [((1, 8), 1, 1)]
