"""Stages of Python's in slices that run in one kernel: the same changes as step by step, and the same errors."""

from __future__ import annotations

import decimal
import gc
import sys
from collections.abc import Callable
from typing import Any

import numba
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vernier as vn
from vernier import Collection, col, lit
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.program import program_of
from vernier.operators.failures import UserCodeFailed
from vernier.operators.kernels.runs import STEPS_DONE
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Updates

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="it needs compiled kernels")

Row = tuple[int, str, decimal.Decimal]
PRICE = decimal.Decimal("3.05")
LONG = "a text of more than fifteen bytes, "


class Named(vn.Schema):
    """A numbered text with a price."""

    id: vn.Int64
    name: vn.String
    price: vn.Decimal(9, 2)


@vn.udf(returns=vn.Int64)
def doubled(numbers: Any) -> Any:
    """A function of the program."""
    return numbers * 2


@vn.fixpoint
def shortened(shortened: Collection, *, names: Collection) -> Collection:
    cut = shortened.filter(col("name").length() > 1).select("id", name=col("name").substr(1, 1))
    return vn.union(names, cut).distinct()


PROGRAMS: dict[str, Callable[[Collection], Collection]] = {
    "texts": lambda rows: rows.select(name=vn.concat(col("name").upper(), lit("!"))).group_by("name").agg(n=vn.count()),
    "decimals": lambda rows: rows.filter(col("price") * col("price") > 9).group_by("id").agg(total=vn.sum("price")),
    "functions": lambda rows: rows.select("name", twice=doubled(col("id"))).group_by("twice").agg(x=vn.count()),
    "between": lambda rows: (
        rows.select("name", id=col("id") + 1)
        .select("id", name=col("name").lower())
        .filter(col("id") > 2)
        .group_by("id")
        .agg(n=vn.count_distinct("name"))
    ),
    "joined": lambda rows: rows.join(rows.select("id", other="name"), on="id").select(
        "id", both=vn.concat("name", "other")
    ),
    "exploded": lambda rows: (
        rows.flat_map(lambda row: [(row.id, at) for at in range(row.id)], returns=Pair).group_by("at").agg(n=vn.count())
    ),
    "loop": lambda rows: shortened(rows.select("id", "name").distinct(), names=rows.select("id", "name")),
}


class Pair(vn.Schema):
    """A number and one below it."""

    id: vn.Int64
    at: vn.Int64


def engine_of(build: Callable[[Collection], Collection], workers: int = 1, *, interpret: bool = True) -> LocalEngine:
    """An engine for a view of named rows."""
    app = vn.App("called")
    app.view("answer", build(app.source("rows", Named)))
    plan = compile_app(app)
    program = program_of(plan)
    assert program is not None
    assert program.called
    engine = LocalEngine(plan, workers)
    for worker in engine.workers:
        if not interpret:
            worker.interpreter = None
    return engine


def interpreted(engine: LocalEngine) -> int:
    """How many slices ran in one kernel."""
    interpreter = engine.workers[0].interpreter
    assert interpreter is not None
    return int(interpreter.stats[0, STEPS_DONE])


def changes(engine: LocalEngine, at: int, rows: list[Row], diff: int = 1) -> list[Any]:
    """An epoch of rows, all at one time."""
    words = engine.plan.sources["rows"].encode_rows(rows, engine.heap)
    taken = engine.run_epoch(at if at else MIN_TIME, at + 1, {"rows": Updates.of(words, at, diff)})["answer"]
    found = engine.plan.views["answer"].schema.decode_rows(taken.rows, engine.heap)
    return [*zip(found, taken.time.tolist(), taken.diff.tolist(), strict=True)]


rows_of = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["a", "B", "ab", "", "äß", LONG, LONG + "B"]), st.just(PRICE)),
    max_size=8,
)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=15)
@given(epochs=st.lists(rows_of, max_size=5))
def test_same_changes_as_step_by_step(name: str, workers: int, epochs: list[list[Row]]) -> None:
    with engine_of(PROGRAMS[name], workers) as one, engine_of(PROGRAMS[name], interpret=False) as other:
        for at, rows in enumerate([*epochs, *epochs]):
            diff = 1 if at < len(epochs) else -1
            assert sorted(changes(one, at, rows, diff), key=repr) == sorted(changes(other, at, rows, diff), key=repr)
        if workers == 1:
            assert interpreted(one) == sum(bool(rows) for rows in epochs) * 2


def test_a_function_that_raises_ends_the_epoch_with_its_error() -> None:
    @vn.udf(returns=vn.Int64)
    def strict(numbers: Any) -> Any:
        if (numbers == 7).any():
            raise ValueError("seven is not allowed")
        return numbers

    engine = engine_of(lambda rows: rows.select(n=strict(col("id"))))
    assert changes(engine, 0, [(1, "a", PRICE)]) == [((1,), 0, 1)]
    with pytest.raises(Exception, match="seven is not allowed"):
        changes(engine, 1, [(7, "a", PRICE)])


def test_a_function_that_ends_the_process_is_a_failed_one() -> None:
    @vn.udf(returns=vn.Int64)
    def leaves(numbers: Any) -> Any:
        sys.exit(0)

    engine = engine_of(lambda rows: rows.select(n=leaves(col("id"))))
    with pytest.raises(UserCodeFailed, match="SystemExit"):
        changes(engine, 0, [(1, "a", PRICE)])


def test_a_function_that_is_interrupted_is_not_called_again() -> None:
    calls = [0]

    @vn.udf(returns=vn.Int64)
    def endless(numbers: Any) -> Any:
        calls[0] += 1
        if (numbers == 7).any():
            raise KeyboardInterrupt
        return numbers

    engine = engine_of(lambda rows: rows.select(n=endless(col("id"))))
    changes(engine, 0, [(1, "a", PRICE)])
    before = calls[0]
    with pytest.raises(KeyboardInterrupt):
        changes(engine, 1, [(7, "a", PRICE)])
    assert calls[0] == before + 1


def test_a_function_may_keep_what_it_is_given() -> None:
    kept = []

    @vn.udf(returns=vn.Int64)
    def keeps(numbers: Any) -> Any:
        kept.append(numbers)
        return numbers

    engine = engine_of(lambda rows: rows.select(n=keeps(col("id"))))
    for at in range(50):
        changes(engine, at, [(at, "a", PRICE), (at + 1, "a", PRICE)])
    seen = [numbers.tolist() for numbers in kept if len(numbers) == 2]
    assert seen[-50:] == [[at, at + 1] for at in range(50)]


def test_all_memory_is_given_back() -> None:
    from numba.core.runtime import _nrt_python, rtsys

    _nrt_python.memsys_enable_stats()
    gc.collect()
    before = rtsys.get_allocation_stats()
    engine = engine_of(PROGRAMS["loop"])
    for at in range(100):
        changes(engine, at, [(at % 7, "abcdefghij"[: at % 10], PRICE)])
    assert interpreted(engine) == 100
    del engine
    gc.collect()
    after = rtsys.get_allocation_stats()
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free
