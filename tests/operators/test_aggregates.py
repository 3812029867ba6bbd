"""All aggregates of all types against plain Python, at every data time, however the updates are cut."""

from __future__ import annotations

import decimal
import math
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import vernier as vn
from vernier.operators.failures import AggregateOverflow, ListTooLong, UserCodeFailed
from vernier.operators.physical import reduce_batched
from vernier.operators.planning import reductions
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import AccumulateOp, BatchedReduceOp, ReduceOp, ReductionOp

LONG = ["long text with one prefix " + end for end in ("a", "b", "ab", "é", "")]
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "Int64": (vn.Int64, [-3, 0, 1, 2, 7, 2**40]),
    "Float64": (vn.Float64, [0.1, 0.2, 0.3, -0.0, 1e300, -1e300, 5e-324, math.inf, -math.inf, math.nan]),
    "Decimal": (vn.Decimal(10, 2), [Decimal("0.01"), Decimal("-7.50"), Decimal("999999.99"), Decimal(0)]),
    "Wide": (vn.Decimal(30, 3), [Decimal("0.001"), Decimal("-7.5"), Decimal("1234567890123456789012.567")]),
    "String": (vn.String, ["", "a", "b", "ab", "é", *LONG]),
    "Bool": (vn.Bool, [True, False]),
    "List": (vn.List(vn.Int64), [[], [1], [1, 2], [2], [-1] * 5]),
    "Struct": (
        vn.Struct(a=vn.Int64 | None, b=vn.String),
        [{"a": a, "b": b} for a in (None, 1) for b in ("x", LONG[0], LONG[3])],
    ),
}
Group = list[tuple[Any, Any, int]]
"""(value, by, multiplicity), value and by may be None."""


def rank(value: Any) -> Any:
    """A sort key: nulls first, NaN last."""
    if isinstance(value, float):
        return (True, value != value, 0.0 if value != value else value)
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return (True, False, tuple((field is not None, 0 if field is None else field) for _, field in value))
    return (value is not None, False, 0 if value is None else flat(value))


def flat(value: Any) -> Any:
    """A value that can be a key of a dictionary."""
    return tuple(value.items()) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value


def copies_of(group: Group) -> Counter[Any]:
    copies: Counter[Any] = Counter()
    for value, _, count in group:
        if count > 0 and value is not None:
            copies[flat(value)] += count
    return copies


def back(value: Any, like: str) -> Any:
    if value is None:
        return None
    return list(value) if like == "List" else dict(value) if like == "Struct" else value


def expected(kind: str, group: Group, like: str) -> Any:
    copies = copies_of(group)
    values = sorted(copies, key=rank)
    weighed = [(value, count) for value, _, count in group if value is not None]
    match kind:
        case "n":
            return sum(count for _, _, count in group)
        case "rows":
            return sum(count for _, count in weighed)
        case "lo":
            return back(values[0], like) if values else None
        case "hi":
            return back(values[-1], like) if values else None
        case "often":
            return back(min(values, key=lambda value: (-copies[value], rank(value))), like) if values else None
        case "different":
            return len(values)
        case "late":
            need, below = Fraction(9, 10) * sum(copies.values()), 0
            for value in values:
                below += copies[value]
                if below >= need:
                    return back(value, like)
            return None
        case "every":
            return [back(value, like) for value in values for _ in range(copies[value])]
        case "each":
            return [back(value, like) for value in values]
        case "first" | "last":
            rows = [(value, by) for value, by, count in group if count > 0 and by is not None]
            if not rows:
                return None
            best = (min if kind == "first" else max)(by for _, by in rows)
            return min((value for value, by in rows if by == best), key=lambda value: rank(flat(value)))
    weighed_sum = total(weighed, like)
    if kind == "total":
        return weighed_sum if weighed else None
    count = sum(count for _, count in weighed)
    return None if count == 0 else mean(weighed, count, like)


def total(weighed: list[tuple[Any, int]], like: str) -> Any:
    if like == "Float64":
        return rounded(weighed, 1)
    with decimal.localcontext(prec=100):
        return sum((value * count for value, count in weighed), Decimal(0) if like != "Int64" else 0)


def rounded(weighed: list[tuple[float, int]], by: int) -> float:
    odd: Counter[float] = Counter()
    exact = Fraction(0)
    for value, count in weighed:
        if math.isfinite(value):
            exact += Fraction(value) * count
        else:
            odd["nan" if value != value else value] += count  # type: ignore[index]
    ups = (odd[math.inf] > 0) or (odd[-math.inf] < 0)
    downs = (odd[math.inf] < 0) or (odd[-math.inf] > 0)
    if odd["nan"] or (ups and downs):  # type: ignore[index]
        return math.nan
    if ups or downs:
        return math.inf if ups == (by > 0) else -math.inf
    return float(exact / by)


