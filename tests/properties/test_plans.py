"""Random plans on random updates, in random epochs, slices and workers: the changes are the oracle's at every time."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st

from storage.updates import MIN_TIME
from tests.oracle.model import Change, TooLarge, changes
from tests.properties import plans
from tests.properties.engine import examples, run
from tests.properties.plans import InOracle, InVernier, LoopStep, Step, Steps, build

OFFSETS = (0, -5, MIN_TIME, 1_700_000_000_000_000_000, 2**63 - 20)
"""Where the data times of a case begin: near zero, at either end, and now."""


@dataclass(frozen=True)
class Case:
    """Updates of the two sources and how they are cut."""

    updates: dict[str, list[Change]]
    cuts: list[int]
    workers: int
    slice_updates: int


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
    return Case(updates, cuts, draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 5, 1024))))


def check(steps: Steps, case: Case) -> None:
    """Every collection of the plan, as a view, changes as the oracle says."""
    expected = {}
    for index, node in enumerate(build(steps, InOracle())):
        try:
            expected[f"v{index}"] = changes(node, case.updates)
        except TooLarge:
            assume(False)
    language = InVernier()
    for index, node in enumerate(build(steps, language)):
        language.app.view(f"v{index}", node)
    found = run(language.app, case.updates, cuts=case.cuts, workers=case.workers, slice_updates=case.slice_updates)
    assert found == expected


@examples(150)
@given(plans.plain_steps(len(plans.SOURCES)), cases())
def test_each_operator(step: Step, case: Case) -> None:
    check((step,), case)


@examples(150)
@given(plans.plans(6), cases())
def test_several_operators(steps: Steps, case: Case) -> None:
    check(steps, case)


@examples(150)
@given(plans.plans(4, loops=1), cases())
def test_loops(steps: Steps, case: Case) -> None:
    check(steps, case)


@examples(150)
@given(plans.loop_steps(len(plans.SOURCES), 3), cases())
def test_nested_loops(loop: LoopStep, case: Case) -> None:
    check((loop,), case)
