"""The rate limiter (class RateLimiter): how many messages the next epoch may take, so that it takes about the target
time.

A small epoch costs Spark's fixed overhead of about a tenth of a second, whatever is in it. A large one keeps its
messages in memory and delays all readers. Between a floor and a ceiling, the limit follows the measured cost of full
epochs. It is at most doubled and at most divided by four, so a single outlier cannot move it far. It starts low,
because nothing is known about the first burst. Epochs that are not full say nothing about the cost of a message, unless
even they take too long. Nearly empty epochs show the fixed cost of an epoch. If that alone is close to the target,
smaller epochs would only increase the number of epochs, so at least half of the target is always left for messages.
"""

from __future__ import annotations

from collections import deque

from vernier.service.config.sections import Epoch

FULL = 0.8
"""The fraction of the limit above which an epoch counts as full. It is below 1 because Spark rounds the shares of
partitions."""

_FIRST = 16
_UP, _DOWN = 2.0, 0.25
_LATE = 1.5
_IDLE_EPOCHS, _BELIEVED = 32, 3


class RateLimiter:
    """The rate limit of one service. target: seconds an epoch should take. floor, ceiling: messages; ceiling None:
    unlimited.

    Without a target or a ceiling, the limit is always the ceiling. `limit`: the messages the next epoch may take; None:
    all.
    """

    def __init__(self, target: float | None, floor: int, ceiling: int | None) -> None:
        self.target, self.ceiling = target, ceiling
        self.floor = floor if ceiling is None else min(floor, ceiling)
        self.limit = ceiling
        self._idle: deque[float] = deque(maxlen=_IDLE_EPOCHS)
        if target is not None and ceiling is not None:
            self.limit = max(self.floor, ceiling // _FIRST)

    @staticmethod
    def of(settings: Epoch) -> RateLimiter:
        """The rate limit that the settings ask for."""
        target = None if settings.target_ms is None else settings.target_ms / 1000
        return RateLimiter(target, settings.min_messages, settings.max_messages)

    def took(self, messages: int, seconds: float) -> bool:
        """Record an epoch of this many messages that took this long. Returns whether the limit has changed."""
        limit = self.limit
        if self.target is None or limit is None or self.ceiling is None:
            return False
        if messages < self.floor:
            self._idle.append(seconds)
            return False
        full = messages >= FULL * limit
        if not full and seconds <= _LATE * self.target:
            return False
        fixed = min(self._idle) if len(self._idle) >= _BELIEVED else 0.0
        budget, work = max(self.target - fixed, self.target / 2), max(seconds - fixed, seconds / 10, 1e-3)
        wanted = messages * budget / work
        wanted = min(max(wanted, limit * _DOWN), limit * _UP)
        if not full:
            wanted = min(wanted, limit)
        self.limit = min(max(int(wanted), self.floor), self.ceiling)
        return self.limit != limit
