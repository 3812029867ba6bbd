"""Random plans on random updates, in random epochs, slices and workers: the changes are the oracle's at every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, get_args

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import vernier as vn
from tests.oracle.model import Change, NotSettled, TooLarge, changes_of
from tests.profiles import examples
from tests.properties import plans
from tests.properties.engine import Between, run
from tests.properties.plans import InOracle, InVernier, LoopStep, Step, Steps, build
from tests.properties.time_variants import NOW
from vernier.operators.failures import LoopDidNotSettle
from vernier.storage.updates import MIN_TIME

N = TypeVar("N")
OFFSETS = (0, 0, -5, MIN_TIME, NOW, 2**63 - 20)
"""Where the data times of a case begin: near zero, at either end, and now."""


@dataclass(frozen=True)
class Case:
    """Updates of the two sources and how they are cut."""

    updates: dict[str, list[Change]]
    cuts: list[int]
    workers: int
    slice_updates: int
    between: Between
    interpret: bool
    keep_views: bool
    retain: int
    shown: int
    """How many of a plan's collections are views, from the last one on; what is not seen may be fused away."""
    key: tuple[str, ...] | None
    """The columns that views are looked up by."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few keys, shared times, diffs of both signs, rows that come and go at one time."""
    offset = draw(st.sampled_from(OFFSETS))
    row = st.tuples(st.integers(0, 3), st.integers(0, 3))
    update = st.tuples(row, st.integers(offset, offset + 9), st.sampled_from((1, 1, 1, -1, -1, 2, -3)))
    updates = {name: draw(st.lists(update, max_size=14)) for name in plans.SOURCES}
    for part in updates.values():
        for at, back in draw(st.lists(st.tuples(st.integers(0, 13), st.booleans()), max_size=6)):
            if at < len(part):
                gone, time, diff = part[at]
                part.append((gone, time if back else min(time + 2, offset + 9), -diff))
    times = [offset + at for at in range(10)]
    cuts = draw(st.one_of(st.just([]), st.just(times), st.lists(st.sampled_from(times), max_size=4)))
    return Case(
        updates,
        cuts,
        workers=draw(st.integers(1, 3)),
        slice_updates=draw(st.sampled_from((0, 1, 2, 5, 1024))),
        between=draw(st.sampled_from(get_args(Between))),
        interpret=draw(st.sampled_from((True, True, False))),
        keep_views=draw(st.booleans()),
        retain=draw(st.sampled_from((600_000_000_000, 3))),
        shown=draw(st.sampled_from((1, 1, 2, 100))),
        key=draw(st.sampled_from((None, ("a",), ("b",), ("b", "a")))),
    )


def last(collections: list[N], case: Case) -> dict[str, N]:
    """The collections that are views, by name: v0 is the plan's last one, v1 the one before …"""
    return {f"v{place}": one for place, one in enumerate(reversed(collections)) if place < case.shown}


def in_product(steps: Steps, case: Case) -> vn.App:
    """The plan as a program."""
    language = InVernier(case.retain)
    for name, collection in last(build(steps, language), case).items():
        language.app.view(name, collection, key=case.key)
    return language.app


def in_oracle(steps: Steps, case: Case) -> dict[str, list[Change]]:
    """What the views of the plan should change. Gives the case up where multiplicities grow out of hand."""
    try:
        return changes_of(last(build(steps, InOracle()), case), case.updates)
    except TooLarge:
        reject()


def in_engine(steps: Steps, case: Case) -> dict[str, list[Change]]:
    """What the views of the plan do change."""
    return run(
        in_product(steps, case),
        case.updates,
        cuts=case.cuts,
        workers=case.workers,
        slice_updates=case.slice_updates,
        between=case.between,
        interpret=case.interpret,
        keep_views=case.keep_views,
    )


@examples(150)
@given(plans.plain_steps(len(plans.SOURCES)), cases())
def test_each_operator(step: Step, case: Case) -> None:
    assert in_oracle((step,), case) == in_engine((step,), case)


@pytest.mark.parametrize("family", plans.FAMILIES)
@examples(60)
@given(data=st.data(), case=cases())
def test_each_operator_of(family: str, data: st.DataObject, case: Case) -> None:
    step = data.draw(plans.family_steps(family, len(plans.SOURCES)))
    assert in_oracle((step,), case) == in_engine((step,), case)


@examples(150)
@given(plans.plans(6), cases())
def test_several_operators(steps: Steps, case: Case) -> None:
    assert in_oracle(steps, case) == in_engine(steps, case)


@examples(150)
@given(plans.plans(4, loops=1), cases())
def test_loops(steps: Steps, case: Case) -> None:
    assert in_oracle(steps, case) == in_engine(steps, case)


@examples(200)
@given(plans.loop_steps(len(plans.SOURCES), 3), cases())
def test_nested_loops(loop: LoopStep, case: Case) -> None:
    assert in_oracle((loop,), case) == in_engine((loop,), case)


@examples(150)
@given(plans.loop_steps(len(plans.SOURCES), 2, cut=False), cases())
def test_loops_that_do_not_settle_fail_and_no_others(loop: LoopStep, case: Case) -> None:
    try:
        expected = in_oracle((loop,), case)
    except NotSettled:
        with pytest.raises(LoopDidNotSettle):
            in_engine((loop,), case)
    else:
        assert in_engine((loop,), case) == expected
