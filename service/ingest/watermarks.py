"""Watermarks: the clocks of input partitions, that is, when an update happened and how far a partition is complete.

There are two kinds of clock (docs/messages.md, "Clocks"). `arrival` stamps every update with a time that strictly
increases within its partition and depends on the partition's log alone, so a replay gives the same times. `event` uses
the producer's times and advances by promises (progress messages), by a bounded delay, or not at all.

Everything here is a pure function of a partition's clock, of what an epoch brought for it (its Fact) and of the
broker's time. No wall clock is read, so all workers, and every replay, compute the same frontiers.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from vernier.service.ingest.deduplication import Copies, Counted, Statement, advance_counted, unpack
from vernier.storage.updates import CLOSED, MIN_TIME

Ints = npt.NDArray[np.int64]

NS_PER_MS = 1_000_000
MAX_TIME = CLOSED - 1
_LATEST_MS = CLOSED // NS_PER_MS - 1_000
"""Broker times are clamped to this, one second before data times end, so stamps can still count upwards from it."""

Rounding = Literal["exact", "millisecond"]


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one epoch brought for one partition; workers exchange these.

    next: the offset after the last record. ms: the newest broker time. updates, peak: the number of updates and their
    `peak_of`. newest: the greatest event time. promise: the greatest time that was promised as complete (nothing before
    it follows). statements: counted progress. marks: the marks of the updates (deduplication.pack), if the partition is
    counted. snapshot, snapped: see PartitionClock.
    """

    next: int
    ms: int
    updates: int = 0
    peak: int = MIN_TIME
    newest: int = MIN_TIME
    promise: int = MIN_TIME
    statements: tuple[Statement, ...] = ()
    marks: str = ""
    snapshot: int | None = None
    snapped: bool = False


