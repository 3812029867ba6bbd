"""Admission: how many messages the next epoch may take, so that it takes about as long as is wanted.

Small epochs cost Spark's own tenth of a second whatever is in them, large ones hold their messages in memory and let
everybody wait. Between a floor and a ceiling the limit follows what epochs that were full have cost: at most doubled,
at most divided by four, so that one odd epoch cannot throw it far. It begins low, because the first burst is the one
of which nothing is known. Epochs that are not full tell nothing, unless even they take too long. Those with next to
nothing in them tell what every epoch costs; where that alone is near the target, smaller epochs would only be more of
them, so half a target is always left for messages.
"""

from __future__ import annotations

from collections import deque

FULL = 0.8
"""The part of the limit from which on an epoch counts as full: Spark rounds the shares of partitions."""

_FIRST = 16
_UP, _DOWN = 2.0, 0.25
_LATE = 1.5
_IDLE_EPOCHS, _BELIEVED = 32, 3


class Admission:
    """The limit of one service. target: seconds an epoch should take. floor, ceiling: messages; ceiling None: no end.

    Without a target or a ceiling the limit is the ceiling, always. `limit`: what the next epoch may take; None: all.
    """

    def __init__(self, target: float | None, floor: int, ceiling: int | None) -> None:
        self.target, self.ceiling = target, ceiling
        self.floor = floor if ceiling is None else min(floor, ceiling)
        self.limit = ceiling
        self._idle: deque[float] = deque(maxlen=_IDLE_EPOCHS)
        if target is not None and ceiling is not None:
            self.limit = max(self.floor, ceiling // _FIRST)

    def took(self, messages: int, seconds: float) -> bool:
        """An epoch of so many messages took so long. Returns whether the limit is another one now."""
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
        room, work = max(self.target - fixed, self.target / 2), max(seconds - fixed, seconds / 10, 1e-3)
        wanted = messages * room / work
        wanted = min(max(wanted, limit * _DOWN), limit * _UP)
        if not full:
            wanted = min(wanted, limit)
        self.limit = min(max(int(wanted), self.floor), self.ceiling)
        return self.limit != limit
