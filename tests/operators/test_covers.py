"""Covers of keys, kept from round to round, dropped in between or never kept, against outputs made anew."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vernier.operators.kernels.aggregating import FIELDS, KIND, LIMIT, MAX, MIN, PRESENT
from vernier.operators.kernels.covering import cover_keys
from vernier.storage.kernels.hashing import hash_row
from vernier.storage.kernels.step_index import GENERATION, HEAD, INDEX_WORDS, WORDS, forget_blocks
from vernier.storage.updates import Ints

FOLD, LAST, ROUNDS = 10, 20, 6
Fact = tuple[tuple[int, ...], int, int]
"""A val, its round and its time."""

moves = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 3), st.integers(0, 1), st.integers(0, ROUNDS - 1),
        st.one_of(st.just(FOLD), st.integers(FOLD + 1, LAST)), st.sampled_from((-2, -1, 1, 1, 2)),
    ),
    max_size=40,
)  # fmt: skip


def wanted(facts: dict[Fact, int], round_: int, time: int, rule: int, limit: int, w: int) -> tuple[int, ...] | None:
    """The output of a key at a round and a time."""
    copies: dict[tuple[int, ...], int] = {}
    for (val, at, when), diff in facts.items():
        if at <= round_ and when <= time:
            copies[val] = copies.get(val, 0) + diff
    present = [val[:w] for val, count in copies.items() if count >= limit]
    if not present:
        return None
    return max(present) if rule == MAX else min(present)


def leading(rows: list[tuple[int, ...]], v: int, rounds: tuple[int, ...], limit: int) -> int:
    """How many of a key's entries `[val | round | time | diff]` reach to the first val that lasts at these rounds."""
    end = 0
    while end < len(rows):
        group = [row for row in rows if row[:v] == rows[end][:v]]
        end += len(group)
        lasts = []
        for at in rounds:
            diffs = [(time, diff) for *_, when, time, diff in group if when <= at]
            sums = [sum(diff for time, diff in diffs if time <= until) for until in range(FOLD, LAST + 1)]
            lasts.append(min(sums) >= limit)
        if all(lasts):
            break
    return end


class Covers:
    """What a reduction keeps of its keys while a slice runs."""

    def __init__(self, keys: int, k: int, w: int) -> None:
        self.heads: Ints = np.zeros((64, HEAD), np.int64)
        self.slots: Ints = np.empty((keys, WORDS + (k if k > 1 else 0)), np.int64)
        self.index: Ints = np.zeros(INDEX_WORDS, np.int64)
        self.index[GENERATION] = 1
        self.arena: Ints = np.empty((0, w + 3), np.int64)


