"""Mutants of every format for some seconds, a million of each at night; and the fuzzer finds what it should."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import pytest

from tests.attack.fuzz import Outcome, fuzz
from tests.attack.hostile import FORMATS, Message
from tests.attack.targets import BATCH, TARGETS, Found, kept, mutants
from tests.attack.test_hostile import decoded

_MARK = b"1e-999"


def told(outcome: Outcome, seed: int) -> str:
    """What an assertion says of findings."""
    return f"seed {seed}, {outcome}: {outcome.findings[:3]}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
def test_mutants_are_dead_letters_or_enter(target: str) -> None:
    outcome = fuzz(target, 20 * BATCH, seconds=3)
    assert not outcome.findings, told(outcome, 0)
    assert outcome.cases >= BATCH
    assert min(outcome.entered, outcome.refused) > 0


@pytest.mark.nightly
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", TARGETS)
def test_a_million_mutants(target: str) -> None:
    seed = int(time.time())
    outcome = fuzz(target, 1_000_000, seed)
    assert not outcome.findings, told(outcome, seed)


@pytest.mark.parametrize("form", FORMATS)
def test_the_seeds_enter(form: str) -> None:
    (batch,) = decoded(form, kept(form)).batches
    assert batch.parsed is not None
    assert list(batch.refused) == []
    assert len({*batch.parsed.message.tolist()}) + len(batch.parsed.progress) >= len(kept(form)) - 2


def test_a_number_names_a_mutant() -> None:
    assert mutants("upsert", 3, 1) == mutants("upsert", 3, 1)
    assert mutants("upsert", 3, 1) != mutants("upsert", 4, 1)
    assert len({value for _, value in mutants("json", 0, 0)}) > BATCH // 2


def die(messages: Sequence[Message], number: int) -> Found:
    """A defect that ends the process."""
    if any(_MARK in (value or b"") for _, value in messages):
        os._exit(3)
    return 0, len(messages), []


def fail(messages: Sequence[Message], number: int) -> Found:
    """A defect that raises."""
    if any(_MARK in (value or b"") for _, value in messages):
        raise ZeroDivisionError("of all things")
    return 0, len(messages), []


def grow(messages: Sequence[Message], number: int) -> Found:
    """A defect that tells of a message itself."""
    return 0, len(messages), [("too much", one) for one in messages if _MARK in (one[1] or b"")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "said"), [("die", "dies with status 3"), ("fail", "ZeroDivision"), ("grow", "too m")]
)
def test_a_planted_defect_is_found_with_its_input(defect: str, said: str) -> None:
    outcome = fuzz(f"json={__name__}.{defect}", 2 * BATCH)
    assert outcome.findings
    for problem, (_, value) in outcome.findings:
        assert said in problem
        assert value is not None
        assert _MARK in value