def mean(weighed: list[tuple[Any, int]], count: int, like: str) -> Any:
    if like == "Float64":
        return rounded(weighed, count)
    if like == "Int64":
        return float(Fraction(sum(value * many for value, many in weighed), count))
    digits = {"Decimal": 6, "Wide": 7}[like]
    with decimal.localcontext(prec=100):
        exact = sum((value * many for value, many in weighed), Decimal(0)) / count
        return exact.quantize(Decimal(1).scaleb(-digits), rounding=decimal.ROUND_HALF_UP)


AGGREGATES: dict[str, Callable[[], Any]] = {
    "n": lambda: vn.count(),
    "rows": lambda: vn.count("value"),
    "lo": lambda: vn.min("value"),
    "hi": lambda: vn.max("value"),
    "total": lambda: vn.sum("value"),
    "mean": lambda: vn.avg("value"),
    "often": lambda: vn.mode("value"),
    "different": lambda: vn.count_distinct("value"),
    "late": lambda: vn.quantile("value", 0.9),
    "every": lambda: vn.collect_list("value"),
    "each": lambda: vn.collect_set("value"),
    "first": lambda: vn.arg_min("value", "by"),
    "last": lambda: vn.arg_max("value", "by"),
}
FOLLOWING = ("n", "rows", "lo", "hi", "total", "mean")
SUMMING = ("n", "rows", "total", "mean")


def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, Decimal):
            return value.normalize(decimal.Context(prec=50))
        return "nan" if value != value else value

    return tuple(map(plain, row))


