"""The one place where the property tests meet the product's engine: run a program on updates, cut as a test likes.

Also how hard the properties try: HYPOTHESIS_PROFILE=nightly is a hundred times as many cases as any other profile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

import vernier as vn
from operators.local import LocalEngine
from operators.planner import compile_app
from storage.updates import CLOSED, MIN_TIME, Updates
from tests.oracle.model import Change, consolidate

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
NIGHTLY_EXAMPLES = 10_000
no_timeout = pytest.mark.timeout(0 if NIGHTLY else 300)
"""Nightly runs of one property take longer than any one test may otherwise."""

F = TypeVar("F", bound=Callable[..., None])


def examples(count: int) -> Callable[[F], F]:
    """As many cases as this for a hypothesis test, or 10,000 at night."""

    def decorate(test: F) -> F:
        tries = settings(
            max_examples=NIGHTLY_EXAMPLES if NIGHTLY else count,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        )
        decorated: F = no_timeout(tries(test))
        return decorated

    return decorate


def seeds(count: int) -> range:
    """As many seeds as this for a plain random test, or 10,000 at night."""
    return range(NIGHTLY_EXAMPLES if NIGHTLY else count)


def run(
    app: vn.App,
    updates: Mapping[str, Sequence[Change]],
    *,
    cuts: Iterable[int] = (),
    workers: int = 1,
    slice_updates: int = 1024,
) -> dict[str, list[Change]]:
    """All changes of all views, consolidated, when the updates come in epochs that end at `cuts` and then at the end.

    Checks on the way what holds for every epoch: its changes are within its interval of data times, no row has two
    changes at one time, none is 0.
    """
    plan = compile_app(app)
    found: dict[str, list[Change]] = {name: [] for name in app.views}
    matrices = {name: encoded(app, name, updates.get(name, ())) for name in app.sources}
    lower = MIN_TIME
    with LocalEngine(plan, workers, slice_updates=slice_updates) as engine:
        for upper in sorted({*(cut for cut in cuts if cut > MIN_TIME), CLOSED}):
            inside = {
                name: matrix.take((matrix.time >= lower) & (matrix.time < upper)) for name, matrix in matrices.items()
            }
            for name, changes in engine.run_epoch(lower, upper, inside).items():
                fresh = decoded(app, name, changes)
                assert len({(row, time) for row, time, _ in fresh}) == len(fresh), f"{name}: not consolidated: {fresh}"
                assert all(lower <= time < upper and diff for _, time, diff in fresh), f"{name}: [{lower}, {upper})"
                found[name].extend(fresh)
            lower = upper
    return {name: consolidate(changes) for name, changes in found.items()}


def encoded(app: vn.App, source: str, updates: Sequence[Change]) -> Updates:
    """The updates of a source as the matrix that the engine takes."""
    schema = app.sources[source].schema
    if not updates:
        return Updates.empty(schema.width)
    words = schema.encode_rows(row for row, _, _ in updates)
    return Updates.of(words, [time for _, time, _ in updates], [diff for _, _, diff in updates])


def decoded(app: vn.App, view: str, changes: Updates) -> list[Change]:
    """A view's changes as tuples."""
    rows = app.views[view].node.schema.decode_rows(changes.rows)
    return list(zip(rows, changes.time.tolist(), changes.diff.tolist(), strict=True))
