"""Reductions in loops that read the leading vals of keys alone, against whole histories and against the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples, no_timeout, seeds
from tests.properties.graphs import motion
from tests.properties.test_known import check
from tests.storage.test_histories import asked
from vernier.operators.physical import reduce as reduce_module
from vernier.storage.errors import DiffOverflow
from vernier.storage.trace import history_cache as histories_module
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.batch import key_updates
from vernier.storage.trace.spine import Selection, Trace
from vernier.storage.updates import Ints

KEYS, ROUNDS = 4, 4
PROGRAMS = ("reach", "bfs", "distances", "histogram", "even", "odd", "components")

rows = st.lists(
    st.tuples(
        st.integers(0, KEYS - 1), st.integers(0, 3), st.integers(0, 1), st.integers(0, 2), st.integers(0, ROUNDS - 1),
        st.sampled_from((-1, 1, 1, 2)),
    ),
    max_size=14,
)  # fmt: skip


def lasts(group: list[list[int]], v: int, begin: int, now: int, limit: int) -> bool:
    """Whether a val surely has enough copies from `begin` on: all that go after it, at once, leave enough."""
    there = sum(diff for *_, time, at, diff in group if at <= now and time <= begin)
    return there + sum(min(diff, 0) for *_, time, at, diff in group if at <= now and time > begin) >= limit


@examples(150)
@given(
    slices=st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=4),
    now=st.integers(0, ROUNDS - 1),
    both=st.booleans(),
    limit=st.integers(1, 2),
    k=st.integers(1, 2),
    v=st.integers(0, 2),
    large=st.sampled_from((1, 6, 1 << 17)),
    alone=st.booleans(),
)
def test_what_is_read_is_the_beginning_of_the_history(
    slices: list[list[list[tuple[int, ...]]]], now: int, both: bool, limit: int, k: int, v: int, large: int, alone: bool
) -> None:
    trace = Trace("t", k, v, 1)
    before, trace_module.LARGE = trace_module.LARGE, large
    try:
        for number, steps in enumerate(slices):
            trace.loads = True
            fold = 3 * number - 1
            for step in steps:
                data = np.array(
                    [
                        (*[key] * k, *(one, two)[:v], 3 * number + (0 if alone else time), at, diff)
                        for key, one, two, time, at, diff in step
                    ],
                    np.int64,
                ).reshape(-1, k + v + 3)
                keyed = key_updates(data, np.arange(k), np.arange(k, k + v), 1)
                trace.seal(keyed, 3 * number, 3 * number + 3)
            if number + 1 < len(slices):
                trace.close_slice(3 * number + 3)
        wanted = asked(np.column_stack([np.arange(KEYS + 1)] * k))
        whole = trace.select(wanted, fold=fold)
        histories = [whole.entries[begin:end].tolist() for begin, end in whole.spans.tolist()]
        settled = trace.settled
        part = trace.select_leading(wanted, fold=fold, now=now, both=both, limit=limit)
        parts = [part.entries[begin:end].tolist() for begin, end in part.spans.tolist()]
        again = trace.select(wanted, fold=fold)
        assert [again.entries[begin:end].tolist() for begin, end in again.spans.tolist()] == histories
    finally:
        trace_module.LARGE = before
    for history, found in zip(histories, parts, strict=True):
        assert found == history[: len(found)]
        since = fold
        if alone and not any(time == fold for *_, time, _, _ in history) and len(settled) == 0 and trace.loading:
            since = 3 * (len(slices) - 1)
        vals = sorted({tuple(entry[:v]) for entry in found})
        for val in vals:
            group = [entry for entry in history if tuple(entry[:v]) == val]
            enough = lasts(group, v, fold, now, limit) and (not both or lasts(group, v, fold, now - 1, limit))
            assert not enough or val == vals[-1]
        if len(found) < len(history):
            assert vals
            group = [entry for entry in history if tuple(entry[:v]) == vals[-1]]
            assert group == found[-len(group) :]
            assert lasts(group, v, since, now, limit)
            assert not both or lasts(group, v, since, now - 1, limit)


def test_sums_that_leave_int64_are_refused() -> None:
    trace = Trace("t", 1, 1, 1)
    for time in range(2):
        rows = np.array([[1, 5, time, 0, 2**63 - 1]])
        trace.seal(key_updates(rows, np.array([0]), np.array([1]), 1), time, time + 1)
        trace.close_slice(time + 1)
    with pytest.raises(DiffOverflow):
        trace.select_leading(asked(np.array([[1]])), fold=2, now=0, both=False, limit=1)


@no_timeout
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("steps", [0, 3, 32])
@pytest.mark.parametrize("remembered", [1 << 8, 1 << 26])
def test_programs_that_read_leading_vals_give_the_same(
    name: str, steps: int, remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """steps: how many a slice may have before histories are read again; remembered: when covers are cleared."""
    monkeypatch.setattr(reduce_module, "LONG", 0)
    monkeypatch.setattr(reduce_module, "MOST_STEPS", steps)
    monkeypatch.setattr(histories_module, "_REMEMBERED", remembered)
    read = 0
    select = Trace.select_leading

    def counted(trace: Trace, keyed: Ints, *, fold: int, now: int, both: bool, limit: int) -> Selection:
        nonlocal read
        read += 1
        return select(trace, keyed, fold=fold, now=now, both=both, limit=limit)

    monkeypatch.setattr(Trace, "select_leading", counted)
    for seed in seeds(12):
        for deep in (False, True):
            check((name,), replace(motion(seed, deep=deep), interpret=False))
    assert read > 0 or steps == 0
