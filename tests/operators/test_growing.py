"""What looks back in time, and loops, in a program that changes: each grows, exactly, or is refused with why."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import vernier as vn
from tests.operators.changes import Link, Use, reach
from tests.operators.test_changes import expected, random_log, run
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.migrate import Held, plan_migration, try_migration
from vernier.operators.planning.planner import compile_app


def delayed(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.group_by("account").agg(n=vn.count()).delay(9)


def coarse(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.group_by("account").agg(n=vn.count()).coarsen(9)


def long_delayed(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.group_by("account").agg(n=vn.count()).delay(41)


def looked_up(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.lookup(links, on="account").select("payer", "spent")


def of_a_variable(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    gone = vn.Variable("gone", Use, delay=5)
    left = vn.union(uses, gone.negate())
    gone.set(left.filter(col("spent") > 50))
    return left.select("account", "spent")


Build = Callable[[vn.Collection, vn.Collection], vn.Collection]
GROW: dict[str, Build] = {"delay": delayed, "coarsen": coarse, "a loop": reach}
REFUSED: dict[str, tuple[Build, str]] = {
    "a long delay": (long_delayed, "depends on when rows came in the last 4.1e-08 s"),
    "lookup": (looked_up, "depends on all that the rows below it were in the past"),
    "a variable": (of_a_variable, "depends on all that the rows below it were in the past"),
}


def program(*views: Build) -> vn.App:
    """A program with these views besides one that counts."""
    app = vn.App("bank", retain=40)
    uses, links = app.source("uses", Use), app.source("links", Link)
    app.view("counts", uses.group_by("account").agg(n=vn.count()))
    for build in views:
        app.view(build.__name__, build(uses, links))
    return app


@pytest.mark.parametrize("what", GROW)
@pytest.mark.parametrize("workers", [1, 2])
def test_it_grows_and_answers_as_if_it_had_been_there(what: str, workers: int) -> None:
    log = random_log(random.Random(workers), 150, 6, 200)
    with LocalEngine(compile_app(program(), keep_sources=True), workers) as engine:
        run(engine, log, 0, 80)
        app = program(GROW[what])
        engine.prepare(compile_app(app, keep_sources=True))
        while not engine.fill(7):
            pass
        engine.switch()
        expected(app, log, 80, engine)
        for lower in (80, 120, 160):
            run(engine, log, lower, lower + 40)
            expected(app, log, lower + 40, engine)


@pytest.mark.parametrize("what", REFUSED)
def test_what_depends_on_the_whole_past_is_refused_with_the_reason(what: str) -> None:
    build, why = REFUSED[what]
    held = Held.by(compile_app(program(), keep_sources=True), 1_000)
    _, refused = try_migration(compile_app(program(build), keep_sources=True), held)
    assert refused
    assert all(why in reason for reason in refused.values()), refused
    assert any("test_growing.py:" in reason for reason in refused.values())


@pytest.mark.parametrize("what", [*GROW, *REFUSED])
def test_it_is_kept_when_others_come_and_go(what: str) -> None:
    """Once it runs, a change elsewhere in the program takes nothing from it."""
    build = GROW[what] if what in GROW else REFUSED[what][0]
    before = compile_app(program(build), keep_sources=True)
    app = program(build)
    app.view("kinds", vn.Collection(app.sources["uses"]).select("kind"))
    after = compile_app(app, keep_sources=True)
    migration = plan_migration(after, Held.by(before, 1_000))
    assert set(before.arrangements) | set(before.queues) <= set(migration.kept)
    assert [name for name in migration.fresh if not name.startswith("view-kinds")] == []
