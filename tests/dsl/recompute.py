"""Hold a program against a plain function that recomputes its answer from scratch at every data time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

import vernier as vn
from tests.oracle.model import Change, Collection, accumulate, collection_at, consolidate, input_times
from tests.properties.engine import run

Answer = Callable[..., Iterable[tuple[tuple[Any, ...], int]]]
"""Of the sources' collections, in their order, to (row, multiplicity) pairs, in any order and not summed."""


def recomputed(answer: Answer, updates: Mapping[str, Sequence[Change]]) -> list[Change]:
    """All changes of the answer, time by time, not in order."""
    found: list[Change] = []
    before: Collection = {}
    for time in input_times(updates):
        after = accumulate(answer(*(collection_at(part, time) for part in updates.values())))
        difference = accumulate([*after.items(), *((row, -count) for row, count in before.items())])
        found.extend((row, time, difference[row]) for row in difference)
        before = after
    return found


def check(
    build: Callable[..., vn.Collection],
    schemas: Mapping[str, type[vn.Schema]],
    answer: Answer,
    updates: Mapping[str, Sequence[Change]],
    cuts: Sequence[int] = (),
    workers: int = 1,
) -> None:
    """The view `build(source, ...)` changes as `answer` does, whatever the cuts into epochs and the workers."""
    app = vn.App("check")
    app.view("v", build(*(app.source(name, schema) for name, schema in schemas.items())))
    given = {name: updates.get(name, []) for name in schemas}
    found = run(app, given, cuts=cuts, workers=workers, slice_updates=4)["v"]
    assert found == consolidate(recomputed(answer, given))


def updates(row: st.SearchStrategy[tuple[Any, ...]], most: int = 12, negative: bool = True) -> st.SearchStrategy[Any]:
    """Lists of (row, time, diff): few times, insertions and deletions, in any order."""
    diffs = st.sampled_from((1, 1, 1, 2, -1, -2)) if negative else st.sampled_from((1, 1, 2))
    return st.lists(st.tuples(row, st.integers(1, 6), diffs), max_size=most)


cuts = st.lists(st.integers(2, 7), max_size=3)
"""Where epochs end."""
