"""Known programs on graphs in motion: every view changes as the oracle says, at every data time, however it is cut."""

from __future__ import annotations

import pytest

from tests.oracle.model import changes
from tests.profiles import no_timeout, seeds
from tests.properties.engine import run
from tests.properties.graphs import Motion, motion
from tests.properties.programs import KNOWN, known_programs

FAMILIES = {
    "search": ("reach", "bfs", "distances", "histogram", "even", "odd"),
    "components": ("strong", "components"),
    "cores": ("core", "core3"),
    "strong core": ("strong_core",),
    "games": ("fed", "winning", "winning5", "winning8", "self_join"),
    "bounded": ("walks", "flips"),
}


def check(names: tuple[str, ...], case: Motion) -> None:
    """All of these programs, as views of one app, against the oracle."""
    expected = {name: changes(KNOWN[name].oracle, case.updates) for name in names}
    found = run(
        known_programs(names),
        case.updates,
        cuts=case.cuts,
        workers=case.workers,
        slice_updates=case.slice_updates,
        between=case.between,
        interpret=case.interpret,
        keep_views=case.keep_views,
    )
    for name in names:
        assert found[name] == expected[name], name


def test_every_program_is_in_a_family() -> None:
    assert {name for names in FAMILIES.values() for name in names} == set(KNOWN)


@no_timeout
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("deep", [False, True], ids=["dense", "deep"])
def test_graphs_in_motion(family: str, deep: bool) -> None:
    for seed in seeds(12):
        try:
            check(FAMILIES[family], motion(seed, deep=deep))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@no_timeout
@pytest.mark.parametrize("family", ["components", "cores", "strong core", "games", "bounded"])
def test_edges_that_go_without_having_come(family: str) -> None:
    """These programs look at edges.distinct() or are bounded, so that negative multiplicities are legal in them."""
    for seed in seeds(6):
        case = motion(seed, spurious=True)
        try:
            check(FAMILIES[family], case)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
