"""Compares the views of a program with a count of the rows from scratch, time by time; and makes rows that drift."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import strategies as st

import vernier as vn
from tests.properties.engine import Between, run
from vernier.operators.engine.program import program_of
from vernier.operators.physical import reduce_base
from vernier.operators.planning.planner import compile_app

Log = Iterable[tuple[Any, int, int]]
"""Updates of the program's source, or changes of a view: row, time, diff."""
Truth = Callable[[Counter[Any]], Mapping[str, Counter[Any]]]
"""The rows of each view, from those of the source."""
CUTS = st.sets(st.integers(1, 8), max_size=4)
WORKERS = st.integers(1, 2)
BETWEEN: st.SearchStrategy[Between] = st.sampled_from(["go on", "reopen"])


def logs(*columns: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, int, int]]]:
    """Updates of a source with these columns, at times up to 8; rows come and leave, some of them twice."""
    update = st.tuples(st.tuples(*columns), st.integers(0, 8), st.sampled_from([1, 1, 1, 2, -1, -2]))
    return st.lists(update, max_size=24)


FEW: list[int | None] = [0, 8, None]
"""By how much a trace must be larger than a slice so that groups are read in parts, step by step (0: always); None:
slices run in one kernel."""


def check_cut(
    app: vn.App,
    truth: Truth,
    few: int | None,
    log: Log,
    cuts: set[int],
    workers: int,
    between: Between,
    slice_updates: int = 3,
) -> None:
    """Run updates of the program's source in epochs, and compare all views. few: see `FEW`; None: compare the views
    whose plans run in one kernel, with one worker."""
    (source,) = app.sources
    if few is None:
        found = run(fitting(app), {source: log}, cuts=cuts, slice_updates=slice_updates, between=between)
        check(found, log, truth)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce_base, "FEW", few)
        found = run(
            app,
            {source: log},
            cuts=cuts,
            workers=workers,
            slice_updates=slice_updates,
            between=between,
            interpret=False,
        )
        check(found, log, truth)


_fitting: dict[tuple[str, ...], list[str]] = {}


def fitting(app: vn.App) -> vn.App:
    """The program with those of its views whose plans run in one kernel; there is at least one."""
    names = (app.name, *app.views)
    if names not in _fitting:
        _fitting[names] = [view for view in app.views if program_of(compile_app(_only(app, [view]))) is not None]
        assert _fitting[names], "no view of the program runs in one kernel"
        assert program_of(compile_app(_only(app, _fitting[names]))) is not None
    return _only(app, _fitting[names])


def _only(app: vn.App, views: list[str]) -> vn.App:
    part = copy.copy(app)
    part.views = {view: app.views[view] for view in views}
    return part


def check(found: Mapping[str, Log], log: Log, truth: Truth) -> None:
    """Compare all views that are found at each time at which something changes."""

    def as_of(changes: Log, time: int) -> Counter[Any]:
        held: Counter[Any] = Counter()
        for row, at, diff in changes:
            held[row] += diff if at <= time else 0
        return held

    for time in sorted({at for _, at, _ in log}):
        for view, wanted in truth(as_of(log, time)).items():
            if view not in found:
                continue
            held = as_of(found[view], time)
            assert {row: n for row, n in held.items() if n} == dict(wanted), (view, time)


def drifting(
    choose: random.Random, event: Callable[[], Any], rows: int, times: int, most: int
) -> list[tuple[Any, int, int]]:
    """Changes of a collection that begins with `rows` rows at time 0: at each of the next times, one to `most` rows
    leave or come, some of them twice."""
    held = [event() for _ in range(rows)]
    log = [(row, 0, 1) for row in held]
    for at in range(1, times):
        for _ in range(choose.randrange(1, most + 1)):
            if choose.random() < 0.5:
                log.append((held.pop(choose.randrange(len(held))), at, -1))
            else:
                held.append(event())
                log.append((held[-1], at, choose.choice([1, 1, 2])))
    return log
