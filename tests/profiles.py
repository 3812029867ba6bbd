"""How hard tests with random cases try: the hypothesis profiles, and what a single test says about itself.

HYPOTHESIS_PROFILE: `dev` (the default, and what `make test` uses: a quarter of the cases), `ci` (`make test-all`: all
cases, the same ones on each run) and `nightly` (10,000 cases a property).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

NIGHTLY_EXAMPLES, NIGHTLY_SEEDS = 10_000, 500
_PATIENT = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

# No deadline anywhere: the first call of a kernel compiles it, and timing never decides a test.
settings.register_profile("dev", deadline=None, max_examples=25)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=_PATIENT)
settings.register_profile(
    "nightly", deadline=None, max_examples=NIGHTLY_EXAMPLES, print_blob=True, suppress_health_check=_PATIENT
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
NIGHTLY = PROFILE == "nightly"
SHORT = PROFILE == "dev"
settings.load_profile(PROFILE)

no_timeout = pytest.mark.timeout(0 if NIGHTLY else 300)
"""Nightly runs of one property take longer than any one test may otherwise."""

F = TypeVar("F", bound=Callable[..., None])


def examples(count: int) -> Callable[[F], F]:
    """This number of cases for a hypothesis test; a quarter of it in the short suite, 10,000 in the nightly one."""

    def decorate(test: F) -> F:
        number = NIGHTLY_EXAMPLES if NIGHTLY else shorter(count)
        tries = settings(max_examples=number, deadline=None, suppress_health_check=_PATIENT)
        decorated: F = no_timeout(tries(test))
        return decorated

    return decorate


def seeds(count: int) -> range:
    """This number of seeds for a plain random test; a quarter of it in the short suite, 500 in the nightly one."""
    return range(NIGHTLY_SEEDS if NIGHTLY else shorter(count))


def shorter(count: int, short: int | None = None) -> int:
    """`count` of anything that a test repeats; in the short suite `short`, or a quarter of `count`."""
    if not SHORT:
        return count
    return max(1, count // 4) if short is None else short
