"""Reductions in loops that read the leading vals of keys alone, against whole histories and against the oracle."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.profiles import examples, no_timeout, seeds
from tests.properties.graphs import motion
from tests.properties.test_known import FAMILIES, check
from tests.storage.test_histories import asked
from vernier.operators.engine import worker
from vernier.operators.kernels.aggregating import FIELDS, KIND, LIMIT, MIN, PRESENT
from vernier.operators.kernels.covering import cover_keys
from vernier.operators.physical import reduce as reduce_module
from vernier.storage.errors import DiffOverflow
from vernier.storage.trace import history_cache as histories_module
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.batch import key_updates
from vernier.storage.trace.spine import Selection, Trace
from vernier.storage.updates import Ints

KEYS, ROUNDS = 4, 4
PROGRAMS = ("reach", "bfs", "distances", "histogram", "even", "odd", "components")
NESTED = ("components", "strong core", "cores")
"""Families with loops within loops."""

rows = st.lists(
    st.tuples(
        st.integers(0, KEYS - 1), st.integers(0, 3), st.integers(0, 1), st.integers(0, 2),
        st.tuples(*[st.integers(0, ROUNDS - 1)] * 2), st.sampled_from((-1, 1, 1, 2)),
    ),
    max_size=14,
)  # fmt: skip


def lasts(group: list[list[int]], v: int, begin: int, now: Ints, limit: int) -> bool:
    """Whether a val surely has enough copies from `begin` on: all that go after it, at once, leave enough."""
    counted = [(entry[v], entry[-1]) for entry in group if all(np.array(entry[v + 1 : -1]) <= now)]
    there = sum(diff for time, diff in counted if time <= begin)
    return there + sum(min(diff, 0) for time, diff in counted if time > begin) >= limit


@examples(150)
@given(
    slices=st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=4),
    at=st.tuples(*[st.integers(0, ROUNDS - 1)] * 2),
    d=st.integers(1, 2),
    both=st.booleans(),
    limit=st.integers(1, 2),
    k=st.integers(1, 2),
    v=st.integers(0, 2),
    large=st.sampled_from((1, 6, 1 << 17)),
    alone=st.booleans(),
)
def test_what_is_read_is_the_beginning_of_the_history(
    slices: list[list[list[tuple[Any, ...]]]], at: tuple[int, int], d: int, both: bool, limit: int, k: int, v: int,
    large: int, alone: bool,
) -> None:  # fmt: skip
    trace, now = Trace("t", k, v, d), np.array(at[:d])
    before, trace_module.LARGE = trace_module.LARGE, large
    try:
        for number, steps in enumerate(slices):
            trace.loads = True
            fold = 3 * number - 1
            for step in steps:
                data = np.array(
                    [
                        (*[key] * k, *(one, two)[:v], 3 * number + (0 if alone else time), *rounds[:d], diff)
                        for key, one, two, time, rounds, diff in step
                    ],
                    np.int64,
                ).reshape(-1, k + v + d + 2)
                keyed = key_updates(data, np.arange(k), np.arange(k, k + v), d)
                trace.seal(keyed, 3 * number, 3 * number + 3)
            if number + 1 < len(slices):
                trace.close_slice(3 * number + 3)
        wanted = asked(np.column_stack([np.arange(KEYS + 1)] * k))
        whole = trace.select(wanted, fold=fold)
        histories = [whole.entries[begin:end].tolist() for begin, end in whole.spans.tolist()]
        part = trace.select_leading(wanted, fold=fold, now=now, both=both, limit=limit)
        parts = [part.entries[begin:end].tolist() for begin, end in part.spans.tolist()]
        again = trace.select(wanted, fold=fold)
        assert [again.entries[begin:end].tolist() for begin, end in again.spans.tolist()] == histories
    finally:
        trace_module.LARGE = before
    for history, found in zip(histories, parts, strict=True):
        assert found == history[: len(found)]
        # Times before all updates of a key do not count; steps that are tries show whether they have one time.
        times = {entry[v] for entry in history}
        since = max(times) if len(times) == 1 and trace.loading else fold
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
        trace.select_leading(asked(np.array([[1]])), fold=2, now=np.array([0]), both=False, limit=1)


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

    def counted(trace: Trace, keyed: Ints, *, fold: int, now: Ints, both: bool, limit: int) -> Selection:
        nonlocal read
        read += 1
        return select(trace, keyed, fold=fold, now=now, both=both, limit=limit)

    monkeypatch.setattr(Trace, "select_leading", counted)
    for seed in seeds(12):
        for deep in (False, True):
            check((name,), replace(motion(seed, deep=deep), interpret=False))
    assert read > 0 or steps == 0


@no_timeout
@pytest.mark.parametrize("family", NESTED)
@pytest.mark.parametrize("loads", [True, False])
def test_nested_loops_that_read_leading_vals_give_the_same(
    family: str, loads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a load, whose steps are tries, and in slices whose steps are matrices."""
    if loads:
        monkeypatch.setattr(worker, "MANY", 0)
        monkeypatch.setattr(trace_module, "LARGE", 1)
    else:
        monkeypatch.setattr(Trace, "loading", True)
    read = 0
    select = Trace.select_leading

    def counted(trace: Trace, keyed: Ints, *, fold: int, now: Ints, both: bool, limit: int) -> Selection:
        nonlocal read
        read += len(now) > 1
        return select(trace, keyed, fold=fold, now=now, both=both, limit=limit)

    monkeypatch.setattr(Trace, "select_leading", counted)
    for seed in seeds(12):
        for deep in (False, True):
            check(FAMILIES[family], replace(motion(seed, deep=deep), interpret=False))
    assert read > 0


