"""The index of a slice's steps: keys are found in it however it has grown, whatever part of the hashes is here."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from vernier.storage.kernels import step_index
from vernier.storage.kernels.hashing import key_rows, mix
from vernier.storage.kernels.loading import unmix_words
from vernier.storage.trace import history_cache as histories_module
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.batch import keyed_rows
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints, Updates


def asked(keys: Ints) -> Ints:
    """Keys as `select` wants them."""
    rows = key_rows(keys, np.arange(keys.shape[1]), np.empty(0, np.int64), 0)
    return np.ascontiguousarray(rows[np.argsort(rows[:, 0], kind="stable")])


@pytest.mark.parametrize("ordered", [1, 1 << 14])
@pytest.mark.parametrize("part", [(0.0, 1.0), (0.625, 0.75), (0.33, 0.66)])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("large", [1 << 17, 1 << 11, 1])
def test_keys_are_found_while_the_index_grows(
    width: int, part: tuple[float, float], ordered: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "LARGE", large)
    monkeypatch.setattr(histories_module, "ORDERED", ordered)
    monkeypatch.setattr(histories_module, "_ROOM", 2)
    monkeypatch.setattr(histories_module, "_KEPT", 1 << 17)
    choose = np.random.default_rng(width)
    pool = choose.integers(0, 2**40, 60_000)
    # As a worker has them: hashes of one range.
    low, high = (int((bound - 0.5) * 2**64) for bound in part)
    wanted = np.array([low <= int(mix(key)) < high for key in pool.tolist()])
    pool = pool[wanted]
    trace = Trace("t", width, 1, 0)
    facts: Counter[tuple[int, int]] = Counter()
    for number in range(3):
        trace.loads = True
        for step in range(6):
            count = int(choose.integers(1, 2 ** int(choose.integers(1, 15))))
            keys = choose.choice(pool, count)
            vals = choose.integers(0, 2, count)
            rows = np.column_stack((*[keys] * width, vals))
            trace.seal(keyed_rows(Updates.of(rows, number, 1), width), number, number + 1)
            for key, val in zip(keys.tolist(), vals.tolist(), strict=True):
                facts[key, val] += 1
            some = np.unique(choose.choice(pool, 1 + 40 * step**3))
            keyed = asked(np.column_stack([some] * width))
            found = trace.select(keyed, fold=number)
            for (begin, end), key in zip(found.spans.tolist(), keyed[:, 1].tolist(), strict=True):
                history = {val: diff for val, _, diff in found.entries[begin:end].tolist()}
                assert history == {val: facts[key, val] for val in (0, 1) if facts[key, val]}
        trace.close_slice(number + 1)


def test_generations_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories_module, "GENERATIONS", 3)
    trace = Trace("t", 1, 1, 0)
    for number in range(9):
        rows = np.array([[key, number] for key in range(number, number + 4)])
        trace.seal(keyed_rows(Updates.of(rows, number, 1), 1), number, number + 1)
        keyed = asked(np.arange(12).reshape(-1, 1))
        found = trace.select(keyed, fold=number).dense().entries
        assert len(found) == 4 * (number + 1)
        trace.close_slice(number + 1)


def test_steps_that_are_tries_are_read_up_to_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = np.random.default_rng(8)
    trace = Trace("t", 1, 1, 0)
    trace.loads = True
    facts: list[Counter[tuple[int, int, int]]] = [Counter()]
    keyed = asked(np.arange(40).reshape(-1, 1))
    for step in range(12):
        monkeypatch.setattr(trace_module, "LARGE", 1 if step in (3, 4, 9) else 1000)
        rows = np.column_stack((choose.integers(0, 40, 30), choose.integers(0, 3, 30)))
        times = choose.integers(0, 2, 30)
        diffs = choose.choice([-1, 1, 2], 30)
        trace.seal(keyed_rows(Updates.of(rows, times, diffs), 1), 0, 5)
        facts.append(facts[-1].copy())
        for (key, val), time, diff in zip(rows.tolist(), times.tolist(), diffs.tolist(), strict=True):
            facts[-1][key, val, time] += diff
        # An earlier mark, what was asked for last, and the newest: in any order.
        for before in choose.integers(0, step + 2, 3).tolist():
            found = trace.select(keyed, fold=-1, before=before)
            for (begin, end), key in zip(found.spans.tolist(), keyed[:, 1].tolist(), strict=True):
                history = {(val, time): diff for val, time, diff in found.entries[begin:end].tolist()}
                assert history == {(v, t): n for (k, v, t), n in facts[before].items() if k == key and n}


@pytest.mark.parametrize("part", [(0.0, 1.0), (0.5, 1.0), (0.25, 0.375)])
def test_keys_that_come_by_pieces_spread_over_the_index(
    part: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the room was made for the first piece, or the whole reach of hashes where a worker has a part of it: then
    keys lay on top of one another, and looking one up went past thousands."""
    monkeypatch.setattr(histories_module, "ORDERED", 1 << 10)
    low, high = (int((bound - 0.5) * 2**64) for bound in part)
    hashes = np.sort(np.random.default_rng(7).integers(low, high, 1 << 13, dtype=np.int64))
    keyed = np.column_stack((hashes, unmix_words(hashes)))
    rows = np.column_stack((keyed, np.zeros((len(keyed), 2), np.int64), np.ones(len(keyed), np.int64)))
    trace = Trace("t", 1, 1, 0)
    trace.seal(rows, 0, 1)
    trace.close_slice(1)
    trace.reserve(keyed)
    for piece in np.array_split(keyed, 16):
        trace.select(piece, fold=1)
    histories = trace.histories
    heads, index = histories._heads, histories._index
    (places,) = np.nonzero(heads[:, 1] >> 32 == histories._generation)
    homes = np.array([step_index._head(index, hashed) for hashed in heads[places, 0].tolist()])
    assert len(places) == len(keyed)
    assert ((places - homes) & (len(heads) - 1)).mean() < 2  # half of the places are taken: a half is expected


