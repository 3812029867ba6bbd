"""States that go on under another plan: answers are those of a program that was there from the start."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest

import vernier as vn
from tests.oracle.model import Change, collection_at
from tests.programs.snapshots import graph
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.migrate import plan_migration
from vernier.operators.failures import NeedsHistory
from vernier.operators.language.collection.bundle import bundle
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import CLOSED, MIN_TIME, Updates


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    node: vn.Int64


def sources(name: str) -> tuple[vn.App, vn.Collection, vn.Collection]:
    app = vn.App(name)
    return app, app.source("edges", Edge), app.source("roots", Root)


def reach(name: str = "reach", view: str = "reach") -> vn.App:
    app, edges, roots = sources(name)

    @vn.fixpoint
    def spread(seen: vn.Collection) -> vn.Collection:
        return vn.union(roots, seen.join(edges, left_on="node", right_on="src").select(node=col("dst"))).distinct()

    app.view(view, spread(roots))
    return app


def known() -> vn.App:
    """People you may know, distances, and a view with a held queue."""
    app, edges, roots = sources("known")
    other = edges.rename(dst="friend")
    app.view("pairs", edges.join(other, on="src").filter(col("dst") != col("friend")).select("dst", "friend"))
    app.view("degrees", edges.filter(col("src") != col("dst")).group_by("src").agg(n=vn.count()), key=["src"])
    start = roots.with_columns(dist=0)

    @vn.fixpoint
    def near(found: vn.Collection) -> vn.Collection:
        step = found.join(edges, left_on="node", right_on="src").select(node=col("dst"), dist=col("dist") + 1)
        return vn.union(start, step).group_by("node").agg(dist=vn.min("dist"))

    app.view("near", near(start), key=["node"])
    return app


def lasting() -> vn.App:
    app, edges, _ = sources("lasting")
    base = 1_700_000_000_000_000_000
    spans = edges.with_columns(since=col("src") * 3_000 + base, until=col("src") * 3_000 + col("dst") * 2_000 + base)
    app.view("now", spans.valid_between("since", "until").select("src", "dst"))
    return app


def delayed() -> vn.App:
    app, edges, _ = sources("delayed")
    app.view("later", edges.delay(10))
    return app


def looked_up() -> vn.App:
    app, edges, roots = sources("looked_up")
    app.view("found", edges.lookup(roots.rename(node="src"), on="src"))
    return app


Inputs = Mapping[str, Sequence[Change]]


def between(app: vn.App, inputs: Inputs, lower: int, upper: int) -> dict[str, Updates]:
    """The updates of an epoch."""
    found = {}
    for name, source in app.sources.items():
        chosen = [change for change in inputs[name] if lower <= change[1] < upper]
        words = source.schema.encode_rows(row for row, _, _ in chosen)
        found[name] = Updates.of(words.reshape(-1, source.schema.width), [c[1] for c in chosen], [c[2] for c in chosen])
    return found


def history(app: vn.App, changes: Mapping[str, Updates]) -> dict[str, list[Change]]:
    """Changes of views as rows."""
    found = {}
    for name, updates in changes.items():
        rows = app.views[name].node.schema.decode_rows(updates.rows)
        found[name] = list(zip(rows, updates.time.tolist(), updates.diff.tolist(), strict=True))
    return found


def check(before: vn.App, after: vn.App, seed: int, workers: int) -> None:
    """Run `before` for some epochs, then `after` on its state: as `after` would answer had it run from the start."""
    inputs = {"edges": graph(seed, 7, 60), "roots": graph(seed + 1, 7, 10, edge=lambda one: (one.randrange(7),))}
    times = sorted({time for changes in inputs.values() for _, time, _ in changes})
    choose = random.Random(seed)
    change = choose.choice(times[5:-5])
    cuts = [*sorted({*choose.sample(times, 4), change}), CLOSED]
    with LocalEngine(compile_app(after, keep_sources=True), workers) as engine:
        whole = history(after, engine.run_epoch(MIN_TIME, CLOSED, between(after, inputs, MIN_TIME, CLOSED)))
    lower, found = MIN_TIME, dict[str, list[Change]]()
    app = before
    with LocalEngine(compile_app(before, keep_sources=True), workers, slice_updates=choose.choice((4, 1024))) as engine:
        for upper in cuts:
            for name, fresh in history(app, engine.run_epoch(lower, upper, between(app, inputs, lower, upper))).items():
                found.setdefault(name, []).extend(fresh)
            lower = upper
            if upper == change:
                old = engine.workers[0].state
                engine.migrate(compile_app(after, keep_sources=True))
                app, found = after, {}
                kept = set(plan_migration(engine.plan, old.traces).kept)
                assert all(worker.state.traces.keys() == engine.plan.arrangements.keys() for worker in engine.workers)
                assert all(engine.workers[0].state.traces[name].batches == old.traces[name].batches for name in kept)
                for name, view in engine.plan.views.items():
                    rows: list[Change] = []
                    for worker in engine.workers:
                        for batch in worker.state.traces[view.trace].batches:
                            updates = batch.to_updates()
                            decoded = view.schema.decode_rows(updates.rows[:, list(view.words)])
                            rows += zip(decoded, updates.time.tolist(), updates.diff.tolist(), strict=True)
                    assert collection_at(rows, change - 1) == collection_at(whole[name], change - 1), name
    for name in after.views:
        assert sorted(found[name]) == sorted(one for one in whole[name] if one[1] >= change), name


PAIRS: dict[str, Callable[[], tuple[vn.App, vn.App]]] = {
    "the same": lambda: (reach(), reach()),
    "one joins": lambda: (reach(), bundle([reach(), known()])),
    "one joins that waits for times": lambda: (bundle([reach(), known()]), bundle([reach(), known(), lasting()])),
    "one leaves": lambda: (bundle([reach(), known()]), reach()),
    "another name": lambda: (reach(), reach("other", "reached")),
    "twice the same": lambda: (reach(), bundle([reach(), reach("other", "reached")])),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", PAIRS)
def test_answers_go_on(case: str, workers: int) -> None:
    for seed in range(6):
        check(*PAIRS[case](), seed, workers)


def test_what_is_equal_is_kept_and_kept_once() -> None:
    alone = compile_app(reach(), keep_sources=True)
    both = compile_app(bundle([reach(), known()]), keep_sources=True)
    migration = plan_migration(both, alone.arrangements)
    assert set(migration.kept) == set(alone.arrangements)
    assert {trace for trace, _ in migration.sources.values()} <= set(migration.kept)
    twice = compile_app(bundle([reach(), reach("other", "reached")]), keep_sources=True)
    assert len(twice.arrangements) == len(alone.arrangements) + 1
    assert plan_migration(alone, both.arrangements).fresh == ()


def test_what_follows_from_the_past_needs_it() -> None:
    held = compile_app(reach(), keep_sources=True).arrangements
    for late in (delayed(), looked_up()):
        with pytest.raises(NeedsHistory, match="depends on when rows arrived"):
            plan_migration(compile_app(bundle([reach(), late])), held)
    app, edges, roots = sources("other")
    app.view("ends", edges.filter(col("src") > 3).select("dst"))
    app.view("roots", roots)
    with pytest.raises(NeedsHistory, match="no kept arrangement holds all rows of source edges"):
        plan_migration(compile_app(app), [name for name in held if not name.startswith("arrange")])


def test_programs_of_one_bundle_agree() -> None:
    app = vn.App("wrong")

    class Other(vn.Schema):
        src: vn.Int64
        dst: vn.Float64

    app.view("e", app.source("edges", Other))
    with pytest.raises(vn.ProgramError, match="source 'edges' has the columns"):
        bundle([reach(), app])
    with pytest.raises(vn.ProgramError, match="view 'reach' is in two programs"):
        bundle([reach(), reach("again")])