class PartitionClock(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a partition's clock after an epoch.

    frontier: all updates before this time have arrived. active_ms: the broker's time when the partition last had
    records, or when the service began to wait for it. idle: it no longer holds back the others. last: its last arrival
    stamp. counted: how far its counts are met, if it has ever had any. snapshot: the data time of the rows of a
    snapshot of which only a part has come; snapped: whether one has ended (table_snapshots.py).
    """

    active_ms: int
    frontier: int = MIN_TIME
    idle: bool = False
    last: int = MIN_TIME - 1
    counted: Counted | None = None
    snapshot: int | None = None
    snapped: bool = False

    @property
    def reached(self) -> int | None:
        """The frontier up to which this partition lets the service go; None if it holds nothing back."""
        if self.snapshot is not None:
            return min(self.frontier, self.snapshot)
        return None if self.idle else self.frontier


def broker_ms(timestamps: Ints) -> Ints:
    """Broker times in ms clamped to what fits as ns: not before 1970, and not so late that a stamp would overflow."""
    return np.clip(timestamps, 0, _LATEST_MS)


def stamp(last: int, ms: Ints) -> Ints:
    """Arrival times of a partition's next updates: each is the maximum of its broker time and the previous stamp plus
    one.

    last: the partition's last stamp; ms: int64[n], the broker times of its next n updates in offset order. O(n).
    """
    index = np.arange(len(ms), dtype=np.int64)
    return index + np.maximum(np.maximum.accumulate(ms * NS_PER_MS - index), last + 1)


def peak_of(ms: Ints) -> int:
    """The one number from which `last_stamp` computes the last stamp of these updates: max(broker ns - position)."""
    return int((ms * NS_PER_MS - np.arange(len(ms), dtype=np.int64)).max(initial=MIN_TIME))


def last_stamp(last: int, updates: int, peak: int) -> int:
    """The last of the stamps that `stamp` would give to `updates` updates with this peak, without their broker
    times."""
    return last if updates == 0 else updates - 1 + max(last + 1, peak)


def advance_arrival(clock: PartitionClock, fact: Fact | None, now_ms: int, slack_ms: int) -> PartitionClock:
    """The clock after an epoch whose newest broker time was `now_ms`.

    A partition with records is complete up to its last stamp. A partition without records had none when the epoch's
    offsets were fixed. Records appended later carry a later broker time, up to the skew of brokers and of that moment:
    `slack_ms`.
    """
    if fact is None:
        frontier = min(max(now_ms - slack_ms, 0), _LATEST_MS) * NS_PER_MS
        return msgspec.structs.replace(clock, frontier=max(clock.frontier, frontier))
    last = last_stamp(clock.last, fact.updates, fact.peak)
    reached = last + 1 if fact.updates else clock.frontier
    return msgspec.structs.replace(
        clock, active_ms=now_ms, frontier=max(clock.frontier, reached), idle=False, last=last, counted=None
    )


def advance_event(
    clock: PartitionClock, fact: Fact | None, now_ms: int, lateness_ns: int | None, idle_timeout_ms: int | None
) -> PartitionClock:
    """The clock after an epoch. It advances to the promised time and, unless its progress is counted, to the newest
    time minus the bounded lateness, if there is one.

    A partition whose counts are not met is never idle: it is waited for.
    """
    if fact is None:
        # If the broker's clock has jumped back, the idle time is counted from the new, earlier time.
        active_ms = min(clock.active_ms, now_ms)
        waits = clock.counted is not None and len(clock.counted.open) > 0
        idle = not waits and (clock.idle or (idle_timeout_ms is not None and now_ms - active_ms > idle_timeout_ms))
        return msgspec.structs.replace(clock, active_ms=active_ms, idle=idle)
    frontier, counted = max(clock.frontier, fact.promise), clock.counted
    if counted is None and lateness_ns is not None:
        frontier = max(frontier, fact.newest - lateness_ns)
    if counted is None and fact.statements:
        counted = Counted(complete=frontier, open=tuple(sorted({*fact.statements})))
    return msgspec.structs.replace(clock, active_ms=now_ms, frontier=frontier, idle=False, counted=counted)


def count_updates(
    clock: PartitionClock, fact: Fact | None, held: Sequence[Ints], lower: int
) -> tuple[PartitionClock, Copies | None]:
    """A counted partition's clock after this epoch's updates are counted, before `advance_event`, and its second
    copies.

    held: the marks of all workers' held updates of the partition; lower: the epoch's input frontier.
    """
    if clock.counted is None:
        return clock, None
    statements, fresh = (fact.statements, unpack(fact.marks)) if fact is not None else ((), unpack(""))
    counted, copies = advance_counted(clock.counted, statements, held, fresh, lower)
    if fact is not None and fact.promise > counted.complete:
        counted = msgspec.structs.replace(counted, complete=fact.promise)
    frontier = max(clock.frontier, counted.complete)
    return msgspec.structs.replace(clock, frontier=frontier, counted=counted), copies


def round_up(time: Ints, rounding: Rounding) -> Ints:
    """Times rounded up, so never earlier than they were, int64[n]."""
    if rounding == "exact":
        return time
    last = MAX_TIME - MAX_TIME % NS_PER_MS
    up = np.minimum(time, last)
    return np.where(time > last, MAX_TIME, up + (-up) % NS_PER_MS)


def round_up_one(time: int, rounding: Rounding) -> int:
    """One time rounded up."""
    return int(round_up(np.array([time], np.int64), rounding)[0])


def share_times(time: Ints, lower: int, upper: int, updates: int, records: int) -> Ints:
    """Fewer distinct times for the updates of an epoch [lower, upper): its interval is divided evenly so that about
    `records` of its `updates` share a time, the last time of their part. Times never become earlier and stay before
    `upper`; int64[n].

    All workers divide it alike, so the updates of a part become visible together. An epoch without a bound is left
    unchanged.
    """
    parts = -(-updates // records)
    if parts == 0 or lower == MIN_TIME or upper == CLOSED:
        return time
    width = max(1, -(-(upper - lower) // parts))
    return np.minimum(lower + ((time - lower) // width + 1) * width - 1, upper - 1)


def cut_at(frontier: int, rounding: Rounding) -> int:
    """The first time that `round_up` does not put before `frontier`. round_up(t) < frontier iff t <
    cut_at(frontier)."""
    if rounding == "exact" or frontier in (MIN_TIME, CLOSED):
        return frontier
    before = frontier - 1
    return max(before - before % NS_PER_MS + 1, MIN_TIME)
