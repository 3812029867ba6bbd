"""Hot keys: which key has a large part of the rows that workers send to one operator, as a whole service.

A worker owns the hash of a key, so all rows of one key go to one worker: a key that has half of all rows keeps one
worker busy, however many there are. Workers report samples (operators/runtime/key_sample.py).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vernier.operators.planning.plan import Plan
from vernier.service.cluster.messages import Report

_log = logging.getLogger(__name__)

SHOWN = 0.25
"""Keys with a smaller share of the rows are not shown."""
HALF = 0.5
_WIDTH = 60


@dataclass(frozen=True, slots=True)
class HotKeyShare:
    """A key with this share of the rows that are sent to an operator."""

    operator: str
    key: str
    share: float


def hot_keys(reports: Sequence[Report]) -> list[HotKeyShare]:
    """The hot key of each operator that has one, by the samples of all workers."""
    looked: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = {}
    for report in reports:
        for operator, (key, share, samples) in report.hot_keys.items():
            looked[operator] += samples
            counts.setdefault(operator, Counter())[key] += round(share * samples)
    found = []
    for operator, keys in counts.items():
        ((key, count),) = keys.most_common(1)
        if count >= SHOWN * looked[operator]:
            found.append(
                HotKeyShare(operator, key if len(key) <= _WIDTH else key[:_WIDTH] + "…", count / looked[operator])
            )
    return found


class HotKeyLog:
    """Says once for each operator and key that a key has at least half of the rows."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def follow(self, found: Sequence[HotKeyShare], plan: Plan) -> None:
        """Look at the hot keys of an epoch of this plan."""
        for hot in found:
            if hot.share >= HALF and (hot.operator, hot.key) not in self._said:
                self._said.add((hot.operator, hot.key))
                _log.warning(
                    "%.0f%% of the rows that are sent to %s (operator %s) have one key, %s: one worker does all of "
                    "their work; see docs/operations.md, a hot key",
                    100 * hot.share, plan.ops[int(hot.operator)].name, hot.operator, hot.key,
                )  # fmt: skip