def test_room_stays_while_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories_module, "_KEPT", 1 << 10)
    trace = Trace("t", 1, 0, 0)
    keys = np.arange(1 << 12)
    trace.seal(keyed_rows(Updates.of(keys[:, None], 0, 1), 1), 0, 1)
    trace.close_slice(1)
    keyed = asked(keys[:, None])

    def room(part: Ints) -> list[int]:
        trace.select(part, fold=1)
        trace.close_slice(1)
        histories = trace.histories
        return [len(histories._slots), len(histories.arena)]

    assert min(first := room(keyed)) >= len(keys)
    assert room(keyed) == first  # of which more than a quarter is used
    assert max(room(keyed[:64])) < 512
    assert min(room(keyed)) >= len(keys)
    trace.release()
    assert [len(trace.histories._slots), len(trace.histories.arena)] == [0, 0]
    assert len(trace.select(keyed, fold=1).entries) >= len(keys)


def test_forks_share_room_and_nothing_else() -> None:
    first = Trace("t", 1, 1, 0)
    rows = keyed_rows(Updates.of([[key, key] for key in range(50)], 0, 1), 1)
    first.seal(rows, 0, 1)
    first.close_slice(1)
    # One that was tried and given up in the middle of a slice, and two that go on in turns.
    forks = [first.fork() for _ in range(3)]
    for number, fork in enumerate(forks):
        fork.seal(keyed_rows(Updates.of([[key, 100 + number] for key in range(0, 50, 2)], 1, 1), 1), 1, 2)
        fork.select(rows, fold=1)
    for _ in range(2):
        for number, fork in enumerate(forks[1:], 1):
            found = fork.select(rows, fold=1).dense()
            keys = np.repeat(np.arange(len(rows)), found.spans[:, 1] - found.spans[:, 0])
            seen = sorted((int(rows[key, 1]), int(entry[0])) for key, entry in zip(keys, found.entries, strict=True))
            assert seen == sorted([(key, key) for key in range(50)] + [(key, 100 + number) for key in range(0, 50, 2)])
    for fork in forks[1:]:
        fork.close_slice(2)
        assert fork.updates == 75
    assert first.updates == 50
