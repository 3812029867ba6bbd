"""Slices that are treated as loads, whose operators release early what they have emitted, against the oracle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.profiles import no_timeout, seeds
from tests.properties.graphs import motion
from tests.properties.test_known import FAMILIES, check
from vernier.operators.engine import worker
from vernier.operators.runtime import chunking
from vernier.operators.runtime.operator import Operator
from vernier.storage.trace import batch, spine


@no_timeout
@pytest.mark.parametrize("family", FAMILIES)
def test_programs_give_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MANY", 0)
    monkeypatch.setattr(worker, "LOAD", 0)
    monkeypatch.setattr(chunking, "_SMALL", 0)
    released = 0
    release = Operator.release

    def counted(operator: Operator) -> None:
        nonlocal released
        released += operator.out is not None
        release(operator)

    monkeypatch.setattr(Operator, "release", counted)
    for seed in seeds(6):
        for deep in (False, True):
            check(FAMILIES[family], replace(motion(seed, deep=deep), interpret=False))
    assert released > 0


@no_timeout
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("interpret", [True, False])
def test_narrow_columns_give_the_same(family: str, interpret: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches that Python builds are narrow; small slices, if they are interpreted, read them and add wide ones."""
    monkeypatch.setattr(worker, "MANY", 6 if interpret else 0)
    monkeypatch.setattr(batch, "_MANY", 0)
    for name in ("MANY", "_ONE_PASS", "_FOLDED"):
        monkeypatch.setattr(spine, name, 0)
    monkeypatch.setattr(spine, "LARGE", 1)
    for seed in seeds(6):
        for deep in (False, True):
            check(FAMILIES[family], replace(motion(seed, deep=deep), interpret=interpret))
