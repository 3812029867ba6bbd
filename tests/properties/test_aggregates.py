"""Every aggregate of columns of every type: exact, with nulls, rows that are not present and groups that cancel."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.oracle.model import changes_of
from tests.oracle.plan import Aggregate, Group, Kind, Node, Project, Row, Source, columns, item
from tests.profiles import examples
from tests.properties.engine import run
from tests.properties.values import KINDS, moving, plain

T = Source("t")
"""A key a, a value v that may be null, a value s that may not, and something b to go by."""
V, S, B = item(1), item(2), item(3)
NAMES = {1: "v", 2: "s"}
PLAIN: tuple[Kind, ...] = ("count", "min", "max", "mode", "count_distinct", "collect_list", "collect_set")


def both(kind: Kind, product: Any) -> dict[str, tuple[Aggregate, vn.Expr]]:
    """An aggregate of the column with nulls and of the one without, in both languages."""
    return {
        f"{kind}_{name}": (Aggregate(kind, item(at), at == 1 or kind == "avg"), product(name))
        for at, name in NAMES.items()
    }


def aggregates(summed: bool) -> dict[str, tuple[Aggregate, Any]]:
    """All aggregates by name; those that are left out when their group has no present row stand alone."""
    made: dict[str, tuple[Aggregate, Any]] = {"n": (Aggregate("count"), vn.count())}
    for kind in PLAIN:
        made |= both(kind, getattr(vn, kind))
    for at in (0, 0.25, 0.5, 0.9, 1):
        share = Fraction(str(at))
        made[f"q{str(at).replace('.', '_')}"] = (Aggregate("quantile", V, True, at=share), vn.quantile("v", at))
    made["median"] = (Aggregate("quantile", S, False), vn.median("s"))
    made["first"] = (Aggregate("arg_min", V, True, by=B), vn.arg_min("v", "b"))
    made["last"] = (Aggregate("arg_max", S, True, by=B), vn.arg_max("s", by="b"))
    made["greatest"] = (Aggregate("arg_max", B, True, by=V), vn.arg_max("b", by="v"))
    if summed:
        made |= both("sum", vn.sum) | both("avg", vn.avg)
    return made


def half_up(value: Any, kind: str) -> Any:
    """A mean of decimals has four digits more than they."""
    digits = {"decimal": 6, "wide": 16}
    if kind not in digits or value is None:
        return value
    with localcontext(prec=100):
        exact = Decimal(value.numerator) / Decimal(value.denominator)
        return exact.quantize(Decimal(1).scaleb(-digits[kind]), ROUND_HALF_UP)


def group(aggregate: Aggregate, key: Any, kind: str) -> Node:
    """The oracle's group; means of decimals rounded as they are."""
    if aggregate.kind != "avg" or kind not in ("decimal", "wide"):
        return Group(T, key, (aggregate,))
    exact = Group(T, key, (Aggregate("sum", aggregate.value, True), Aggregate("count", aggregate.value)))

    def mean(row: Row) -> Row:
        *keys, total, count = row
        return (*keys, half_up(Fraction(total) / count if count else None, kind))

    return Project(exact, mean)


@cache
def program(kind: str) -> tuple[vn.App, dict[str, Node]]:
    """A view for each aggregate by a, and all those that always have a result together, by a and of all rows."""
    of = KINDS[kind].type
    annotations = {"a": vn.Int64, "v": of | None, "s": of, "b": vn.Int64 | None}
    app = vn.App("aggregates")
    t = app.source("t", type("Rows", (vn.Schema,), {"__annotations__": annotations}))
    plans: dict[str, Node] = {}
    made = aggregates(KINDS[kind].summed)
    for name, (aggregate, product) in made.items():
        app.view(name, t.group_by("a").agg(x=product))
        plans[name] = group(aggregate, columns(0), kind)
    chosen = [name for name, (one, _) in made.items() if one.nullable and one.kind != "avg"]
    together = tuple(made[name][0] for name in chosen)
    app.view("together", t.group_by("a").agg(**{name: made[name][1] for name in chosen}))
    plans["together"] = Group(T, columns(0), together)
    app.view("whole", t.group_by().agg(**{name: made[name][1] for name in chosen}))
    plans["whole"] = Group(T, columns(), together)
    return app, plans


@pytest.mark.parametrize("kind", KINDS)
@examples(20)
@given(data=st.data(), cuts=st.lists(st.integers(0, 6), max_size=3), workers=st.integers(1, 2))
def test_aggregates_of_each_type(kind: str, data: st.DataObject, cuts: list[int], workers: int) -> None:
    values = KINDS[kind].values
    row = st.tuples(st.integers(0, 1), st.one_of(st.none(), values, values), values, st.sampled_from((None, 0, 1)))
    updates = data.draw(moving(row, 12))
    app, plans = program(kind)
    found = run(app, {"t": updates}, cuts=cuts, workers=workers, slice_updates=3)
    expected = changes_of(plans, {"t": plain(updates)})
    for name in plans:
        assert found[name] == expected[name], name