@pytest.mark.parametrize("kept", ["always", "sometimes", "never"])
@given(
    moves=moves,
    rule=st.sampled_from((MIN, MAX, PRESENT)),
    limit=st.integers(1, 2),
    v=st.integers(1, 2),
    k=st.integers(1, 2),
    known=st.booleans(),
    until=st.integers(0, ROUNDS),
    drops=st.lists(st.booleans(), min_size=ROUNDS, max_size=ROUNDS),
)
@example(
    # At round 0 only val 0 is read. At round 1 it goes, and round 2 must be visited because of val 1.
    moves=[
        (0, 0, 0, 0, FOLD, 1), (0, 2, 0, 0, FOLD, 1), (0, 1, 0, 2, FOLD, 1), (0, 3, 0, 0, 15, 1), (0, 0, 0, 1, 15, -1),
    ],
    rule=MIN, limit=1, v=1, k=1, known=True, until=1, drops=[False] * ROUNDS,
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_corrections_make_the_output_of_each_round(
    moves: list[tuple[int, ...]],
    rule: int,
    limit: int,
    v: int,
    k: int,
    known: bool,
    until: int,
    drops: list[bool],
    kept: str,
) -> None:
    w = 0 if rule == PRESENT else min(v, limit)
    limit = limit if rule == PRESENT else 1
    leads = until > 0 and rule != MAX
    keyed: Ints = np.zeros((3, 1 + k), np.int64)
    keyed[:, 1] = range(3)
    keyed[:, 0] = [hash_row(keyed, i, np.arange(1, 1 + k)) for i in range(3)]
    keyed = keyed[np.argsort(keyed[:, 0])]
    facts: list[dict[Fact, int]] = [{}, {}, {}]
    for key, one, two, at, time, diff in moves:
        fact = (one, two)[:v], at, time
        facts[key][fact] = facts[key].get(fact, 0) + diff
    # What earlier slices have left of the output, and the rounds at which each key has to be visited.
    said: list[dict[Fact, int]] = [{}, {}, {}]
    visits: list[set[int]] = [set(), set(), set()]
    for key in range(3):
        before = None
        for at in range(ROUNDS):
            after = wanted(facts[key], at, FOLD, rule, limit, w)
            if before != after:
                for val, diff in ((before, -1), (after, 1)):
                    if val is not None:
                        said[key][val, at, FOLD] = diff
            before = after
    covers, rules = Covers(3, k, w), np.zeros(FIELDS, np.int64)
    rules[[KIND, LIMIT]] = rule, limit
    for now in range(ROUNDS):
        due = [
            key
            for key in range(3)
            if now in visits[key]
            or any(at == now and time > FOLD and diff for (_, at, time), diff in facts[key].items())
        ]
        if not due:
            continue
        if leads and now >= until:
            # From here on whole histories are read, with which covers from their beginnings do not go.
            leads = False
            forget_blocks(covers.slots, covers.index)
        rows, spans = list[tuple[int, ...]](), list[tuple[int, int]]()
        for key in due:
            begin = len(rows)
            entries = sorted(
                (*val, at, time, diff)
                for (val, at, time), diff in facts[key].items()
                if diff and (at <= now or time == FOLD)
            )
            if leads:
                rounds = (now,) if kept == "always" else (now - 1, now)
                entries = entries[: leading(entries, v, rounds, limit)]
            rows += entries
            spans.append((begin, len(rows)))
        inputs: Ints = np.array(rows, np.int64).reshape(-1, v + 3)
        inputs[:, [v, v + 1]] = inputs[:, [v + 1, v]]
        if kept == "sometimes" and drops[now]:
            forget_blocks(covers.slots, covers.index)
        given = [
            (*keyed[key].tolist(), *val, time, at, diff)
            for key in due
            for (val, at, time), diff in sorted(facts[key].items())
            if diff and at == now and time > FOLD
        ]
        fresh: Ints = np.array(given if known else [], np.int64).reshape(-1, 1 + k + v + 3)
        heads = covers.heads if kept != "never" else covers.heads[:0]
        made, scheduled, covers.arena, status, _ = cover_keys(
            np.ascontiguousarray(keyed[due]), k, fresh, np.array(spans, np.int64), inputs, v,
            np.zeros((0, 2), np.int64), covers.arena, w, np.array([now]), FOLD, rules, heads, covers.slots,
            covers.index, int(leads),
        )  # fmt: skip
        assert status == 0
        assert made.tolist() == sorted(made.tolist())
        for row in scheduled.tolist():
            key = int(np.flatnonzero(keyed[:, 0] == row[1])[0])
            assert row[0] > now
            assert row[2:] == keyed[key, 1:].tolist()
            visits[key].add(row[0])
        for row in made.tolist():
            key = int(np.flatnonzero(keyed[:, 0] == row[0])[0])
            val, (time, at, diff) = tuple(row[1 + k : 1 + k + w]), row[1 + k + w :]
            assert key in due
            assert at == now
            assert time > FOLD
            assert diff != 0
            assert (val, at, time) not in said[key]
            said[key][val, at, time] = diff
    # Also of keys that were not visited at a round.
    for key, now in itertools.product(range(3), range(ROUNDS)):
        for time in range(FOLD, LAST + 1):
            have: dict[tuple[int, ...], int] = {}
            for (val, at, when), diff in said[key].items():
                if at <= now and when <= time:
                    have[val] = have.get(val, 0) + diff
            goal = wanted(facts[key], now, time, rule, limit, w)
            assert {val: count for val, count in have.items() if count} == ({} if goal is None else {goal: 1})
