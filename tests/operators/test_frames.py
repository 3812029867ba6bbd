"""Sums over frames of rows, of which a change reads what is around the rows that it changes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.recounts import BETWEEN, CUTS, FEW, WORKERS, check, check_cut, drifting, fitting, logs
from tests.profiles import examples
from tests.properties.engine import Between, run
from vernier.operators.failures import AggregateOverflow
from vernier.operators.group_functions.frames import FrameSums
from vernier.operators.language.collection.ordering import grouped_by
from vernier.operators.physical import reduce_base

LONG = "a text that is longer than fifteen bytes, "
Row = tuple[int, str, int, Decimal]
Log = list[tuple[Row, int, int]]
FRAMES = {
    "before": ((("rank", False),), -2, 0),
    "around": ((("rank", False), ("price", False)), -1, 1),
    "behind": ((("rank", True),), 1, 2),
    "far": ((("price", True), ("rank", True)), -4, -2),
    "mixed": ((("rank", False), ("price", True)), 0, 2),
    "texts": ((("name", False),), -1, 0),
    "none": ((("rank", False),), 1, 0),
}


class Event(vn.Schema):
    key: vn.Int64
    name: vn.String
    rank: vn.Int64
    price: vn.Decimal(12, 2)


def program() -> vn.App:
    app = vn.App("frames", retain="1us")
    events = app.source("events", Event)
    for name, (by, first, last) in FRAMES.items():
        spec = FrameSums(by, "a", ("b",), ("rank", "price"), first, last)
        app.view(name, events._of(grouped_by(events.node, ("key",), spec)))
    plain = events.select("key", "rank", "price")
    by, first, last = FRAMES["around"]
    spec = FrameSums(by, "a", ("b",), ("rank", "price"), first, last)
    app.view("plain", plain._of(grouped_by(plain.node, ("key",), spec)))
    return app


def truth(rows: Counter[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The views of these rows."""
    found: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in (*FRAMES, "plain")}
    groups: dict[int, Counter[Any]] = defaultdict(Counter)
    plain: dict[int, Counter[Any]] = defaultdict(Counter)
    for (key, *row), copies in rows.items():
        groups[key][tuple(row)] += copies
        plain[key][tuple(row[1:])] += copies

    def summed(
        view: str, order: Callable[[Any], Any], of: dict[int, Counter[Any]] = groups, frame: str | None = None
    ) -> None:
        _, first, last = FRAMES[frame or view]
        for key, group in of.items():
            copies = [row for row in sorted(group, key=order) for _ in range(group[row])]
            for at, row in enumerate(copies):
                inside = [one for i, one in enumerate(copies) if first <= i - at <= last]
                total = sum((one[-1] for one in inside), Decimal(0))
                found[view][(key, *row, sum(one[-2] for one in inside), total)] += 1

    summed("before", lambda r: (r[1], r[0], r[2]))
    summed("around", lambda r: (r[1], r[2], r[0]))
    summed("behind", lambda r: (-r[1], r[0], r[2]))
    summed("far", lambda r: (-r[2], -r[1], r[0]))
    summed("mixed", lambda r: (r[1], -r[2], r[0]))
    summed("texts", lambda r: (r[0], r[1], r[2]))
    summed("none", lambda r: (r[1], r[0], r[2]))
    summed("plain", lambda r: r, plain, "around")
    return found


EVENTS = logs(
    st.integers(0, 1),
    st.sampled_from(["", LONG + "a", LONG + "b"]),
    st.integers(-1, 4),
    st.sampled_from([Decimal("-1.25"), Decimal("0.50"), Decimal("9999999999.99")]),
)


@pytest.mark.parametrize("few", FEW)
@given(EVENTS, CUTS, WORKERS, BETWEEN)
@examples(15)
def test_sums_of_frames_are_those_of_the_rows(
    few: int | None, log: Log, cuts: set[int], workers: int, between: Between
) -> None:
    check_cut(program(), truth, few, log, cuts, workers, between)


@pytest.mark.parametrize("seed", range(2))
def test_changes_far_from_each_other_in_large_groups(seed: int) -> None:
    choose = random.Random(seed)

    def event() -> Row:
        return 0, choose.choice(["b", LONG]), choose.randrange(300), Decimal(choose.randrange(400)) / 4

    log = drifting(choose, event, 150, 50, 3)
    check(run(program(), {"events": log}, cuts=(1, 20, 21, 40), slice_updates=5), log, truth)
    check(run(fitting(program()), {"events": log}, cuts=(1, 20, 21, 40), slice_updates=5), log, truth)


class Weight(vn.Schema):
    key: vn.Int64
    at: vn.Int64
    weight: vn.Int64


def test_rows_that_are_no_neighbours_are_not_added() -> None:
    """Between the parts that a change reads, rows are missing; sums across the gap do not fit, and no row has them."""
    app = vn.App("gap", retain="1us")
    rows = app.source("rows", Weight)
    spec = FrameSums((("at", False),), "a", (), ("weight",), -1, 0)
    app.view("sums", rows._of(grouped_by(rows.node, ("key",), spec)))
    large = 2**62
    log = [((0, 10 * at, large if at % 2 else -large), 0, 1) for at in range(99)]
    log += [((0, 205, 0), 1, 1), ((0, 615, 0), 1, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce_base, "suppress", lambda _: nullcontext())
        with pytest.raises(AggregateOverflow):
            run(app, {"rows": log}, cuts=(1,))
    held = Counter[tuple[int, ...]]()
    for row, _, diff in run(app, {"rows": log}, cuts=(1,))["sums"]:
        held[row] += diff
    ordered = sorted(row for row, _, _ in log)
    wanted = [(*row, row[2] + (before[2] if before else 0)) for before, row in zip([None, *ordered], ordered)]
    assert {row for row, copies in held.items() if copies} == set(wanted)
    with pytest.raises(AggregateOverflow):
        run(app, {"rows": [*log, ((0, 215, large), 2, 1)]}, cuts=(1, 2))
