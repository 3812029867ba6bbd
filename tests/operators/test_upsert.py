"""Upserts: the collection holds the newest row of each key at every time, whatever the epochs, slices and workers."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from vernier.operators.engine.local import LocalEngine
from vernier.operators.failures import NeedsHistory
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import Updates

Row = tuple[str | None, int, str, int]
Upserted = tuple[Row, int, bool]
"""A row (of which a delete needs the key alone), its time, whether it sets."""
KEY = ("id", "kind")
LONG = "a text of more than fifteen bytes"


class Item(vn.Schema):
    name: vn.String | None
    id: vn.Int64
    kind: vn.String
    price: vn.Int64


def program() -> vn.App:
    """Views of the rows themselves, of a reduction, and of a join by the source's own key."""
    app = vn.App("items")
    items = app.source("items", Item)
    app.view("items", items, key=KEY)
    app.view("total", items.group_by("kind").agg(price=vn.sum("price"), n=vn.count()), key=["kind"])
    app.view("both", items.join(items.select("id", "kind"), on=["id", "kind"]).select("id", "kind"), key=["id"])
    return app


def model(log: Sequence[Upserted]) -> Counter[tuple[Row, int]]:
    """The changes of the collection, from its content after each time."""
    changes: Counter[tuple[Row, int]] = Counter()
    rows: dict[tuple[int, str], Row] = {}
    for time in sorted({time for _, time, _ in log}):
        after = dict(rows)
        for row, at, sets in log:
            if at == time and sets:
                after[row[1], row[2]] = row
            elif at == time:
                after.pop((row[1], row[2]), None)
        for key in rows.keys() | after.keys():
            if rows.get(key) != after.get(key):
                for held, diff in ((rows.get(key), -1), (after.get(key), 1)):
                    if held is not None:
                        changes[held, time] += diff
        rows = after
    return changes


def encode(engine: LocalEngine, log: Sequence[Upserted], first: int) -> Updates:
    """Upserts as updates: what they are, and where they stood, in their diff."""
    schema = engine.plan.sources["items"]
    rows = schema.encode_rows([row for row, _, _ in log], engine.heap)
    keyed = schema.index(KEY)
    gone = np.array([not sets for _, _, sets in log], np.bool_)
    nothing = np.setdiff1d(np.arange(schema.width), keyed)
    rows[np.ix_(gone, nothing)] = 0
    codes = [(first + k + 1) * (1 if sets else -1) for k, (_, _, sets) in enumerate(log)]
    return Updates.of(rows.reshape(-1, schema.width), [time for _, time, _ in log], codes)


LOGS = st.lists(
    st.tuples(
        st.tuples(
            st.sampled_from([None, "a", LONG]), st.integers(0, 2), st.sampled_from(["x", LONG]), st.integers(0, 2)
        ),
        st.integers(0, 30),
        st.booleans(),
    ),
    max_size=25,
)


@given(LOGS, st.lists(st.integers(1, 30), max_size=3), st.integers(1, 2), st.integers(1, 5), st.randoms())
def test_the_newest_row_of_each_key_at_every_time(
    log: list[Upserted], cuts: list[int], workers: int, slice_updates: int, chance: random.Random
) -> None:
    wanted = model(log)
    plan = compile_app(program(), upserts={"items": KEY})
    found: Counter[tuple[Row, int]] = Counter()
    totals: Counter[tuple[str, int]] = Counter()
    joined: Counter[tuple[int, int]] = Counter()
    with LocalEngine(plan, workers, slice_updates=slice_updates) as engine:
        edges = sorted({0, *cuts, 31})
        for lower, upper in itertools.pairwise(edges):
            part = [k for k, (_, time, _) in enumerate(log) if lower <= time < upper]
            coded = Updates.concat((encode(engine, [log[k]], k) for k in part), plan.sources["items"].width)
            order = np.array(chance.sample(range(len(part)), len(part)), np.intp)
            changes = engine.run_epoch(lower, upper, {"items": coded.take(order)})
            for view, counter in (("items", found), ("total", totals), ("both", joined)):
                updates = changes[view]
                rows = plan.views[view].schema.decode_rows(updates.rows, engine.heap)
                for row, time, diff in zip(rows, updates.time.tolist(), updates.diff.tolist(), strict=True):
                    counter[(row if view == "items" else (row[0], row[-1]), time)] += diff  # type: ignore[index]
    assert {entry: n for entry, n in found.items() if n} == dict(wanted)
    final: Counter[Row] = Counter()
    for (row, _), diff in wanted.items():
        final[row] += diff
    counts: Counter[str] = Counter()
    for (pair, _), diff in totals.items():
        counts[pair[0]] += diff * pair[1]  # type: ignore[index]
    assert {kind: n for kind, n in counts.items() if n} == dict(Counter(row[2] for row, n in final.items() if n))
    pairs: Counter[tuple[int, str]] = Counter()
    for (pair, _), diff in joined.items():
        pairs[pair] += diff  # type: ignore[index]
    assert {pair: n for pair, n in pairs.items() if n} == {(row[1], row[2]): 1 for row, n in final.items() if n}


@pytest.mark.parametrize("workers", [1, 2])
def test_another_program_takes_over(workers: int) -> None:
    plan = compile_app(program(), upserts={"items": KEY})
    log: list[Upserted] = [(("a", 1, "x", 5), 1, True), (("b", 2, "x", 6), 2, True), (("c", 1, "x", 7), 3, True)]
    with LocalEngine(plan, workers) as engine:
        engine.run_epoch(0, 10, {"items": encode(engine, log, 0)})
        app = program()
        app.view("dear", _dear(app), key=["id"])
        engine.migrate(compile_app(app, upserts={"items": KEY}))
        changes = engine.run_epoch(10, 20, {"items": encode(engine, [(("d", 1, "x", 1), 11, True)], 3)})
        width = changes["dear"].width
        rows = {(tuple(row[:width]), row[-1]) for row in changes["dear"].data.tolist()}
    assert rows == {((1, 7), -1)}


def _dear(app: vn.App) -> vn.Collection:
    from vernier.operators.language.collection.collection import Collection

    return Collection(app.sources["items"]).filter(vn.col("price") > 5).select("id", "price")


def test_a_source_with_rows_does_not_become_one_of_upserts() -> None:
    plain = compile_app(program(), keep_sources=True)
    with LocalEngine(plain) as engine:
        engine.run_epoch(0, 10, {"items": Updates.empty(plain.sources["items"].width)})
        with pytest.raises(NeedsHistory, match="no arrangement of the state holds all rows of source items"):
            engine.migrate(compile_app(program(), upserts={"items": KEY}, keep_sources=True))
