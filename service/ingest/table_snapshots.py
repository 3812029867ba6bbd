"""Snapshots that a connector sends as messages: the rows of a table, before its changes (Debezium's `source.snapshot`).

In: which messages of a partition are rows of a snapshot (`Mark`), in log order. Out: the data time at which these rows
enter, which is that of the partition's first one, and how long the partition holds the frontier back: from its first
row until a message of the topic says that the snapshot has ended, or is a change. So a time at which a part of a
partition's rows is there is never final. A snapshot that begins again without being marked as the first one is no
reason to wait. The rows' time depends on the partition's log alone. Cost: some Python for each message of a batch with
rows of a snapshot, else nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from vernier.service.ingest.watermarks import PartitionClock

Ints = npt.NDArray[np.int64]
Marks = npt.NDArray[np.int8]


class Mark(IntEnum):
    """What a message is to a snapshot: nothing, one of its rows, the first one, the last one."""

    NONE = 0
    ROW = 1
    FIRST = 2
    LAST = 3


@dataclass(frozen=True, slots=True)
class Followed:
    """A partition's snapshot after a run of messages. updates: numbers of the run's updates that are its rows; times:
    when each enters; at: the time of its rows while it goes on; ended: whether one has ended in this run."""

    updates: Sequence[int]
    times: Sequence[int]
    at: int | None
    ended: bool

    def enter(self, time: Ints) -> None:
        """Write the rows' times into those of the run's updates."""
        time[np.array(self.updates, np.int64)] = np.array(self.times, np.int64)


def follow(clock: PartitionClock, marks: Marks | None, message: Ints, time: Ints, frontier: int) -> Followed:
    """Follow a partition's snapshot through a run of messages. marks: int8[m], by message; message, time: int64[n], of
    the run's updates, with messages counted from 0. frontier: times before it are final."""
    at, ended, snapped = clock.snapshot, False, clock.snapped and clock.snapshot is None
    if (marks is None or not marks.any()) and at is None:
        return Followed((), (), None, False)
    said = np.zeros(int(message.max(initial=-1)) + 1, np.int8) if marks is None else marks
    bounds = np.searchsorted(message, np.arange(len(said) + 1)).tolist()
    updates, times = list[int](), list[int]()
    for number, mark in enumerate(said.tolist()):
        own = range(bounds[number], bounds[number + 1])
        snapped = snapped and mark != Mark.FIRST
        if mark != Mark.NONE and not snapped:
            if at is None and own:
                at = max(int(time[own[0]]), frontier)
            if at is not None:
                updates += own
                times += [at] * len(own)
        if at is not None and (mark == Mark.LAST or (mark == Mark.NONE and own)):
            at, ended, snapped = None, True, True
        elif mark == Mark.LAST:
            ended = snapped = True
    return Followed(updates, times, at, ended)
