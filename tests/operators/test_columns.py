"""Columns of sources that change: each answer is that of a service that had read all rows in the new columns."""

from __future__ import annotations

import decimal
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import vernier as vn
from tests.operators.test_changes import held
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.migrate import Held, plan_migration
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import Updates

Rows = list[tuple[dict[str, Any], int, int]]
"""Rows by name, with their times and diffs."""


class Old(vn.Schema):
    account: vn.Int64
    kind: vn.Int64
    spent: vn.Int64


class AtTheEnd(vn.Schema):
    account: vn.Int64
    kind: vn.Int64
    spent: vn.Int64
    note: vn.String | None


class InTheMiddle(vn.Schema):
    account: vn.Int64
    place: vn.Int64 | None
    kind: vn.Int64
    spent: vn.Int64


class WithDefault(vn.Schema):
    account: vn.Int64
    kind: vn.Int64
    place: vn.Int64 = vn.column(default=7)
    spent: vn.Int64


class Dropped(vn.Schema):
    account: vn.Int64
    spent: vn.Int64


class Renamed(vn.Schema):
    owner: vn.Int64 = vn.column(was="account")
    kind: vn.Int64
    spent: vn.Int64


class Wider(vn.Schema):
    account: vn.Int64
    kind: vn.Int64
    spent: vn.Decimal(12, 2)


class Nullable(vn.Schema):
    account: vn.Int64
    kind: vn.Int64 | None
    spent: vn.Int64


class Together(vn.Schema):
    spent: vn.Decimal(20, 3) | None = vn.column(was="spent")
    owner: vn.Int64 = vn.column(was=("account", "id"))
    day: vn.Date | None
    rate: vn.Float64 = vn.column(default=0.5)


SCHEMAS = (AtTheEnd, InTheMiddle, WithDefault, Dropped, Renamed, Wider, Nullable, Together)


class Link(vn.Schema):
    account: vn.Int64
    payer: vn.Int64


def program(schema: type[vn.Schema], views: Sequence[str]) -> vn.App:
    """A program whose views use what they find: `key` is the column of accounts under its present name."""
    app = vn.App("bank", retain=60)
    uses, links = app.source("uses", schema), app.source("links", Link)
    key = "owner" if "owner" in uses.columns else "account"
    made: dict[str, Callable[[], vn.Collection]] = {
        "counts": lambda: uses.group_by(key).agg(n=vn.count()).rename(**({key: "id"})),
        "sums": lambda: uses.group_by(key).agg(total=vn.sum("spent")),
        "most": lambda: uses.group_by(key).agg(most=vn.max("spent")),
        "large": lambda: uses.filter(col(key) > 3).select(key),
        "paid": lambda: uses.rename(**{key: "account"}).join(links, on="account").select("payer", "account"),
        "all": lambda: uses,
        "owners": lambda: uses.select(key).distinct(),
        "later": lambda: uses.select(key).delay(5),
        "some": lambda: uses.select("spent").distinct(),
    }
    if key == "account":
        made["paid"] = lambda: uses.join(links, on="account").select("payer", "account")
        made["counts"] = lambda: uses.group_by("account").agg(n=vn.count()).rename(account="id")
    for name in views:
        app.view(name, made[name]())
    return app


VIEWS = ("counts", "sums", "most", "large", "paid", "all", "owners", "later", "some")


def old_rows(chance: random.Random, count: int, lower: int, upper: int) -> Rows:
    rows: Rows = []
    for _ in range(count):
        at = chance.randrange(lower, upper)
        row = {"account": chance.randrange(7), "kind": chance.randrange(3), "spent": chance.randrange(-5, 9)}
        rows.append((row, at, 1))
        if chance.random() < 0.4:
            rows.append((row, chance.randrange(at, upper), -1))
    return rows


def converted(row: Mapping[str, Any], schema: type[vn.Schema]) -> dict[str, Any]:
    """A former row in the present columns, by hand."""
    values = {**row, "owner": row["account"], "place": 7 if schema is WithDefault else None}
    values |= {"note": None, "day": None, "rate": 0.5}
    if schema in (Wider, Together):
        values["spent"] = decimal.Decimal(row["spent"])
    return {name: values[name] for name in schema.row_type.names}


def updates(rows: Rows, row_type: RowType, lower: int, upper: int) -> Updates:
    mine = [(row, at, diff) for row, at, diff in rows if lower <= at < upper]
    words = row_type.encode_rows([row for row, _, _ in mine]).tolist()
    data = [[*row, at, diff] for row, (_, at, diff) in zip(words, mine, strict=True)]
    return Updates(np.array(data, np.int64).reshape(-1, row_type.width + 2), row_type.width, 0)


def run(engine: LocalEngine, uses: Rows, links: Rows, lower: int, upper: int) -> None:
    given = {"uses": uses, "links": links}
    rows = {name: updates(given[name], row, lower, upper) for name, row in engine.plan.sources.items()}
    engine.run_epoch(lower, upper, rows)


def as_of(app: vn.App, uses: Rows, links: Rows, upper: int) -> dict[str, list[list[int]]]:
    """All changes of all views, by a service that read everything in these columns."""
    with LocalEngine(compile_app(app)) as engine:
        given = {"uses": uses, "links": links}
        rows = {name: updates(given[name], row, 0, upper) for name, row in engine.plan.sources.items()}
        return {name: found.data.tolist() for name, found in engine.run_epoch(0, upper, rows).items()}


