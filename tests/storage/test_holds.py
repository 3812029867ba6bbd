"""Readers' holds: since and merges stop for them and move on when they go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from vernier.storage.errors import CutLost, HoldTooEarly, HoldWentBack
from vernier.storage.time.antichain import Antichain
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.batch import keyed_rows
from vernier.storage.trace.holds import Holds
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME, Updates


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches do not wait for others to merge with."""
    monkeypatch.setattr(trace_module, "SMALL", 1)


def test_the_common_frontier_moves_when_the_last_reader_lets_go() -> None:
    holds = Holds(2)
    assert (len(holds.frontier), holds.earliest) == (0, None)
    one = holds.take(Antichain([(3, 0)]))
    with holds.take(Antichain([(1, 2), (2, 0)])) as two:
        again = holds.take(Antichain([(1, 2)]))
        assert list(holds.frontier) == [(1, 2), (2, 0)]
        assert holds.earliest == 1
        two.advance(Antichain([(2, 2), (4, 0)]))
        assert list(holds.frontier) == [(1, 2), (3, 0)]
        with pytest.raises(HoldWentBack):
            two.advance(Antichain([(0, 0)]))
    again.release()
    again.release()
    assert list(holds.frontier) == [(3, 0)]
    one.advance(Antichain([(7, 1)]))
    assert holds.earliest == 7
    one.release()
    assert holds.frontier == Antichain((), 2)


def life(trace: Trace, number: int, n: int = 5) -> None:
    """Slice [10 number, 10 number + 10) of a trace: n facts come, on few keys."""
    lower = 10 * number
    rows = [[(number + i) % 7, i] for i in range(n)]
    trace.seal(keyed_rows(Updates.of(rows, lower + np.arange(n) % 10, 1), 1), lower, lower + 10)
    trace.close_slice(lower + 10)


def at(trace: Trace, time: int) -> Counter[tuple[int, int]]:
    """The facts at a time."""
    found: Counter[tuple[int, int]] = Counter()
    for batch in trace.batches:
        for key, val, stamp, diff in batch.to_updates().data.tolist():
            if stamp <= time:
                found[key, val] += diff
    return found


def test_since_stays_before_what_is_held() -> None:
    trace, free = Trace("t", 1, 1, 0), Trace("t", 1, 1, 0)
    for number in range(3):
        life(trace, number)
        life(free, number)
    hold = trace.fork().advance_by(Antichain([(30,)]))
    seen = at(free, 30)
    for number in range(3, 9):
        life(trace, number)
        life(free, number)
        assert (trace.since, free.since) == (30, 10 * number + 10)
        assert at(trace, 29) == Counter()
        assert at(trace, 30) == seen + Counter({(3, 0): 1})
    assert at(free, 30) == Counter()
    with pytest.raises(HoldTooEarly):
        trace.advance_by(Antichain([(29,)]))
    hold.advance(Antichain([(55,)]))
    life(trace, 9)
    assert trace.since == 55
    hold.release()
    life(trace, 10)
    assert trace.since == 110


def test_no_merge_crosses_a_cut_that_is_held() -> None:
    trace = Trace("t", 1, 1, 0)
    for number in range(4):
        life(trace, number)
    with pytest.raises(CutLost):
        trace.cursor_through(15)
    hold = trace.distinguish(40)
    past = trace.cursor_through(40).range()
    for number in range(4, 12):
        life(trace, number)
        assert np.array_equal(trace.cursor_through(40).range(), past)
    with trace.distinguish(120):
        assert len(trace.cursor_through(120).range()) > len(past)
        hold.release()
        for number in range(12, 40):
            life(trace, number)
        trace.cursor_through(120)
        with pytest.raises(CutLost):
            trace.cursor_through(40)
    assert len(trace.cursor_through(MIN_TIME).batches) == 0
