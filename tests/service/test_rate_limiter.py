"""The rate limiter: its limit settles where an epoch takes what is wanted, and stays between floor and ceiling."""

import pytest

from vernier.service.coordinator.rate_limiter import RateLimiter


def settle(limiter: RateLimiter, cost: float, fixed: float = 0.2, epochs: int = 40, comes: int = 10**9) -> list[int]:
    """The limit in each epoch for a program with this processing time a message, while this many messages wait."""
    limits = []
    for _ in range(epochs):
        assert limiter.limit is not None
        messages = min(limiter.limit, comes)
        limiter.took(messages, fixed + cost * messages)
        limits.append(limiter.limit)
    return limits


@pytest.mark.parametrize("cost", [1e-6, 1e-5, 1e-4, 1e-3])
def test_a_full_epoch_comes_to_take_what_is_wanted(cost: float) -> None:
    limiter = RateLimiter(2.0, 100, 1_000_000)
    limit = settle(limiter, cost)[-1]
    assert limit == pytest.approx(min(1_000_000, 1.8 / cost), rel=0.1)


def test_it_follows_when_messages_become_dearer_and_cheaper() -> None:
    limiter = RateLimiter(2.0, 100, 1_000_000)
    before = settle(limiter, 1e-5)[-1]
    dearer = settle(limiter, 1e-3)
    assert dearer[0] == before // 4  # not at once, whatever one epoch has cost
    assert dearer[-1] == pytest.approx(1_800, rel=0.1)
    again = settle(limiter, 1e-5)
    assert again[0] == dearer[-1] * 2
    assert again[-1] == pytest.approx(before, rel=0.1)


def test_between_floor_and_ceiling() -> None:
    assert settle(RateLimiter(1.0, 500, 8_000), 1.0)[-1] == 500
    assert settle(RateLimiter(1.0, 500, 8_000), 1e-9)[-1] == 8_000
    assert RateLimiter(1.0, 500, 8_000).limit == 500
    assert RateLimiter(1.0, 500, 100).limit == 100


def test_it_begins_low() -> None:
    assert RateLimiter(1.0, 100, 200_000).limit == 12_500


def test_epochs_that_are_not_full_leave_it_alone_unless_they_are_late() -> None:
    limiter = RateLimiter(1.0, 100, 160_000)
    assert limiter.limit == 10_000
    assert not limiter.took(5_000, 0.1)
    assert not limiter.took(50, 60.0)  # compiling, or a machine that slept: nothing that fewer messages would help
    assert not limiter.took(5_000, 1.4)
    assert limiter.took(5_000, 5.0)
    assert limiter.limit == 2_500


def test_where_spark_alone_takes_as_long_epochs_do_not_shrink_for_it() -> None:
    limiter = RateLimiter(2.0, 1_000, 200_000)
    assert not limiter.took(0, 70.0)  # the first epoch of all, which compiles
    for _ in range(5):
        assert not limiter.took(10, 3.0)
    assert settle(limiter, 1e-4, fixed=3.0)[-1] == pytest.approx(10_000, rel=0.1)


@pytest.mark.parametrize(("target", "ceiling"), [(None, 200_000), (None, None), (1.0, None)])
def test_without_a_target_or_a_ceiling_it_is_fixed(target: float | None, ceiling: int | None) -> None:
    limiter = RateLimiter(target, 100, ceiling)
    assert not limiter.took(1_000_000, 100.0)
    assert limiter.limit == ceiling
