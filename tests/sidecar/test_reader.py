"""The reader against a model of dictionaries: rows at every time it may be asked for, and every stretch of changes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.builder import Change, StateBuilder, ViewModel, by_time_and_row, row_type
from vernier.operators.language.types.schema import RowType
from vernier.service.views import view
from vernier.service.views.answers import key_words
from vernier.service.views.multiset import Multiset
from vernier.service.views.snapshot_reader import Reader
from vernier.service.views.view import Compacted, Interval, NotYetFinal, View
from vernier.storage.blob.segment import segment_file
from vernier.storage.trace.batch import Batch, keyed_rows
from vernier.storage.updates import MIN_TIME, Updates


@pytest.fixture(scope="module", autouse=True, params=[1 << 14, 1])
def many(request: pytest.FixtureRequest) -> Iterator[None]:
    """Intervals of that many changes are read when somebody asks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "_MANY", request.param)
        yield


SCHEMA = row_type(label="Int64 | None", node="Int64", day="Date")
"""Wider than one word, with the key in the middle: stored rows are in another order than the program's."""

WORDS = [-(2**63), -(2**63) + 1, -257, -256, -1, 0, 1, 255, 256, 2**40, 2**63 - 256, 2**63 - 1]


def rows_of(view: View, as_of: int) -> dict[tuple[Any, ...], int]:
    """The reader's rows in the program's order, with multiplicities."""
    run = view.rows_as_of(as_of).flat()
    rows = view.schema.decode_rows(run.rows[:, view.stored.index(view.schema.names)])
    return dict(zip(rows, run.counts.tolist(), strict=True))


