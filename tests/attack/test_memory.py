"""Programs that make far more than they are given: what fits works, in pieces; what does not is named, in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vernier as vn
from tests.operators.test_pieces import _answers
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.failures import EpochTooLarge, MachineFull
from vernier.operators.language.plan import tables
from vernier.operators.physical import half_join, join
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime import budget
from vernier.operators.runtime.budget import Budget, Yield
from vernier.storage.memory import private_bytes
from vernier.storage.trace import spill
from vernier.storage.updates import CLOSED, MIN_TIME, Updates

SPARE = 192 << 20
"""Bytes that a dataflow may take here, beside what the process of the tests has already."""
MANY = 6_000


class Pair(vn.Schema):
    key: vn.Int64
    value: vn.Int64


class Value(vn.Schema):
    value: vn.Int64


def tight() -> Budget:
    # What the allocator keeps of earlier tests counts as the process's memory until a check returns it.
    spill.return_memory()
    return Budget(private_bytes() + SPARE)


def sides() -> tuple[vn.App, Any, Any]:
    app = vn.App("crowded")
    return app, app.source("a", Pair), app.source("b", Pair)


def crowded(times: bool = True) -> dict[str, Updates]:
    """Two sides with `MANY` rows of one key and a few of others, each at a time of its own or all at one."""
    i = np.arange(MANY + 10, dtype=np.int64)
    rows = np.column_stack((np.where(i < MANY, 7, i), i))
    return {"a": Updates.of(rows, i if times else 0, 1), "b": Updates.of(rows, i if times else 0, 1)}


def answer(app: vn.App, inputs: dict[str, Updates], limit: Budget | None = None, workers: int = 1) -> Updates:
    with LocalEngine(compile_app(app), workers, budget=limit or tight()) as engine:
        (view,) = app.views
        return engine.run_epoch(MIN_TIME, CLOSED, inputs)[view]


@pytest.mark.parametrize("times", [True, False])
def test_a_join_that_explodes_is_named_with_its_key_and_sizes(times: bool) -> None:
    app, a, b = sides()
    app.view("pairs", a.join(b.select(key="key", other="value"), on="key"))
    with pytest.raises(EpochTooLarge) as caught:
        answer(app, crowded(times))
    said = str(caught.value)
    assert "join on key" in said
    assert "test_memory.py:" in said
    assert "the key key=7 pairs " in said
    assert " changes on the left with " in said
    assert "rows so far" in said
    assert "worker_memory_max_mb" in said
    # It stopped in time.
    assert private_bytes() < caught.value.limit


def test_a_join_whose_whole_output_is_too_large_is_named_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # How large a slice is follows from how long slices take, so the pieces of one may all fit, and the whole not.
    monkeypatch.setattr(Yield, "_check", lambda *_: None)
    app, a, b = sides()
    app.view("pairs", a.join(b.select(key="key", other="value"), on="key"))
    with pytest.raises(EpochTooLarge, match=r"join on key.*the key key=7 pairs .*rows so far"):
        answer(app, crowded(times=False))


@pytest.mark.parametrize("times", [True, False])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_join_gives_is_added_up_as_it_comes(times: bool, workers: int) -> None:
    app, a, b = sides()
    pairs = a.join(b.select(key="key", other="value"), on="key")
    app.view("counts", pairs.select("key").group_by("key").agg(n=vn.count()), key=["key"])
    found = answer(app, crowded(times), workers=workers)
    last = found.data[found.rows[:, 0] == 7]
    last = last[np.argsort(last[:, -2] * 2 + (last[:, -1] > 0), kind="stable")][-1]
    assert last[1] == MANY * MANY
    assert last[-1] == 1


def test_a_condition_behind_a_join_is_asked_as_its_pairs_come() -> None:
    app, a, b = sides()
    pairs = a.join(b.select(key="key", other="value"), on="key")
    app.view("near", pairs.filter(col("value") == col("other")))
    assert len(answer(app, crowded())) == MANY + 10


def test_rows_that_many_rows_look_up() -> None:
    app, a, b = sides()
    app.view("found", a.lookup(b.select(key="key", other="value"), on="key"))
    with pytest.raises(EpochTooLarge, match=r"lookup on key at .*rows of the key key=7 look at 6,000 changes"):
        answer(app, crowded(times=False))


def test_windows_that_many_rows_are_in() -> None:
    app, a, _ = sides()
    app.view("windows", a.window("value", hop=10_000, every=1))
    with pytest.raises(EpochTooLarge, match=r"window makes about [0-9,]+ rows from [0-9,]+, for example from \(7, "):
        answer(app, crowded())


def test_windows_that_are_filtered_as_they_come() -> None:
    app, a, _ = sides()
    app.view("windows", a.window("value", hop=2_000, every=1).filter(col("window_start") == col("value")))
    found = answer(app, crowded())
    assert len(found) == MANY + 10


def test_one_row_that_makes_very_many() -> None:
    app, a, _ = sides()
    app.view("series", a.flat_map(vn.generate_series("key", col("key") + 40_000_000, name="n")))
    inputs = {"a": Updates.of([[1, 2]], [0], [1])}
    with pytest.raises(
        EpochTooLarge, match=r"generate_series makes about 40,000,001 rows from 1, for example from \(1, 2\)"
    ):
        answer(app, inputs)


def endless(row: Any) -> Iterator[tuple[int]]:
    while True:
        yield (row.value,)


def test_a_function_that_gives_rows_without_end() -> None:
    app, a, _ = sides()
    app.view("rows", a.flat_map(endless, returns=Value))
    with pytest.raises(EpochTooLarge, match=r"flat_map makes about .* rows from 1, for example from \(1, 2\)"):
        answer(app, {"a": Updates.of([[1, 2]], [0], [1])})


def test_a_function_of_a_group_that_gives_very_many_rows() -> None:
    app, a, _ = sides()

    def all_pairs(key: Any, rows: list[Any]) -> list[tuple[int]]:
        return [(place,) for place in range(1_500_000)]

    app.view("rows", a.group_by("key").reduce(all_pairs, returns=Value))
    i = np.arange(70_000, dtype=np.int64)
    with pytest.raises(EpochTooLarge, match=r"reduce by all_pairs at .*rows so far; the next group is key=\d"):
        answer(app, {"a": Updates.of(np.column_stack((i // 7_000, i)), 0, 1)})


def test_a_machine_that_has_nothing_left_is_not_the_programs_fault() -> None:
    app, a, b = sides()
    app.view("pairs", a.join(b.select(key="key", other="value"), on="key"))
    with pytest.raises(MachineFull, match="more memory than the machine has left"):
        answer(app, crowded(), Budget(1 << 60, left=lambda: 1 << 20))


def test_memory_that_the_system_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    app, a, b = sides()
    app.view("pairs", a.join(b.select(key="key", other="value"), on="key"))

    def refuse(*arguments: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(join, "pair_rows", refuse)
    with pytest.raises(EpochTooLarge, match=r"join on key.*the system refused to give the process more"):
        answer(app, crowded())


@pytest.mark.parametrize("name", ["components", "scc", "bfs"])
@pytest.mark.parametrize("size", [1, 7])
def test_pieces_of_a_join_give_what_the_whole_does(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _answers(name)
    for module in (join, half_join, budget, tables):
        monkeypatch.setattr(module, "PIECE", size)
    monkeypatch.setattr(join, "_HISTORIES", 0)
    assert _answers(name) == expected


@pytest.mark.parametrize("size", [1, 5, 64, 1_000])
def test_keys_with_long_histories_are_cut_inside(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(size)

    def moving(count: int, values: int) -> Updates:
        """Rows that come and go, in histories long enough to be replayed."""
        rows = np.column_stack((rng.integers(0, 3, count), rng.integers(0, values, count)))
        return Updates.of(rows, rng.integers(0, 400, count), rng.choice([-2, -1, 1, 1, 2], count))

    app, a, b = sides()
    app.view("pairs", a.join(b.select(key="key", other="value"), on="key"))
    app2, a2, b2 = sides()
    app2.view("found", a2.lookup(b2.select(key="key", other="value"), on="key"))
    for one, counts in ((app, (900, 700)), (app, (900, 3)), (app, (2, 800)), (app, (20, 900)), (app2, (300, 300))):
        inputs = {"a": moving(counts[0], 25), "b": moving(counts[1], 30)}
        expected = answer(one, inputs)
        with monkeypatch.context() as patched:
            for module in (join, half_join, budget):
                patched.setattr(module, "PIECE", size)
            patched.setattr(join, "_HISTORIES", 0)
            found = answer(one, inputs)
        assert found.data.tobytes() == expected.data.tobytes()
