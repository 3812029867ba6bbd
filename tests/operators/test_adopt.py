"""States that go on under another plan: answers are those of a program that was there from the start."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import pytest

import vernier as vn
from tests.oracle.model import Change, collection_at
from tests.programs.snapshots import graph
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.migrate import Held, plan_migration
from vernier.operators.engine.worker import WorkerState
from vernier.operators.failures import NeedsHistory
from vernier.operators.language.collection.bundle import bundle
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import CLOSED, MIN_TIME, Updates


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    node: vn.Int64


def sources(name: str, *, retain: str | int = "10m") -> tuple[vn.App, vn.Collection, vn.Collection]:
    app = vn.App(name, retain=retain)
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


def popular() -> vn.App:
    """Follows from the rows of a view of `known`."""
    app, edges, roots = sources("popular")
    degrees = edges.filter(col("src") != col("dst")).group_by("src").agg(n=vn.count())
    app.view("popular", degrees.filter(col("n") > 2).join(roots, left_on="src", right_on="node"))
    app.view("by_degree", degrees.group_by("n").agg(nodes=vn.count()), key=["n"])
    return app


def delayed() -> vn.App:
    app, edges, _ = sources("delayed")
    app.view("later", edges.delay(10))
    return app


def keeping(retain: int, history: int) -> vn.App:
    """Sources that keep a history, and a view that keeps less of it."""
    app = vn.App("keeping", retain=retain)
    edges, roots = app.source("edges", Edge, retain=history), app.source("roots", Root, retain=history)
    app.view("ends", edges.filter(col("src") > 3).join(roots, left_on="dst", right_on="node").select("dst"))
    return app


def joining(retain: int) -> vn.App:
    """Programs that need history, and so can join only where sources keep it."""
    app, edges, roots = sources("joining", retain=retain)
    app.view("later", edges.delay(3).group_by("src").agg(n=vn.count()), key=["src"])
    app.view("slots", roots.coarsen(4))
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


def check(before: vn.App, after: vn.App, seed: int, workers: int, pieces: int | None = None) -> None:
    """Run `before` for some epochs, then `after` on its state: as `after` would answer had it run from the start.

    pieces: fill what is new with this number of rows a worker after each epoch of `before`; switch when all is there.
    """
    inputs = {"edges": graph(seed, 7, 60), "roots": graph(seed + 1, 7, 10, edge=lambda one: (one.randrange(7),))}
    times = sorted({time for changes in inputs.values() for _, time, _ in changes})
    choose = random.Random(seed)
    begin = choose.choice(times[5 : len(times) // 2])
    cuts = [*sorted({*choose.sample(times, 12), begin}), times[-1] + 1, CLOSED]
    wholes = {}
    for app in (before, after):
        with LocalEngine(compile_app(app, keep_sources=True), workers) as engine:
            wholes[app] = history(app, engine.run_epoch(MIN_TIME, CLOSED, between(app, inputs, MIN_TIME, CLOSED)))
    lower, found, switched = MIN_TIME, dict[str, list[Change]](), MIN_TIME
    app, plan = before, compile_app(after, keep_sources=True)
    with LocalEngine(compile_app(before, keep_sources=True), workers, slice_updates=choose.choice((4, 1024))) as engine:
        for upper in cuts:
            for name, fresh in history(app, engine.run_epoch(lower, upper, between(app, inputs, lower, upper))).items():
                found.setdefault(name, []).extend(fresh)
            lower = upper
            if upper == begin:
                engine.prepare(plan)
            ready = begin <= upper and app is before and (pieces is None or engine.fill(pieces))
            if ready or (app is before and upper == times[-1] + 1):
                for name in before.views:
                    assert sorted(found[name]) == sorted(one for one in wholes[app][name] if one[1] < upper), name
                old = engine.workers[0].state
                engine.switch()
                app, found, switched = after, {}, upper
                compare_switched(engine, old, plan, wholes[after], upper)
    assert app is after
    for name in after.views:
        assert sorted(found[name]) == sorted(one for one in wholes[after][name] if one[1] >= switched), name


def compare_switched(
    engine: LocalEngine, old: WorkerState, plan: Plan, whole: Mapping[str, list[Change]], upper: int
) -> None:
    """What is equal is kept as it is, and each view has its rows at each time that its trace tells apart."""
    kept = set(plan_migration(plan, Held.of(old)).kept)
    assert all(worker.state.traces.keys() == plan.arrangements.keys() for worker in engine.workers)
    traces = kept & old.traces.keys()
    assert all(engine.workers[0].state.traces[name].batches == old.traces[name].batches for name in traces)
    for name, view in engine.plan.views.items():
        rows: list[Change] = []
        since = {worker.state.traces[view.trace].since for worker in engine.workers}
        for worker in engine.workers:
            for batch in worker.state.traces[view.trace].batches:
                updates = batch.to_updates()
                decoded = view.schema.decode_rows(updates.rows[:, list(view.words)])
                rows += zip(decoded, updates.time.tolist(), updates.diff.tolist(), strict=True)
        (first,) = since
        for at in {first, upper - 1, *(time for _, time, _ in whole[name] if first <= time < upper)}:
            if at < upper:
                assert collection_at(rows, at) == collection_at(whole[name], at), (name, at)


PAIRS: dict[str, Callable[[], tuple[vn.App, vn.App]]] = {
    "the same": lambda: (reach(), reach()),
    "one joins": lambda: (reach(), bundle([reach(), known()])),
    "one joins that waits for times": lambda: (bundle([reach(), known()]), bundle([reach(), known(), lasting()])),
    "one leaves": lambda: (bundle([reach(), known()]), reach()),
    "another name": lambda: (reach(), reach("other", "reached")),
    "twice the same": lambda: (reach(), bundle([reach(), reach("other", "reached")])),
    "from a view": lambda: (known(), bundle([known(), popular()])),
    "from a view, in place of it": lambda: (known(), popular()),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", PAIRS)
def test_answers_go_on(case: str, workers: int) -> None:
    for seed in range(6):
        check(*PAIRS[case](), seed, workers)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", PAIRS)
def test_the_old_program_goes_on_while_the_new_one_is_filled(case: str, workers: int) -> None:
    for seed in range(4):
        check(*PAIRS[case](), seed, workers, pieces=(1, 5, 7, 100)[seed])


def test_a_step_of_a_fill_takes_rows_whatever_the_keys_have() -> None:
    """An epoch waits for the step beside it, so a key with many rows must not be one step."""
    before, edges, _ = sources("first", retain=1)
    before.view("edges", edges, key=["src"])
    after, edges, _ = sources("first", retain=1)
    after.view("edges", edges, key=["src"])
    after.view("counts", edges.group_by("dst").agg(n=vn.count()), key=["dst"])
    rows = [[number % 3 // 2, number] for number in range(900)]  # a key of 600 rows, and one of 300
    with LocalEngine(compile_app(before)) as engine:
        engine.run_epoch(0, 10, {"edges": Updates.of(rows, 5, 1)})
        engine.run_epoch(10, 20, {"edges": Updates.of([[0, 7]], 15, 1)})
        engine.prepare(compile_app(after))
        (change,) = engine._changes
        taken = [0]
        while not engine.fill(100):
            assert change.fill is not None
            taken.append(change.fill.taken)
        assert max(upper - lower for lower, upper in pairwise(taken)) == 100
        engine.switch()
        found = engine.run_epoch(20, 21, {"edges": Updates.of([[0, 8]], 20, 1)})["counts"]
        assert sorted(zip(found.rows.tolist(), found.diff.tolist())) == [([8, 1], -1), ([8, 2], 1)]


def held(app: vn.App, upper: int = 1_000, *, keep_sources: bool = True) -> Held:
    return Held.by(compile_app(app, keep_sources=keep_sources), upper)


def test_what_is_equal_is_kept_and_kept_once() -> None:
    alone = compile_app(reach(), keep_sources=True)
    both = compile_app(bundle([reach(), known()]), keep_sources=True)
    migration = plan_migration(both, held(reach()))
    assert set(migration.kept) == set(alone.arrangements)
    assert {given.trace for given in migration.given.values()} <= set(migration.kept)
    twice = compile_app(bundle([reach(), reach("other", "reached")]), keep_sources=True)
    assert len(twice.arrangements) == len(alone.arrangements) + 1
    assert plan_migration(alone, held(bundle([reach(), known()]))).fresh == ()


def test_whole_rows_serve_also_when_the_new_plan_has_others() -> None:
    """The new program arranges the source by another key, with all columns, so its plan needs no arrangement of whole
    rows of its own; the one on disk serves all the same."""
    app, edges, _ = sources("first")
    app.view("loops", edges.filter(col("src") == col("dst")))
    grouped, edges, _ = sources("grouped")
    grouped.view("pairs", edges.group_by("dst", "src").agg(n=vn.count()), key=["dst", "src"])
    plan = compile_app(grouped, keep_sources=True)
    migration = plan_migration(plan, held(app))
    assert {given.trace for given in migration.given.values()} & set(migration.dropped)
    check(app, grouped, 3, 2)


def test_a_renamed_view_keeps_its_history() -> None:
    plan = compile_app(reach("other", "reached"))
    migration = plan_migration(plan, held(reach(), keep_sources=False))
    assert migration.fresh == ()
    assert list(migration.renamed) == [plan.views["reached"].trace]


def test_a_view_that_follows_from_a_view_needs_no_source_and_has_history() -> None:
    app, edges, _ = sources("more")
    app.view("busy", edges.filter(col("src") != col("dst")).group_by("src").agg(n=vn.count()).filter(col("n") > 3))
    found = Held.by(compile_app(known()), 10**13)
    migration = plan_migration(compile_app(app), found)
    assert set(migration.since.values()) == {10**13 - known().retain_ns}


def test_what_follows_from_the_past_needs_it() -> None:
    whole = held(reach())
    for late, why in ((delayed(), "in the last 1e-08 s"), (looked_up(), "depends on all that the rows below it were")):
        with pytest.raises(NeedsHistory, match=why):
            plan_migration(compile_app(bundle([reach(), late])), whole)
    app, edges, roots = sources("other")
    app.view("ends", edges.filter(col("src") > 3).select("dst"))
    app.view("roots", roots)
    with pytest.raises(
        NeedsHistory, match=r"view roots depends .* no arrangement of the state holds all rows of source roots"
    ):
        plan_migration(compile_app(app), held(reach(), keep_sources=False))


def test_a_delay_grows_where_the_rows_below_it_have_enough_history() -> None:
    app, _, roots = sources("views")
    app.view("roots", roots)
    later, _, roots = sources("later")
    later.view("roots", roots)
    later.view("later", roots.delay(3))
    for seed in range(4):
        check(app, later, seed, 2, pieces=3)
    slow, _, roots = sources("slow")
    slow.view("slow", roots.delay("11m"))
    with pytest.raises(NeedsHistory, match=r"delay at .*test_adopt.py:.* in the last 660 s"):
        plan_migration(compile_app(slow), Held.by(compile_app(app), 10**13))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_that_joins_later_has_the_history_of_the_sources(workers: int) -> None:
    """Compaction happens meanwhile: the view keeps 5 ns of its history, and the sources 12."""
    for seed in range(4):
        before = keeping(5, 12)
        check(before, bundle([keeping(5, 12), reach(), joining(5)]), seed, workers, pieces=(None, 1, 5, 100)[seed])
    plan = compile_app(bundle([keeping(5, 12), joining(5), reach()]))
    migration = plan_migration(plan, Held.by(compile_app(keeping(5, 12)), 1_000))
    assert {name: migration.since[plan.views[name].trace] for name in ("later", "slots", "reach")} == {
        "later": 988 + 3, "slots": 988 + 4, "reach": 988,
    }  # fmt: skip
    with pytest.raises(NeedsHistory, match="depends on when rows came"):
        plan_migration(plan, Held.by(compile_app(keeping(5, 2)), 1_000))


def test_the_longest_history_of_a_source_counts() -> None:
    both = bundle([keeping(5, 12), keeping_more()])
    assert both.kept_sources == {"edges": 3_600_000_000_000, "roots": 12}
    plan = compile_app(both, keep_sources=True)
    assert [shape.label for shape in plan.arrangements.values() if "source" in shape.label] == [
        "history of source edges", "history of source roots",
    ]  # fmt: skip
    assert not any(shape.label == "edges (all)" for shape in plan.arrangements.values())
    # A source that is kept for longer is the same arrangement: the state goes on.
    longer = plan_migration(compile_app(keeping(5, 40)), Held.by(compile_app(keeping(5, 12)), 1_000))
    assert (longer.fresh, longer.dropped) == ((), ())
    with pytest.raises(vn.ProgramError, match="retain of source 'edges'"):
        vn.App("wrong").source("edges", Edge, retain="long")


def keeping_more() -> vn.App:
    app = vn.App("more")
    app.view("edges", app.source("edges", Edge, retain="1h"))
    return app


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
