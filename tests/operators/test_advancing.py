"""Arrangements of views that keep less history than a slice has: times that they do not tell apart are advanced before
the slice's updates are sorted. Changes keep their times."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import vernier as vn
from tests.operators.test_follow import Pair, recounted
from vernier.operators.engine import worker
from vernier.operators.engine.local import LocalEngine
from vernier.operators.physical import arrange
from vernier.operators.planning.planner import compile_app
from vernier.storage.errors import DiffOverflow
from vernier.storage.time.antichain import Antichain
from vernier.storage.trace.batch import advance_updates
from vernier.storage.updates import Updates, together

Rows = Counter[tuple[int, ...]]


def program(retain: int) -> vn.App:
    """The views of test_follow, and one with its columns in another order than its key."""
    app = vn.App("counts", retain=retain)
    pairs = app.source("pairs", Pair)
    counts = pairs.group_by("a").agg(n=vn.count())
    app.view("counts", counts, key="n")
    app.view("histogram", counts.group_by("n").agg(keys=vn.count()))
    app.view("copies", pairs.select("b").group_by("b").agg(n=vn.count()))
    return app


def kept(engine: LocalEngine, view: str, until: int) -> Rows:
    """The rows that the trace of a view has up to a time, in the order of its schema."""
    found: Rows = Counter()
    for one in engine.workers:
        trace, words = one.state.traces[engine.plan.views[view].trace], engine.plan.views[view].words
        for batch in trace.batches:
            keyed = batch.keyed()
            for row, time, diff in zip(keyed[:, 1:][:, words].tolist(), keyed[:, -2], keyed[:, -1], strict=True):
                found[tuple(row)] += int(diff) if time <= until else 0
    return Counter({row: copies for row, copies in found.items() if copies})


@pytest.mark.parametrize("slice_updates", [0, 60])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("retain", [1, 30, 10_000])
def test_answers_are_those_of_all_times_that_are_kept(
    monkeypatch: pytest.MonkeyPatch, retain: int, workers: int, slice_updates: int
) -> None:
    monkeypatch.setattr(worker, "MOST", -1)
    monkeypatch.setattr(arrange, "_MANY", 1)
    choose = random.Random(f"{retain} {workers} {slice_updates}")
    log = [
        (choose.choice([0, choose.randrange(30)]), choose.randrange(20), i // choose.choice([1, 1, 3]), diff)
        for i in range(500)
        if (diff := choose.choice([1, 1, -1, 2]))
    ]
    expected, advanced = recounted(log), 0
    found: dict[str, Rows] = {name: Counter() for name in expected}
    advance = arrange.advance_updates

    def counted(data: np.ndarray, since: int) -> np.ndarray:
        nonlocal advanced
        advanced += 1
        return advance(data, since)

    monkeypatch.setattr(arrange, "advance_updates", counted)
    with LocalEngine(compile_app(program(retain)), workers, slice_updates=slice_updates) as engine:
        lower = 0
        for upper in (120, 121, 400, 500):
            part = np.array([one for one in log if lower <= one[2] < upper], np.int64).reshape(-1, 4)
            updates = Updates.of(part[:, :2], part[:, 2], part[:, 3])
            for name, changes in engine.run_epoch(lower, upper, {"pairs": updates}).items():
                for *row, diff in changes.data.tolist():
                    found[name][tuple(row)] += diff
            last = upper - 1
            for name in expected:
                for time in {last - retain + 1, *(last - back for back in range(0, retain, 11) if back < 120)}:
                    there: Rows = Counter()
                    for (*row, at), diff in expected[name].items():
                        there[tuple(row)] += diff if at <= time else 0
                    assert kept(engine, name, time) == Counter({row: copies for row, copies in there.items() if copies})
            lower = upper
    assert {name: dict(changes) for name, changes in found.items()} == expected
    assert (advanced > 0) == (retain < 10_000)


def test_a_reader_holds_times_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MOST", -1)
    monkeypatch.setattr(arrange, "_MANY", 1)
    with LocalEngine(compile_app(program(1))) as engine:
        engine.run_epoch(0, 10, {"pairs": Updates.of([(1, 1)], [3], [1])})
        trace = engine.workers[0].state.traces[engine.plan.views["counts"].trace]
        hold = trace.advance_by(Antichain([[10]]))
        engine.run_epoch(10, 20, {"pairs": Updates.of([(1, 2), (1, 3)], [12, 15], [1, 1])})
        assert [kept(engine, "counts", time) for time in (11, 12, 14, 15)] == [
            {(1, 1): 1}, {(1, 2): 1}, {(1, 2): 1}, {(1, 3): 1},
        ]  # fmt: skip
        hold.release()


@pytest.mark.parametrize("n", [1, 7, 600, 5_000])
@pytest.mark.parametrize("kind", ["few", "close", "many", "wide", "hashed"])
def test_advanced_updates_are_equal_from_since_on(kind: str, n: int) -> None:
    choose = np.random.default_rng(n)
    match kind:
        case "few":
            rows = choose.choice([-(2**62), 5, 2**40], (n, 2)) + np.array([0, 1])
            rows[:, 1] = 7
        case "close":
            rows = choose.integers(-4, 4, (n, 2))
        case "many":
            rows = choose.integers(0, 10**6, (n, 2))
        case "hashed":
            rows = choose.integers(0, 9, (n, 2)) * 10**8
        case _:
            rows = choose.integers(-(2**62), 2**62, (n, 2))
    times, diffs = choose.integers(100, 200, n), choose.choice([-1, 1, 2], n)
    data = np.column_stack((rows, times, diffs))
    expected = Updates(np.column_stack((rows, np.maximum(times, 180), diffs)), 2, 0).consolidate()
    found = advance_updates(data, 180)
    assert Updates(found, 2, 0).consolidate().data.tolist() == expected.data.tolist()
    wider = np.column_stack((np.full(n, 3), data))
    assert advance_updates(wider[:, 1:], 180).tolist() == found.tolist()
    if kind == "few" and n > 500:
        assert len(found) <= 3 + (times > 180).sum()


def test_sums_that_do_not_fit_are_refused() -> None:
    rows = np.zeros((600, 2), np.int64)
    with pytest.raises(DiffOverflow):
        advance_updates(np.column_stack((rows, np.arange(600), np.full(600, 2**60))), 1000)


def test_parts_become_one_matrix() -> None:
    wide = np.arange(300 * 5).reshape(300, 5)
    parts = [wide[:, 1:], np.ascontiguousarray(wide[:7, :4]), wide[::2, :4], wide[:0, 1:]]
    assert together(parts).tolist() == np.concatenate(parts).tolist()
    assert together([wide], contiguous=True) is wide
    assert together([wide[:, 1:]], contiguous=True).flags.c_contiguous
