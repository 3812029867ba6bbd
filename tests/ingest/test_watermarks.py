"""Arrival stamps, frontiers of partitions, rounding."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vernier.service.ingest.watermarks import (
    Fact,
    PartitionClock,
    advance_arrival,
    advance_event,
    broker_ms,
    cut_at,
    last_stamp,
    peak_of,
    round_up,
    share_times,
    stamp,
)
from vernier.storage.updates import CLOSED, MIN_TIME

MS = 1_000_000
times = st.integers(MIN_TIME, CLOSED - 1)
edges = st.sampled_from(
    [MIN_TIME, MIN_TIME + 1, -MS, -1, 0, 1, MS - 1, MS, MS + 1, CLOSED - MS, CLOSED - 2, CLOSED - 1]
)


@given(st.lists(st.integers(0, 5)), st.integers(0, 20))
def test_stamps_are_those_of_one_update_at_a_time(ms: list[int], cut: int) -> None:
    """Whatever the cut: the stamp is max(the stamp before + 1, broker time)."""
    expected, last = [], MIN_TIME - 1
    for one in ms:
        last = max(last + 1, one * MS)
        expected.append(last)
    found: list[int] = []
    last = MIN_TIME - 1
    for part in (np.array(ms[:cut], np.int64), np.array(ms[cut:], np.int64)):
        stamps = stamp(last, part).tolist()
        last = last_stamp(last, len(part), peak_of(part))
        assert last == (stamps[-1] if stamps else found[-1] if found else MIN_TIME - 1)
        found += stamps
    assert found == expected


def test_many_updates_of_one_millisecond_count_on_into_the_next() -> None:
    assert stamp(5 * MS + 7, np.array([5, 5, 6], np.int64)).tolist() == [5 * MS + 8, 5 * MS + 9, 6 * MS]


def test_broker_times_beyond_all_data_times_are_clamped() -> None:
    ms = broker_ms(np.array([-1, 7, 2**63 - 1], np.int64))
    assert ms.tolist()[:2] == [0, 7]
    assert stamp(MIN_TIME - 1, np.repeat(ms[2:], 5)).max() < CLOSED


def test_an_arrival_partition_is_complete_up_to_its_last_stamp_or_the_newest_broker_time() -> None:
    clock = advance_arrival(PartitionClock(active_ms=5), Fact(next=3, ms=7, updates=2, peak=7 * MS), 9, 1)
    assert (clock.last, clock.frontier) == (7 * MS + 1, 7 * MS + 2)
    later = advance_arrival(clock, None, 100, 1)
    assert (later.last, later.frontier) == (7 * MS + 1, 99 * MS)
    assert advance_arrival(later, None, 50, 1).frontier == 99 * MS, "the broker's clock jumped back"
    assert advance_arrival(later, Fact(next=4, ms=50), 50, 1).frontier == 99 * MS, "a record that was refused"


def test_an_event_partition_moves_by_promise_or_bounded_lateness() -> None:
    clock = PartitionClock(active_ms=0)
    assert advance_event(clock, Fact(next=1, ms=7, newest=100), 7, None, None).frontier == MIN_TIME
    assert advance_event(clock, Fact(next=1, ms=7, newest=100), 7, 30, None).frontier == 70
    assert advance_event(clock, Fact(next=1, ms=7, newest=100, promise=90), 7, 30, None).frontier == 90
    far = advance_event(clock, Fact(next=1, ms=7, newest=MIN_TIME + 5), 7, 30, None)
    assert far.frontier == MIN_TIME, "the bound reaches before all times"


def test_an_idle_partition_gives_way_until_it_speaks_again() -> None:
    clock = PartitionClock(active_ms=1_000, frontier=5)
    assert not advance_event(clock, None, 2_000, None, 1_000).idle
    idle = advance_event(clock, None, 2_001, None, 1_000)
    assert idle.idle
    assert idle.frontier == 5
    assert not advance_event(idle, Fact(next=1, ms=2_002), 2_002, None, 1_000).idle
    assert not advance_event(clock, None, 10**9, None, None).idle


def test_after_a_jump_back_of_the_broker_clock_the_rest_is_counted_anew() -> None:
    clock = PartitionClock(active_ms=10**6)
    clock = advance_event(clock, None, 1_000, None, 1_000)
    assert not clock.idle
    assert advance_event(clock, None, 2_001, None, 1_000).idle


@given(times | edges)
def test_rounding_up_never_makes_a_time_earlier(time: int) -> None:
    (rounded,) = round_up(np.array([time], np.int64), "millisecond").tolist()
    assert time <= rounded < CLOSED
    assert rounded - time < MS
    assert rounded % MS == 0 or rounded == CLOSED - 1
    assert round_up(np.array([time], np.int64), "exact").tolist() == [time]


@given(times | edges, times | edges | st.just(CLOSED), st.integers(-2, 2))
def test_what_is_cut_is_what_rounds_to_before_the_frontier(time: int, frontier: int, near: int) -> None:
    for one in (time, min(max(frontier // MS * MS + near, MIN_TIME), CLOSED - 1)):
        (rounded,) = round_up(np.array([one], np.int64), "millisecond").tolist()
        assert (rounded < frontier) == (one < cut_at(frontier, "millisecond"))
        assert (one < frontier) == (one < cut_at(frontier, "exact"))


@given(st.integers(-(10**12), 10**18), st.integers(1, 10**12), st.integers(0, 5_000), st.integers(1, 2_000), st.data())
def test_times_that_updates_share(lower: int, width: int, updates: int, records: int, data: st.DataObject) -> None:
    upper = lower + width
    time = np.array(sorted(data.draw(st.lists(st.integers(lower, upper - 1), max_size=30))), np.int64)
    shared = share_times(time, lower, upper, updates, records)
    assert ((shared >= time) & (shared < upper)).all()
    assert (np.diff(shared) >= 0).all()
    assert len(np.unique(shared)) <= max(1, -(-updates // records)) or updates == 0
    # One worker alone, with other updates, gives an update the same time.
    assert share_times(time[::2], lower, upper, updates, records).tolist() == shared[::2].tolist()
    assert share_times(time, MIN_TIME, upper, updates, records).tolist() == time.tolist()
    assert share_times(time, lower, CLOSED, updates, records).tolist() == time.tolist()