def compare(engine: LocalEngine, app: vn.App, uses: Rows, links: Rows, upper: int, least: int = 0) -> None:
    whole = as_of(app, uses, links, upper)
    for name in app.views:
        since = engine.workers[0].state.traces[engine.plan.views[name].trace].since
        times = {at for *_, at, _ in whole[name] if max(since, least) <= at < upper} | {max(since, least), upper - 1}
        for at in sorted(times)[:3] + sorted(times)[-3:]:
            wanted: Counter[tuple[int, ...]] = Counter()
            for *row, when, diff in whole[name]:
                if when <= at:
                    wanted[tuple(row)] += diff
            assert held(engine, name, at) == {row: n for row, n in wanted.items() if n}, (name, at)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.__name__)
@pytest.mark.parametrize("workers", [1, 2])
def test_answers_are_those_of_a_service_that_read_the_new_columns(schema: type[vn.Schema], workers: int) -> None:
    chance = random.Random(workers)
    uses = old_rows(chance, 120, 0, 100)
    links: Rows = [
        ({"account": chance.randrange(7), "payer": chance.randrange(5)}, chance.randrange(100), 1) for _ in range(12)
    ]
    views = [name for name in VIEWS if name != "some" or "spent" in schema.row_type]
    with LocalEngine(compile_app(program(Old, views), keep_sources=True), workers) as engine:
        for lower in (0, 50, 80):
            run(engine, uses, links, lower, {0: 50, 50: 80, 80: 100}[lower])
        app = program(schema, views)
        engine.migrate(compile_app(app, keep_sources=True))
        rows = [(converted(row, schema), at, diff) for row, at, diff in uses]
        compare(engine, app, rows, links, 100)
        rows += [(converted(row, schema), at, diff) for row, at, diff in old_rows(chance, 40, 100, 160)]
        run(engine, rows, links, 100, 140)
        compare(engine, app, rows, links, 140)
        run(engine, rows, links, 140, 160)
        compare(engine, app, rows, links, 160)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.__name__)
def test_what_does_not_read_a_changed_column_keeps_its_state_and_its_history(schema: type[vn.Schema]) -> None:
    """Without any row of the source: a count keeps numbers alone."""
    views = ("counts", "owners", "large")
    plan, held = compile_app(program(schema, views)), Held.by(compile_app(program(Old, views)), 1_000)
    if schema in (Renamed, Together):
        # The columns of two views have other names, and mean the same.
        views = ("counts",)
    migration = plan_migration(plan, held)
    assert not migration.fresh
    assert not migration.given
    assert not migration.dropped
    assert set(migration.renamed) == set(plan.arrangements)
    for name in views:
        assert plan.views[name].trace in migration.renamed


@pytest.mark.parametrize("schema", [InTheMiddle, Renamed, Wider], ids=lambda schema: schema.__name__)
def test_a_source_that_keeps_its_history_keeps_it(schema: type[vn.Schema]) -> None:
    def app_of(columns: type[vn.Schema], *views: str) -> vn.App:
        app = vn.App("bank", retain=20)
        uses = app.source("uses", columns, retain=50)
        key = "owner" if "owner" in uses.columns else "account"
        app.view("counts", uses.group_by(key).agg(n=vn.count()))
        if "sums" in views:
            app.view("sums", uses.group_by(key).agg(total=vn.sum("spent")))
        return app

    uses = old_rows(random.Random(3), 80, 0, 100)
    with LocalEngine(compile_app(app_of(Old))) as engine:
        engine.run_epoch(0, 100, {"uses": updates(uses, Old.row_type, 0, 100)})
        app = app_of(schema, "sums")
        engine.migrate(compile_app(app))
        (since,) = {engine.workers[0].state.traces[view.trace].since for view in engine.plan.views.values()}
        assert since == 80
        compare(engine, app, [(converted(row, schema), at, diff) for row, at, diff in uses], [], 100)


def test_newest_rows_by_key_follow_the_columns() -> None:
    """A source of upserts: its trace has the rows, and the next upsert of a key finds the former one."""

    def app_of(columns: type[vn.Schema]) -> vn.App:
        app = vn.App("bank", retain=60)
        app.view("all", app.source("uses", columns))
        return app

    def upserted(rows: Rows, row_type: RowType) -> Updates:
        found = updates(rows, row_type, 0, 1_000)
        found.data[:, -1] = np.arange(1, len(found) + 1)
        return found

    first: Rows = [({"account": n, "kind": n, "spent": 10 * n}, 5, 1) for n in range(4)]
    second: Rows = [({"owner": n, "spent": decimal.Decimal(7), "day": None, "rate": 2.0}, 105, 1) for n in (1, 5)]
    with LocalEngine(compile_app(app_of(Old), upserts={"uses": ["account"]})) as engine:
        engine.run_epoch(0, 100, {"uses": upserted(first, Old.row_type)})
        engine.migrate(compile_app(app_of(Together), upserts={"uses": ["owner"]}))
        row_type = Together.row_type
        before = [converted(row, Together) for row, _, _ in first]
        wanted = {tuple(row): 1 for row in row_type.encode_rows(before).tolist()}
        assert held(engine, "all", 99) == wanted
        engine.run_epoch(100, 200, {"uses": upserted(second, row_type)})
        after = [row for row in before if row["owner"] != 1] + [row for row, _, _ in second]
        assert held(engine, "all", 199) == {tuple(row): 1 for row in row_type.encode_rows(after).tolist()}
        assert held(engine, "all", 99) == wanted
