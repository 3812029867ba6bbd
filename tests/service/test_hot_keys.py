"""Which keys are hot in a whole service, by the samples of its workers, and what its log says."""

from __future__ import annotations

import logging

import msgspec
import pytest

from configs.demo import app
from tests.service.test_rendezvous import report
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.messages import Report
from vernier.service.coordinator.hot_keys import HotKeyLog, HotKeyShare, hot_keys


def reports(*found: dict[str, tuple[str, float, int]]) -> list[Report]:
    """Of workers that have found these keys."""
    return [msgspec.structs.replace(report("a", shard), hot_keys=one) for shard, one in enumerate(found)]


def test_the_samples_of_all_workers_count() -> None:
    assert hot_keys(reports({"3": ("src=1", 0.6, 1000)}, {"3": ("src=1", 0.2, 1000)})) == [
        HotKeyShare("3", "src=1", 0.4)
    ]
    assert hot_keys(reports({"3": ("src=1", 0.6, 1000)}, {"3": ("src=2", 0.2, 200)})) == [
        HotKeyShare("3", "src=1", 0.5)
    ]
    assert hot_keys(reports({"3": ("src=1", 0.24, 1000)}, {})) == []
    assert hot_keys(reports({}, {})) == []


def test_a_long_key_is_cut() -> None:
    (hot,) = hot_keys(reports({"3": ("name='" + 100 * "x" + "'", 1.0, 1000)}))
    assert hot.key.endswith("x…")
    assert len(hot.key) == 61


def test_half_of_all_rows_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    plan, log = compile_app(app), HotKeyLog()
    with caplog.at_level(logging.WARNING):
        log.follow(hot_keys(reports({"3": ("src=1", 0.4, 1000)})), plan)
        assert not caplog.messages
        for _ in range(3):
            log.follow(hot_keys(reports({"3": ("src=1", 0.6, 1000), "4": ("dst=2", 0.5, 1000)})), plan)
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith(
        f"60% of the rows that are sent to {plan.ops[3].name} (operator 3) have one key, src=1"
    )