def changes_of(view: View, lower: int, upper: int) -> list[Change]:
    """The reader's changes in the program's order, by time, then row."""
    found: list[Change] = []
    at = lower
    for interval in view.intervals(lower, upper):
        assert interval.lower == at
        at = interval.upper
        assert interval.changes.time.tolist() == sorted(interval.changes.time.tolist())
        rows = view.schema.decode_rows(interval.changes.rows[:, view.stored.index(view.schema.names)])
        found += zip(rows, interval.changes.time.tolist(), interval.changes.diff.tolist(), strict=True)
    assert at == min(upper, view.frontier) or lower >= min(upper, view.frontier)
    return by_time_and_row(found)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Epochs: how far each goes, its changes, how far history is cut, whether the trace merges, whether the reader
    looks.
    """
    epochs, frontier, since = [], 0, MIN_TIME
    for _ in range(draw(st.integers(1, 6))):
        upper = frontier + draw(st.integers(0, 5))
        changes = []
        if upper > frontier:
            times = st.integers(frontier, upper - 1)
            rows = st.tuples(
                st.sampled_from([None, -1, 0, 7]), st.integers(0, 3), st.sampled_from(["2026-01-01", "1969-07-20"])
            )
            changes = draw(st.lists(st.tuples(rows, times, st.sampled_from([-1, 1, 2])), max_size=8))
        if draw(st.booleans()) and upper > 1:
            since = max(since, draw(st.integers(max(0, upper - 4), upper - 1)))
        epochs.append({"upper": upper, "changes": changes, "since": since if since > MIN_TIME else None,
                       "merge": draw(st.booleans()), "look": draw(st.booleans())})  # fmt: skip
        frontier = upper
    return epochs


@given(histories(), st.integers(1, 2), st.sampled_from([0, 200, 1 << 20]))
def test_rows_and_changes_equal_the_model_at_every_time(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[dict[str, Any]], shards: int, log_bytes: int
) -> None:
    builder = StateBuilder(tmp_path_factory.mktemp("state"), {"v": (SCHEMA, ["node"])}, shards=shards)
    model, reader = ViewModel(), Reader(builder.path, log_bytes=log_bytes)
    for epoch in epochs:
        changes = [
            ((label, node, date.fromisoformat(day)), at, diff) for (label, node, day), at, diff in epoch["changes"]
        ]
        model.changes += changes
        builder.commit(epoch["upper"], {"v": changes}, since=epoch["since"], merge=epoch["merge"], keep=2)
        if not epoch["look"] and epoch is not epochs[-1]:
            continue
        assert reader.poll(), reader.failure
        assert reader.snapshot is not None
        view = reader.snapshot.views["v"]
        assert (view.frontier, view.since) == (epoch["upper"], builder.since["v"])
        for as_of in range(max(view.since, -1), view.frontier):
            expected = model.rows(as_of)
            assert rows_of(view, as_of) == expected
            assert len(view.rows_as_of(as_of)) == len(expected)
            later = [at for _, at, _ in model.between(as_of + 1, view.frontier)]
            if as_of + 1 >= view.log_start:
                assert (view.undone(as_of) or 0) >= len(later)
                for node in range(5):
                    words = key_words(view, [node])
                    for seen, whole in zip(view.find(as_of, words), view.rows_as_of(as_of).find(words), strict=True):
                        assert seen.tolist() == whole.tolist()
            else:
                assert view.undone(as_of) is None
        with pytest.raises(NotYetFinal):
            view.rows_as_of(view.frontier)
        if view.since > MIN_TIME:
            with pytest.raises(Compacted):
                view.rows_as_of(view.since - 1)
        for lower in range(view.frontier + 1):
            if lower < view.log_start and not view.can_resume(lower):
                with pytest.raises(Compacted):
                    view.intervals(lower, view.frontier)
                continue
            for upper in range(lower, view.frontier + 2):
                assert changes_of(view, lower, upper) == model.between(lower, upper)
    reader.close()
    builder.close()


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(
            st.lists(st.tuples(*[st.sampled_from(WORDS)] * width, st.sampled_from([-2, -1, 1, 2])), max_size=8),
            max_size=8,
        ).map(lambda steps: (width, steps))
    ),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
)
def test_row_set_equals_a_dictionary(case: tuple[int, list[list[tuple[int, ...]]]], prefix: list[int]) -> None:
    width, steps = case
    rows, model = Multiset.of(width, np.empty((0, width + 1), np.int64)), {}
    states = []
    for step in steps:
        for *row, diff in step:
            model[tuple(row)] = model.get(tuple(row), 0) + diff
        rows = rows.apply(np.array(step, np.int64).reshape(-1, width + 1))
        states.append((rows, {row: count for row, count in model.items() if count}))
    for state, expected in states:
        assert len(state) == len(expected)
        wanted = prefix[:width]
        found, counts = state.find(wanted)
        matching = sorted(row for row in expected if list(row[: len(wanted)]) == wanted)
        assert [tuple(row) for row in found.tolist()] == matching
        assert counts.tolist() == [expected[row] for row in matching]
        flat = state.flat()
        assert [tuple(row) for row in flat.rows.tolist()] == sorted(expected)


NODES: dict[str, tuple[RowType, list[str]]] = {"v": (row_type(node="Int64"), ["node"])}


def test_waits_for_the_first_epoch_and_for_the_directory(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "later")
    assert not reader.poll()
    assert reader.snapshot is None
    assert reader.failure is None
    builder = StateBuilder(tmp_path / "later", NODES)
    builder.commit(10, {"v": [((1,), 3, 1)]})
    assert reader.poll()
    assert not reader.poll()
    assert reader.snapshot is not None
    assert reader.snapshot.frontier == 10


def test_lease_keeps_the_epoch_and_its_files(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, NODES)
    builder.commit(10, {"v": [((1,), 3, 1)]})
    reader = Reader(tmp_path)
    assert reader.poll()
    for i in range(2, 8):
        builder.commit(10 * i, {"v": [((i,), 10 * i - 5, 1)]}, since=10 * i - 1, merge=True, keep=2)
    assert 1 in builder.state.epochs()
    assert reader.poll()
    builder.commit(80, keep=2)
    assert 1 not in builder.state.epochs()
    assert reader.snapshot is not None
    assert rows_of(reader.snapshot.views["v"], 69) == {(i,): 1 for i in range(1, 8)}


def test_other_program_is_read_afresh(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, NODES)
    builder.commit(10, {"v": [((1,), 3, 1)]})
    reader = Reader(tmp_path)
    assert reader.poll()
    assert reader.snapshot is not None
    first = reader.snapshot.views["v"].incarnation
    builder.close()
    other = StateBuilder(tmp_path, {"w": (row_type(n="Int64", name="Float64"), ["n"])}, program="p2")
    other.commit(20, {"w": [((1, 2.5), 12, 1)]})
    assert reader.poll()
    assert list(reader.snapshot.views) == ["w"]
    assert reader.snapshot.views["w"].incarnation != first


def test_damage_is_told_and_the_last_good_epoch_stays(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, NODES)
    builder.commit(10, {"v": [((1,), 3, 1)]})
    reader = Reader(tmp_path)
    assert reader.poll()
    manifest = builder.commit(20, {"v": [((2,), 13, 1)]})
    segment = tmp_path / segment_file(manifest.changes["v"][0].segment)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:40])
    assert not reader.poll()
    assert reader.failure is not None
    assert "too short" in reader.failure
    assert reader.snapshot is not None
    assert reader.snapshot.frontier == 10
    segment.write_bytes(whole)
    assert reader.poll()
    assert reader.failure is None
    assert reader.snapshot.frontier == 20


def test_the_first_reader_puts_changes_in_order() -> None:
    rows = np.array([[2, 5, 1], [1, 9, -1], [1, 3, 1], [3, 3, 1]], np.int64)
    interval = Interval(0, 10, Updates(rows, 1, 0), 0, ordered=False)
    assert (interval.to_order(), len(interval), interval.nbytes) == (4, 4, rows.nbytes)
    early = interval.part(0, 5)
    assert early.changes.data.tolist() == [[1, 3, 1], [3, 3, 1]]
    assert interval.to_order() == early.to_order() == 0
    assert interval.changes.data.tolist() == [[1, 3, 1], [3, 3, 1], [2, 5, 1], [1, 9, -1]]
    assert rows.tolist() == [[2, 5, 1], [1, 9, -1], [1, 3, 1], [3, 3, 1]]


def test_many_changes_are_read_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_MANY", 3)
    parts = []
    for rows in ([[2, 5, 1], [1, 9, -1]], [[1, 3, 1], [3, 3, 1]], []):
        keyed = keyed_rows(Updates(np.array(rows, np.int64).reshape(-1, 3), 1, 0), 1)
        parts.append(Batch.of_rows(keyed, 1, 0, 0, 10, MIN_TIME))
    few, many = Interval.of(0, 10, parts[1:], 1, 7), Interval.of(0, 10, parts, 1, 7)
    assert (len(few), len(many), many.nbytes, many.to_order(), many.committed_ns) == (2, 4, 4 * 24, 4, 7)
    reads: list[int] = []
    read = Batch.to_updates
    monkeypatch.setattr(Batch, "to_updates", lambda batch: [reads.append(1), read(batch)][1])
    assert few.changes.data.tolist() == [[1, 3, 1], [3, 3, 1]]
    assert reads == []
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: many.changes.data.tolist(), range(8)))
    assert found == [[[1, 3, 1], [3, 3, 1], [2, 5, 1], [1, 9, -1]]] * 8
    assert sorted(many.unordered.data.tolist()) == sorted(found[0])
    assert len(reads) == len(parts)