SIDE, SLICE = 3, 2
"""The rounds of each of the two loops; the times of a slice."""
nested_rows = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 3), st.integers(0, SLICE - 1), *[st.integers(0, SIDE - 1)] * 2,
        st.sampled_from((-1, 1, 1, 2)),
    ),
    max_size=8,
)  # fmt: skip


@examples(400)
@given(
    slices=st.lists(nested_rows, min_size=1, max_size=3),
    rule=st.sampled_from((MIN, PRESENT)),
    limit=st.integers(1, 2),
    tries=st.booleans(),
)
@example(slices=[[(0, 3, 0, 0, 0, 1), (0, 2, 0, 0, 2, 1), (0, 1, 0, 1, 1, 1)]], rule=MIN, limit=1, tries=True)
def test_outputs_of_nested_loops(slices: list[list[tuple[int, ...]]], rule: int, limit: int, tries: bool) -> None:
    """Every key's output at every time and round, whatever has not been read. In the example, the val 2 changes the
    output at round (0, 2) and is hidden at (1, 1), so only the output says that (1, 2) has to be visited."""
    width, rules = int(rule == MIN), np.zeros(FIELDS, np.int64)
    rules[[KIND, LIMIT]] = rule, limit
    inputs, outputs = Trace("inputs", 1, 1, 2), Trace("outputs", 1, width, 2)
    nothing, none = np.empty((0, 1), np.int64), np.empty(0, np.int64)
    keyed = asked(np.array([[0], [1]]))
    facts, said = list[tuple[int, ...]](), list[tuple[int, ...]]()
    before, trace_module.LARGE = trace_module.LARGE, 1 if tries else 1 << 17
    try:
        for number, rows in enumerate(slices):
            inputs.loads, begin = True, SLICE * number
            moved = [(key, val, begin + time, *rounds, diff) for key, val, time, *rounds, diff in rows]
            facts += moved
            due: dict[tuple[int, ...], set[int]] = {}
            for key, _, _, *rounds, _ in moved:
                due.setdefault(tuple(rounds), set()).add(key)
            while due:
                now = min(due)
                data = np.array([row for row in moved if row[3:5] == now], np.int64).reshape(-1, 6)
                inputs.seal(key_updates(data, np.array([0]), np.array([1]), 2), begin, begin + SLICE)
                keys = np.ascontiguousarray(keyed[np.isin(keyed[:, 1], list(due.pop(now)))])
                at, fold = np.array(now), begin - 1
                read = inputs.select_leading(keys, fold=fold, now=at, both=False, limit=limit if rule == PRESENT else 1)
                was = outputs.select(keys, fold=fold)
                made, visits, _, status, _ = cover_keys(
                    keys, 1, nothing, read.spans, read.entries, 1, was.spans, was.entries, width, at, fold, rules,
                    nothing, nothing, none, 1,
                )  # fmt: skip
                assert status == 0
                outputs.seal(made, begin, begin + SLICE)
                said += map(tuple, made[:, 1:].tolist())
                for *rounds, _, key in visits.tolist():
                    assert tuple(rounds) > now
                    due.setdefault(tuple(rounds), set()).add(key)
            inputs.close_slice(begin + SLICE)
            outputs.close_slice(begin + SLICE)
    finally:
        trace_module.LARGE = before
    for key, time, *now in itertools.product(range(2), range(SLICE * len(slices)), range(SIDE), range(SIDE)):
        copies, have = dict[int, int](), dict[tuple[int, ...], int]()
        for place, val, since, *rounds, diff in facts:
            if place == key and since <= time and rounds[0] <= now[0] and rounds[1] <= now[1]:
                copies[val] = copies.get(val, 0) + diff
        for place, *out, since, one, two, diff in said:
            if place == key and since <= time and one <= now[0] and two <= now[1]:
                have[tuple(out)] = have.get(tuple(out), 0) + diff
        there = [val for val, count in copies.items() if count >= (limit if rule == PRESENT else 1)]
        wanted = {(min(there),) if width else (): 1} if there else {}
        assert {out: count for out, count in have.items() if count} == wanted