@pytest.mark.parametrize("like", VALUES)
@pytest.mark.parametrize("kind_of_operator", [AccumulateOp, ReduceOp, BatchedReduceOp, None])
@pytest.mark.parametrize("seed", range(3))
def test_every_aggregate_of_every_type(
    like: str, kind_of_operator: type[ReductionOp] | None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each operator, and as parts side by side (None)."""
    rng = random.Random(f"{like}{kind_of_operator and kind_of_operator.__name__}{seed}")
    kind, values = VALUES[like]
    schema = type(
        "Rows", (vn.Schema,), {"__annotations__": {"key": vn.Int64, "value": kind | None, "by": vn.Int64 | None}}
    )
    names = (
        [*AGGREGATES]
        if kind_of_operator is BatchedReduceOp
        else [*FOLLOWING]
        if kind_of_operator is ReduceOp
        else [*SUMMING]
        if kind_of_operator is AccumulateOp
        else ["n", "rows", "hi", "mean", "lo"]
    )
    if kind_of_operator is ReduceOp:
        monkeypatch.setattr(reductions, "has_parts", lambda *_: False)
    if like not in ("Int64", "Float64", "Decimal", "Wide"):
        names = [name for name in names if name not in ("total", "mean")]
    app = vn.App("all")
    rows = app.source("s", schema)
    app.view("v", rows.group_by("key").agg(**{name: AGGREGATES[name]() for name in names}), key="key")
    reads = [type(op) for op in compile_app(app).ops if isinstance(op, ReductionOp)]
    parts = [ReduceOp] if like in ("String", "List", "Struct") else [ReduceOp, ReduceOp, AccumulateOp]
    assert reads == (parts if kind_of_operator is None else [kind_of_operator])
    updates = []
    for _ in range(40):
        value = rng.choice([*values, None])
        updates.append(
            ((rng.randrange(2), value, rng.choice([0, 1, 2, None])), rng.randrange(10), rng.choice([1, 1, 2, -1]))
        )
    with (
        vn.testing.run(app, epochs=rng.sample(range(10), 2), workers=rng.choice([1, 2])) as t,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(reduce_batched, "WAVE_ROWS", rng.choice([3, 1 << 16]))
        t.update("s", updates)
        t.finish()
        for at in range(10):
            groups: dict[int, dict[Any, tuple[Any, Any, int]]] = {0: {}, 1: {}}
            for (key, value, by), time, diff in updates:
                if time <= at:
                    value = 0.0 if value == 0 and like == "Float64" else value
                    held = groups[key].get((repr(value), by), (value, by, 0))
                    groups[key][repr(value), by] = (value, by, held[2] + diff)
            truth = []
            for key, members in groups.items():
                group = [row for row in members.values() if row[2] != 0]
                found = {name: expected(name, group, like) for name in names} if group else {}
                if kind_of_operator is AccumulateOp and found:
                    # The group is a vector: the numbers of rows and of values, and their sum.
                    if not any(found[name] for name in ("n", "rows", "total") if name in found):
                        continue
                    if not found["rows"] and not found.get("total"):
                        found |= {"total": None} if "total" in found else {}
                if found:
                    truth.append((key, *found.values()))
            assert [comparable(row) for row in t.rows("v", at=at)] == [comparable(row) for row in truth]


class Sample(vn.Schema):
    key: vn.Int64
    value: vn.Int64
    weight: vn.Float64


def spread(values: Any, counts: Any, offsets: Any) -> Any:
    assert (counts > 0).all()
    return np.maximum.reduceat(values, offsets[:-1]) - np.minimum.reduceat(values, offsets[:-1])


def heaviest(values: Any, weights: Any, counts: Any) -> Any:
    best = 0
    for i in range(len(values)):
        if weights[i] > weights[best]:
            best = i
    return values[best] * counts[best]


@pytest.mark.parametrize("workers", [1, 2])
def test_aggregates_of_the_program(workers: int) -> None:
    vectorised = vn.aggregate(spread, returns=vn.Int64)
    compiled = vn.aggregate(heaviest, returns=vn.Int64, compiled=True)
    app = vn.App("own")
    rows = app.source("s", Sample)
    app.view("v", rows.group_by("key").agg(wide=vectorised("value"), top=compiled("value", "weight"), n=vn.count()))
    (op,) = [op for op in compile_app(app).ops if isinstance(op, BatchedReduceOp)]
    assert op.trace is not None
    with vn.testing.run(app, workers=workers) as t:
        t.update("s", [((1, 5, 0.5), 1, 1), ((1, 9, 0.25), 1, 2), ((2, 7, 1.0), 2, 3), ((1, 9, 0.25), 3, -2)])
        t.insert("s", (3, 1, 1.0), at=4)
        t.update("s", [((3, 1, 1.0), 5, -2)])
        t.finish()
        assert t.rows("v", at=1) == [(1, 4, 5, 3)]
        assert t.rows("v", at=2) == [(1, 4, 5, 3), (2, 0, 21, 3)]
        assert t.rows("v", at=4) == [(1, 0, 5, 1), (2, 0, 21, 3), (3, 0, 1, 1)]
        assert t.rows("v", at=5) == [(1, 0, 5, 1), (2, 0, 21, 3)]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda values, counts, offsets: values / "x", "UFuncTypeError|TypeError"),
        (lambda values, counts, offsets: values[:0], "it returned 0 values for 1 groups"),
        (lambda values, counts, offsets: ["text"], "what it returned is not Int64"),
    ],
)
def test_failures_of_the_programs_aggregates(function: Any, said: str) -> None:
    app = vn.App("fails")
    app.view("v", app.source("s", Sample).group_by("key").agg(x=vn.aggregate(function, returns=vn.Int64)("value")))
    with vn.testing.run(app) as t:
        t.insert("s", (1, 5, 1.0), at=1)
        with pytest.raises(UserCodeFailed, match=said) as caught:
            t.finish()
    assert "test_aggregates.py" in str(caught.value)


@pytest.mark.parametrize("sql", [False, True])
def test_what_does_not_fit_is_of_all_rows_if_there_is_no_key(sql: bool) -> None:
    app = vn.App("big")
    rows = app.source("s", Sample)
    total = app.sql("SELECT sum(value) AS x FROM s") if sql else rows.group_by().agg(x=vn.sum("value"))
    app.view("total", total)
    with vn.testing.run(app) as t:
        t.update("s", [((1, 2**62, 1.0), 1, 3)])
        with pytest.raises(AggregateOverflow, match=r"an aggregate of the group of all rows does not fit"):
            t.finish()


def test_what_does_not_fit_names_the_group() -> None:
    app = vn.App("big")
    rows = app.source("s", Sample)
    app.view("total", rows.group_by("key").agg(x=vn.sum("value")))
    app.view("all", rows.group_by("key", "value").agg(x=vn.collect_list("weight")))
    with vn.testing.run(app) as t:
        t.update("s", [((7, 2**62, 1.0), 1, 1), ((7, 2**62 - 1, 1.0), 1, 1)])
        t.advance(2)
        t.insert("s", (7, 1, 1.0), at=2)
        with pytest.raises(AggregateOverflow, match=r"group by key: an aggregate of the group key=7"):
            t.finish()
    with vn.testing.run(app) as t:
        t.update("s", [((7, 0, 1.0), 1, 2**40)])
        with pytest.raises(ListTooLong, match=r"of the group key=7, value=0 would have 1099511627776 values"):
            t.finish()


def test_shares_of_a_quantile_are_checked() -> None:
    for share in (-0.1, 1.5, True, "half", math.nan):
        with pytest.raises(vn.ProgramError, match="from 0 to 1"):
            vn.quantile("value", share)  # type: ignore[arg-type]
