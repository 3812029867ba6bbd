"""Thirty changes of a program on one state: for each view and each time after a switch, what a rebuild would answer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

import vernier as vn
from tests.operators.changes import CHANGES, program
from tests.profiles import NIGHTLY
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import Updates

State = Counter[tuple[int, ...]]
Log = dict[str, list[tuple[tuple[int, ...], int, int]]]


def changed(log: Log, source: str, lower: int, upper: int, width: int) -> Updates:
    """The updates of a source in an interval of times."""
    rows = [(*row, time, diff) for row, time, diff in log[source] if lower <= time < upper]
    return Updates(np.array(rows, np.int64).reshape(-1, width + 2), width, 0)


def run(engine: LocalEngine, log: Log, lower: int, upper: int) -> dict[str, Updates]:
    widths = {name: row.width for name, row in engine.plan.sources.items()}
    return engine.run_epoch(lower, upper, {n: changed(log, n, lower, upper, width) for n, width in widths.items()})


def held(engine: LocalEngine, view: str, time: int) -> State:
    """The rows of a view as of a time, from its trace."""
    plan = engine.plan.views[view]
    rows: State = Counter()
    for worker in engine.workers:
        for batch in worker.state.traces[plan.trace].batches:
            for row in batch.to_updates().data.tolist():
                if row[-2] <= time:
                    rows[tuple(row[word] for word in plan.words)] += row[-1]
    return Counter({row: n for row, n in rows.items() if n})


def rebuilt(app: vn.App, log: Log, upper: int) -> dict[str, list[list[int]]]:
    """All changes of all views, by a service that reads everything from the beginning."""
    with LocalEngine(compile_app(app)) as engine:
        return {name: updates.data.tolist() for name, updates in run(engine, log, 0, upper).items()}


def as_of(changes: list[list[int]], time: int) -> State:
    rows: State = Counter()
    for *row, at, diff in changes:
        if at <= time:
            rows[tuple(row)] += diff
    return Counter({row: n for row, n in rows.items() if n})


def random_log(chance: random.Random, count: int, accounts: int, until: int) -> Log:
    """Uses and links that are inserted and, some of them, deleted again."""
    log: Log = {"uses": [], "links": []}
    for _ in range(count):
        at = chance.randrange(until)
        use = (chance.randrange(accounts), chance.randrange(5), chance.randrange(100))
        log["uses"].append((use, at, 1))
        if chance.random() < 0.3:
            log["uses"].append((use, chance.randrange(at, until), -1))
        if chance.random() < 0.3:
            link = (chance.randrange(accounts), chance.randrange(accounts))
            log["links"].append((link, at, 1))
            log["links"].append((link, chance.randrange(at, until), -1))
    return log


def expected(app: vn.App, log: Log, upper: int, engine: LocalEngine) -> None:
    """Compare all views at times that they tell apart with a rebuild."""
    whole = rebuilt(app, log, upper)
    for name in app.views:
        since = engine.workers[0].state.traces[engine.plan.views[name].trace].since
        times = {at for *_, at, _ in whole[name] if since <= at < upper} | {since, upper - 1}
        for at in sorted(times)[-6:]:
            assert held(engine, name, at) == as_of(whole[name], at), (name, at)


@pytest.mark.parametrize("workers", [1, 2])
def test_thirty_changes_are_as_exact_as_a_rebuild(workers: int) -> None:
    chance = random.Random(workers)
    ends = list(range(100, 100 + 40 * len(CHANGES) * 2, 40))
    log = random_log(chance, 400, 9, ends[-1])
    app = program(CHANGES[0])
    with LocalEngine(compile_app(app, keep_sources=True), workers) as engine:
        run(engine, log, 0, ends[0])
        at, steps = 0, 0
        for views in CHANGES[1:]:
            following = program(views)
            engine.prepare(compile_app(following, keep_sources=True))
            while not engine.fill(chance.choice((5, 20, 400))) or not steps:
                # Epochs of the old program go on meanwhile, all of them with answers.
                if at + 2 < len(ends):
                    run(engine, log, ends[at], ends[at + 1])
                    at += 1
                steps += 1
            engine.switch()
            app = following
            expected(app, log, ends[at], engine)
            if at + 2 < len(ends):
                run(engine, log, ends[at], ends[at + 1])
                at += 1
                expected(app, log, ends[at], engine)
        assert app.views.keys() == program(CHANGES[0]).views.keys()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_changes_on_many_rows() -> None:
    """The same changes on many uses (nightly a million): after each of them the totals are those that numpy finds."""
    chance = np.random.default_rng(7)
    rows = np.empty((1_000_000 if NIGHTLY else 200_000, 5), np.int64)
    rows[:, 0], rows[:, 1] = chance.integers(0, 50_000, len(rows)), chance.integers(0, 5, len(rows))
    rows[:, 2], rows[:, 3], rows[:, 4] = chance.integers(0, 100, len(rows)), chance.integers(0, 90, len(rows)), 1
    links = np.array([[n, n + 1, 5, 1] for n in range(40)], np.int64)
    with LocalEngine(compile_app(program(CHANGES[0]), keep_sources=True), 2) as engine:
        engine.run_epoch(0, 100, {"uses": Updates(rows, 3, 0), "links": Updates(links, 2, 0)})
        lower = 100
        for views in CHANGES[1:]:
            if "late" in views.values() and "late" not in engine.plan.views:
                continue  # it needs the history of sums, which a load of one epoch does not have
            engine.prepare(compile_app(program(views), keep_sources=True))
            while not engine.fill(50_000):
                engine.run_epoch(lower, lower + 1, {})
                lower += 1
            engine.switch()
            compare_with_numpy(engine, views, rows, lower)


def compare_with_numpy(engine: LocalEngine, views: Mapping[str, str], rows: np.ndarray, upper: int) -> None:
    counts = np.bincount(rows[:, 0], minlength=50_000)
    totals = np.bincount(rows[:, 0], rows[:, 2], minlength=50_000).astype(np.int64)
    for name, view in views.items():
        found = held(engine, name, upper - 1)
        if view == "counts":
            assert found == {(n, count): 1 for n, count in enumerate(counts.tolist()) if count}
        elif view == "sums":
            wanted = zip(range(50_000), counts.tolist(), totals.tolist(), strict=True)
            assert found == {(n, count, total): 1 for n, count, total in wanted if count}
        elif view == "most":
            assert found == {(kind, 99, 0): 1 for kind in range(5)}
        elif view == "by_kind":
            pairs, numbers = np.unique(rows[:, :2], axis=0, return_counts=True)
            assert found == {(*pair, n): 1 for pair, n in zip(pairs.tolist(), numbers.tolist(), strict=True)}
        elif view == "kinds":
            assert found == {tuple(pair): 1 for pair in np.unique(rows[:, :2], axis=0).tolist()}
        elif view == "large":
            large = rows[rows[:, 2] > 50][:, [0, 2]]
            pairs, numbers = np.unique(large, axis=0, return_counts=True)
            assert found == {tuple(pair): n for pair, n in zip(pairs.tolist(), numbers.tolist(), strict=True)}
        elif view == "reach":
            assert len(found) == 40 * 41 // 2
