"""Steps whose keys are gone through in pieces, and a load's slice: the same answers."""

import numpy as np
import pytest

from bench.programs import program
from vernier.operators.engine import worker
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime import chunking
from vernier.storage.trace import history_cache, spine
from vernier.storage.updates import MIN_TIME, Ints, Updates


def _answers(name: str) -> list[bytes]:
    """All changes of a program's answer: a load, then edges that come and go."""
    edges = np.random.default_rng(5).integers(0, 60, (240, 2))
    engine = LocalEngine(compile_app(program(name)))
    load = {"edges": Updates.of(edges[:120], 0, 1), "roots": Updates.of([[0]], [0], [1])}
    found = [engine.run_epoch(MIN_TIME, 1, load)["answer"]]
    for at in range(1, 120, 40):
        i = np.arange(at, at + 40)
        rows, times = np.concatenate((edges[119 + i], edges[i - 1])), np.concatenate((i, i))
        moved = Updates.of(rows, times, np.repeat([1, -1], 40))
        found.append(engine.run_epoch(at, at + 40, {"edges": moved})["answer"])
    return [changes.data.tobytes() for changes in found]


@pytest.mark.parametrize("name", ["components", "scc", "bfs"])
def test_pieces_of_any_size_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _answers(name)
    monkeypatch.setattr(chunking, "KEYS", 3)
    assert _answers(name) == expected
    # Nothing remembered from one piece to the next, and every slice releases its memory like that of a load.
    monkeypatch.setattr(history_cache, "_REMEMBERED", 64)
    monkeypatch.setattr(worker, "MANY", 0)
    assert _answers(name) == expected
    # As a load's are, steps are tries, all but the smallest.
    monkeypatch.setattr(spine, "LARGE", 3)
    assert _answers(name) == expected


def test_pieces_cover_all_keys() -> None:
    for count in (0, 1, chunking.KEYS, chunking.KEYS + 1, 3 * chunking.KEYS):
        places = [at for first, stop in chunking.pieces(count) for at in range(first, stop)]
        assert places == list(range(count))


@pytest.mark.parametrize("again", [True, False])
def test_what_pieces_give_is_gathered_as_concatenation_would(again: bool) -> None:
    rng = np.random.default_rng(2)
    buffer = chunking.Gathered(again=again)
    for step in range(4):
        buffer.begin()
        given: list[Ints] = []
        parts = [rng.integers(0, 9, (int(rng.integers(0, 50)), 3)) for _ in range(8)]
        for part in parts:
            given.append(part)
            if step % 2 or len(given) > 2:
                buffer.gather(given, 2.0)
        buffer.gather(given, 1.0)
        buffer.gather(given, 1.0)
        (whole,) = given
        assert np.array_equal(whole, np.concatenate(parts))
    buffer.release()
    assert np.array_equal(whole, np.concatenate(parts))
