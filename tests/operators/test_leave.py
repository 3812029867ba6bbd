"""Results of loops that are consolidated while the loop runs, against the oracle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.profiles import no_timeout, seeds
from tests.properties.graphs import motion
from tests.properties.test_known import FAMILIES, check
from vernier.operators.physical import iterate
from vernier.operators.runtime.exchange import Round
from vernier.storage.updates import Ints


@no_timeout
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("collected", "growth"), [(0, 0), (3, 2)])
def test_results_are_the_same(family: str, collected: int, growth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterate, "_COLLECTED", collected)
    monkeypatch.setattr(iterate, "_GROWTH", growth)
    settled = 0
    moved = iterate.Leave._moved

    def counted(leave: iterate.Leave, now: Round) -> Ints:
        nonlocal settled
        settled += leave.room < 0
        return moved(leave, now)

    monkeypatch.setattr(iterate.Leave, "_moved", counted)
    for seed in seeds(4):
        for deep in (False, True):
            check(FAMILIES[family], replace(motion(seed, deep=deep), interpret=False))
    assert settled > 0
