"""Audit and survey: sound state has no problems, and every broken rule is found and named."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.merging import merge_batches
from vernier.storage.blob.segment import Entry, segment_file
from vernier.storage.errors import NothingCommitted
from vernier.storage.kernels.hashing import owner
from vernier.storage.state.audit import audit, batch_problems
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry, ViewEntry, manifest_file
from vernier.storage.state.state import StateDirectory
from vernier.storage.state.survey import survey
from vernier.storage.strings.contents import Contents
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Updates


def build(rows: np.ndarray, key_width: int, depth: int = 0, lower: int = 0, upper: int = 10) -> Batch:
    """A batch of rows [words | time | rounds | diff]."""
    return Batch.build(Updates(rows, rows.shape[1] - 2 - depth, depth), key_width, lower, upper, lower)


def wide() -> Batch:
    """Two-word keys with several vals, times and rounds each."""
    rows = [[k, k % 2, v, t, r, 1 + t] for k in range(4) for v in range(3) for t in range(2) for r in range(2)]
    return build(np.array(rows, np.int64), 2, depth=1)


small = st.integers(0, 3)


@given(st.data(), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))
def test_batches_as_they_are_built_and_merged_are_sound(
    data: st.DataObject, key_width: int, val_width: int, depth: int
) -> None:
    width = key_width + val_width
    batches = []
    for lower in (0, 4):
        row = st.tuples(*[small] * width, st.integers(lower, lower + 3), *[small] * depth, st.sampled_from([-1, 1, 2]))
        rows = data.draw(st.lists(row, max_size=30))
        table = np.array(rows, np.int64).reshape(len(rows), width + 2 + depth)
        batches.append(build(table, key_width, depth, lower, lower + 4))
    for batch in (*batches, merge_batches(batches, 3), merge_batches(batches, 8)):
        assert batch_problems(batch) == []


def change(array: np.ndarray, at: int, value: int) -> np.ndarray:
    changed = array.copy()
    changed.reshape(-1)[at] = value
    return changed


@pytest.mark.parametrize(
    ("name", "at", "value", "says"),
    [
        ("hashes", 1, -(2**63), r"key 1 \[.*\] does not follow the one before it"),
        ("keys", 0, 99, r"hash -?\d+ of key 0: expected -?\d+"),
        ("key_offsets", 1, 0, "key_offsets does not ascend at 1"),
        ("key_offsets", 0, 1, r"key_offsets has 5 entries to 12, expected 5 from 0 to 12"),
        ("val_offsets", -1, 47, r"val_offsets has 13 entries to 47, expected 13 from 0 to 48"),
        ("vals", 2, 0, r"val 2 \[0\] does not follow"),
        ("times", 1, 0, r"time 1 \[0, 0\] does not follow"),
        ("times", 47, 10, r"times from 0 to 10 in a batch that covers \[0, 10\)"),
        ("rounds", 0, -1, "round -1 is negative"),
        ("diffs", 5, 0, "diff 5 is zero"),
    ],
)
def test_each_broken_rule_of_a_batch_is_named(name: str, at: int, value: int, says: str) -> None:
    batch = wide()
    arrays = batch.arrays()
    assert batch_problems(Batch.open(batch.meta(), arrays)) == []
    broken = Batch.open(batch.meta(), {**arrays, name: change(arrays[name], at, value)})
    problems = batch_problems(broken)
    assert problems
    with pytest.raises(AssertionError, match=says):
        raise AssertionError("\n".join(problems))


@pytest.mark.parametrize(
    ("name", "array", "says"),
    [
        ("times", np.zeros(3, np.int64), "times is int64[3], expected int64[48] or int64[1]"),
        ("diffs", np.zeros(48, np.int32), "diffs is int32[48], expected int64[48]"),
        ("key_offsets", np.zeros(0, np.int64), "key_offsets is elided, but 4 offsets cannot stand for 12"),
        ("keys", np.zeros((4, 3), np.int64), "keys is int64[4, 3], expected int64[4, 2]"),
    ],
)
def test_arrays_of_the_wrong_shape_are_named_before_anything_is_read(
    name: str, array: np.ndarray, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_LIST", "")  # opening a batch of the wrong types compiles the kernel that describes it
    batch = wide()
    assert any(says in problem for problem in batch_problems(Batch.open(batch.meta(), {**batch.arrays(), name: array})))


# --- directories ------------------------------------------------------------------------------------------------------


def commit(state: StateDirectory, batches: list[list[Batch]]) -> Manifest:
    """The next epoch, of one arrangement with these batches by shard."""
    epoch = (state.epochs() or [0])[-1] + 1
    entries = [
        Entry(f"rows/{shard}/{number}", dict(batch.meta()), batch.arrays())
        for shard, own in enumerate(batches)
        for number, batch in enumerate(own)
    ]
    refs = iter(state.write(epoch, "a", 0, entries))
    found = Manifest(
        epoch=epoch,
        attempt="a",
        lower=0,
        upper=10,
        committed_ns=1,
        workers=len(batches),
        app="app",
        program="p",
        traces={"rows": TraceEntry(1, 1, 0, [[next(refs) for _ in own] for own in batches])},
        views={"all": ViewEntry([], [], "rows", -5)},
    )
    state.commit(found)
    return found


def batch_of(shard: int, lower: int = 0, upper: int = 5) -> Batch:
    """Keys that belong to one of two shards."""
    rows = np.array([[key, key, lower + key % 3, 1] for key in range(40)], np.int64)
    batch = build(rows, 1, 0, lower, upper)
    mine = [owner(int(hashed), 2) == shard for hashed in batch.hashes]
    return Batch.build(batch.to_updates().take(np.flatnonzero(mine)), 1, lower, upper, lower)


def test_a_sound_directory_has_no_problems(tmp_path: Path) -> None:
    with StateDirectory(tmp_path) as state:
        commit(state, [[batch_of(0), batch_of(0, 5, 10)], [batch_of(1)]])
        commit(state, [[batch_of(0)], [batch_of(1)]])
        garbage = state.write(2, "failed", 0, [Entry("x", batch_of(0).meta())])
        state.write(3, "running", 0, [Entry("x", batch_of(0).meta())])
    steps: list[tuple[int, int]] = []
    found = audit(StateDirectory(tmp_path), lambda done, total: steps.append((done, total)))
    assert (found.problems, found.unused) == ([], [garbage[0].segment])
    assert (found.manifests, found.segments, found.batches) == (2, 2, 5)
    sizes = StateDirectory(tmp_path).segments()
    assert found.bytes == sizes["000000000001-a-0"] + sizes["000000000002-a-0"]
    assert [total for _, total in steps] == [sum(sizes.values())] * 2
    assert StateDirectory(tmp_path).blob.list("leases") == []


def test_all_damage_is_listed_not_only_the_first(tmp_path: Path) -> None:
    with StateDirectory(tmp_path) as state:
        for _ in range(4):
            commit(state, [[batch_of(0)], [batch_of(1)]])
    manifest = tmp_path / manifest_file(1)
    manifest.write_bytes(manifest.read_bytes().replace(b"rows", b"rowz"))
    flipped = tmp_path / segment_file("000000000002-a-0")
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 1
    flipped.write_bytes(data)
    cut = tmp_path / segment_file("000000000003-a-0")
    cut.write_bytes(cut.read_bytes()[:-1])
    found = audit(StateDirectory(tmp_path))
    says = "\n".join(found.problems)
    assert "manifest epochs/000000000001.json: checksum " in says
    assert "segment 000000000002-a-0: entry 'rows/1/0': array diffs: checksum " in says
    assert "segment 000000000003-a-0: is " in says
    assert "000000000004" not in says
    assert found.unused == ["000000000001-a-0"]


def commit_wrong(tmp_path: Path, **wrong: object) -> str:
    """Commit a sound batch under manifests that say something wrong about it; returns what the audit says."""
    with StateDirectory(tmp_path) as state:
        sound = commit(state, [[batch_of(0)], [batch_of(1)]])
        for epoch in (2, 3):
            state.commit(msgspec.structs.replace(sound, epoch=epoch, **wrong))
        # A batch is looked into once: with the first epoch that names it, which now is a wrong one.
        state.gc(2)
    return "\n".join(audit(StateDirectory(tmp_path)).problems)


def test_what_a_manifest_says_must_be_so(tmp_path: Path) -> None:
    ref = BatchRef("000000000001-a-0", "rows/0/0", batch_of(0).updates, batch_of(0).nbytes, 0, 5, 0)
    other = BatchRef(ref.segment, "rows/1/0", batch_of(1).updates, batch_of(1).nbytes, 0, 5, 0)
    cases: dict[str, tuple[TraceEntry, str]] = {
        "label": (TraceEntry(1, 1, 0, [[BatchRef(ref.segment, "no", 1, 1, 0, 5, 0)], []]), "has no entry 'no'"),
        "meta": (
            TraceEntry(1, 1, 0, [[BatchRef(ref.segment, ref.label, ref.updates, ref.nbytes, 0, 5, 3)], []]),
            "rows/0/0: since is 0, the manifest says 3",
        ),
        "widths": (TraceEntry(2, 0, 0, [[ref], []]), "are (1, 1, 0), the arrangement's (2, 0, 0)"),
        "shards": (TraceEntry(1, 1, 0, [[ref]]), "1 shards for 2 workers"),
        "owner": (TraceEntry(1, 1, 0, [[other], []]), "belongs to shard 1 of 2"),
        "order": (TraceEntry(1, 1, 0, [[ref, ref], []]), "begins at 0, before rows/0/0 ends at 5"),
    }
    for name, (trace, says) in cases.items():
        assert says in commit_wrong(tmp_path / name, traces={"rows": trace}), name
    assert "covers [0, 5), the epoch ends at 4" in commit_wrong(tmp_path / "upper", upper=4)


def test_what_waits_and_what_changed_is_looked_at_too(tmp_path: Path) -> None:
    data = np.array([[1, 4, 1], [2, 3, 1]], np.int64)
    meta = {"updates": 2, "lower": 3, "upper": 5, "since": 3}
    batch = batch_of(0)
    unsorted = {**batch.arrays(), "hashes": batch.hashes[::-1].copy()}
    with StateDirectory(tmp_path) as state:
        sound = commit(state, [[batch_of(0)], [batch_of(1)]])
        entries = [
            Entry("held", meta, {"data": data}),
            Entry("run", meta, {"data": data[::-1].copy(), "times": np.array([3, 4, 4])}),
            Entry("zero", meta, {"data": np.array([[1, 3, 1], [2, 4, 0]])}),
            Entry("changes", dict(batch.meta()), unsorted),
        ]
        *held, changes = state.write(2, "a", 0, entries)
        waiting = {"door": [held[:1], held[1:2]], "operator": [held[2:], []]}
        state.commit(msgspec.structs.replace(sound, epoch=2, held=waiting, changes={"all": [changes]}))
    says = "\n".join(audit(StateDirectory(tmp_path)).problems)
    assert "stash of door: segment 000000000002-a-0: held: times do not ascend within [3, 5)" in says
    assert "run: has 2 rows and 3 times, expected 2" in says
    assert "stash of operator: segment 000000000002-a-0: zero: diff 1 is zero" in says
    assert "changes of all: segment 000000000002-a-0: changes: key 1 " in says


def test_texts_are_held_to_their_hashes() -> None:
    heap = Heap()
    words = heap.encode(Contents.of([b"a text that is long enough", b"another one that is long", b"short"]))
    batch = Batch.build(Updates.of(words, 1, 1), 4, 0, 2, 0)
    texts = batch.settle([0], heap)
    assert len(texts) == 2
    assert batch_problems(batch) == []
    for name, at, value, says in (
        ("text_data", 3, 0, "does not have the hash that it is stored under"),
        ("text_offsets", 1, 10**6, "text_offsets does not ascend at 2"),
        ("text_offsets", 2, 5, "text_offsets has 3 entries, expected 3 from 0 to 50"),
        ("text_hashes", 0, 2**62, "text 1"),
    ):
        arrays = {**batch.arrays(), name: change(batch.arrays()[name], at, value)}
        assert any(says in problem for problem in batch_problems(Batch.open(batch.meta(), arrays))), name


def test_a_head_without_its_manifest_is_named(tmp_path: Path) -> None:
    with StateDirectory(tmp_path) as state:
        for _ in range(2):
            commit(state, [[batch_of(0)], [batch_of(1)]])
    assert audit(StateDirectory(tmp_path)).problems == []
    (tmp_path / manifest_file(2)).unlink()
    (problem,) = audit(StateDirectory(tmp_path)).problems
    assert "HEAD names epoch 2, but its manifest is missing (the newest is of epoch 1)" in problem


def test_a_survey_counts(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    with pytest.raises(NothingCommitted):
        survey(state)
    with state:
        commit(state, [[batch_of(0), batch_of(0, 5, 10)], [batch_of(1)]])
        commit(state, [[batch_of(0)], [batch_of(1)]])
    found = survey(state, 1)
    assert (found.epoch, found.epochs, found.workers, found.views) == (1, [1, 2], 2, {"all": "rows"})
    (rows,) = found.arrangements
    batches = [batch_of(0), batch_of(0, 5, 10), batch_of(1)]
    assert rows.batches == 3
    assert rows.updates == sum(batch.updates for batch in batches)
    assert rows.bytes == sum(batch.nbytes for batch in batches)
    assert (rows.distinct_times, rows.lower, rows.upper, rows.since) == (6, 0, 10, -5)
    assert found.bytes == state.segments()["000000000001-a-0"] > rows.bytes
    assert survey(state).epoch == 2
    newest = tmp_path / manifest_file(2)
    newest.write_bytes(newest.read_bytes()[:-5])
    assert survey(state).epoch == 1
