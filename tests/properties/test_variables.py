"""Delayed variables: flows that retract their own input, whatever the delay, the epochs and the workers."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.oracle.model import Change, StillMoving, changes, changes_of
from tests.oracle.plan import (
    Aggregate,
    Between,
    Contents,
    Delay,
    Distinct,
    Feedback,
    Group,
    Negate,
    Node,
    PerKey,
    Row,
    Union,
    columns,
    item,
)
from tests.oracle.programs import EDGES
from tests.profiles import examples
from tests.properties.engine import run
from tests.properties.programs import Edge
from vernier import col
from vernier.operators.failures import DelayedCycleDidNotSettle

# Edges that only come: what is retracted from edges that go may differ from one moment to the next for ever.
edge = st.tuples(st.integers(0, 2), st.integers(0, 4))
arrivals = st.lists(st.tuples(edge, st.integers(0, 20), st.just(1)), max_size=16)
cuts = st.lists(st.integers(0, 30), max_size=4)
betweens = st.sampled_from(("go on", "reopen", "repeat"))


def compacting(delay: int, keep: int) -> tuple[Node, Node]:
    """The greatest ends of each node, at most `keep`, and the edges that are looked at to find them."""
    retracted = Feedback(delay)
    kept = Union((EDGES, Negate(retracted)))

    def greatest(rows: Contents) -> list[tuple[Row, int]]:
        present = sorted((row[1] for row, count in rows.items() if count > 0 for _ in range(count)), reverse=True)
        return [((value,), 1) for value in present[:keep]]

    results = PerKey(kept, columns(0), greatest)
    retracted.define(Union((EDGES, Negate(results))))
    return results, kept


def compacting_program(delay: int, keep: int) -> vn.App:
    """The same as a user writes it."""
    app = vn.App("compacting")
    edges = app.source("edges", Edge)
    retracted = vn.Variable("retracted", Edge, delay=delay)
    kept = edges.union(retracted.negate())
    results = kept.top_k(keep, by=col("dst").desc(), within="src")
    retracted.set(edges.union(results.negate()))
    app.view("results", results)
    app.view("kept", kept)
    return app


@examples(60)
@given(
    updates=arrivals,
    cuts=cuts,
    delay=st.integers(1, 6),
    keep=st.integers(1, 2),
    workers=st.integers(1, 3),
    between=betweens,
)
def test_inputs_that_are_retracted_once_they_do_not_matter(
    updates: list[Change],
    cuts: list[int],
    delay: int,
    keep: int,
    workers: int,
    between: Literal["go on", "reopen", "repeat"],
) -> None:
    results, kept = compacting(delay, keep)
    expected = changes_of({"results": results, "kept": kept}, {"edges": updates})
    found = run(
        compacting_program(delay, keep),
        {"edges": updates},
        cuts=cuts,
        workers=workers,
        slice_updates=3,
        between=between,
    )
    assert found == expected


def test_a_cycle_that_never_settles_is_limited_and_named() -> None:
    back = Feedback(3)
    back.define(Distinct(Union((EDGES, Negate(back)))))
    updates: dict[str, list[Change]] = {"edges": [((0, 1), 3, 1)]}
    with pytest.raises(StillMoving):
        changes(back, updates)
    app = vn.App("flipping")
    edges = app.source("edges", Edge)
    flipped = vn.Variable("flipped", Edge, delay=3, max_steps=50)
    flipped.set(edges.union(flipped.negate()).distinct())
    app.view("v", flipped)
    with pytest.raises(DelayedCycleDidNotSettle, match="flipped"):
        run(app, updates)


@examples(60)
@given(updates=arrivals, epochs=cuts, workers=st.integers(1, 2))
def test_a_program_in_a_test_of_its_own_gives_the_same(updates: list[Change], epochs: list[int], workers: int) -> None:
    """vn.testing.run, with time that advances in steps, against the oracle."""
    app = vn.App("sums")
    edges = app.source("edges", Edge)
    app.view("sums", edges.delay(2).valid_between("src", col("dst") + 20).group_by("src").agg(n=vn.sum("dst")))
    plan = Group(Between(Delay(EDGES, 2), item(0), lambda row: row[1] + 20), columns(0), (Aggregate("sum", item(1)),))
    expected = changes(plan, {"edges": updates})
    with vn.testing.run(app, epochs=epochs, workers=workers) as session:
        session.update("edges", updates)
        session.advance(11)
        early = session.changes("sums")
        assert early == [change for change in expected if change[1] < 11]
        session.finish()
        assert session.changes("sums") == expected
        assert session.changes("sums", since=11) == expected[len(early) :]
