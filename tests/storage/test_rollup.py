"""Rollups: a manifest says what has changed, so its size does not depend on the size of the state or of its metrics."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.machines import DiskMachine
from tests.storage.epochs import entry, manifest
from vernier.service.observability.metrics import Stats
from vernier.storage.blob.segment import segment_file, write_segment
from vernier.storage.errors import Damaged, EpochGone
from vernier.storage.state import rollups
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry, manifest_file
from vernier.storage.state.rollup import changed, changes
from vernier.storage.state.state import StateDirectory

OPERATORS = 40


class Growing:
    """A state whose epochs add a batch to each trace, merge neighbours of one size, and count operators and updates.

    settled: batches that are there from the start and stay. operators: how many have metrics; each epoch counts five.
    """

    def __init__(self, *, settled: int = 0, operators: int = OPERATORS, traces: int = 3) -> None:
        self.state = StateDirectory("s", DiskMachine().process().blob)
        self.state.acquire()
        # The batches themselves do not matter here: all are in one segment, which has those of the first epochs.
        write_segment(self.state.blob, "all", [entry(f"t{n}-{at}", 1) for n in range(traces) for at in range(-10, 100)])
        size = 1 << 30
        self.traces = [[(size, self._ref(trace, -1 - n)) for n in range(settled)] for trace in range(traces)]
        self.stats = Stats()
        self.rng = random.Random(7)
        self.epoch = 0
        self.committed: dict[int, Manifest] = {}
        self.bytes: list[int] = []
        for operator in range(operators):
            self._count(operator)

    def run(self, epochs: int) -> None:
        """Commit epochs; `bytes` has what each wrote besides its batches."""
        for _ in range(epochs):
            self.epoch += 1
            for number, trace in enumerate(self.traces):
                trace.append((1, self._ref(number, self.epoch)))
                while len(trace) > 1 and trace[-1][0] >= trace[-2][0]:
                    size = trace.pop()[0] + trace.pop()[0]
                    trace.append((size, self._ref(number, self.epoch)))
            self.stats.add("epochs_total", "committed")
            for operator in range(5):
                self._count(operator)
            new = manifest(self.epoch, [])
            traces = {f"t{n}": TraceEntry(1, 0, 0, [[ref for _, ref in one]]) for n, one in enumerate(self.traces)}
            before = set(self.state.segments())
            committed = self.state.commit(
                _replaced(new, traces=traces, stats=json.loads(json.dumps(self.stats.to_json())))
            )
            written = self.state.segments()
            rolled = sum(size for name, size in written.items() if name not in before)
            self.bytes.append(len(self.state.blob.get(manifest_file(self.epoch))) + rolled)
            self.committed[self.epoch] = committed
            if self.epoch % 16 == 0:
                self.state.gc(20)

    def per_epoch(self, until: int) -> float:
        """Bytes per epoch in the last epochs before this one, rollups included."""
        window = self.bytes[max(0, until - 200) : until]
        return sum(window) / len(window)

    def _ref(self, trace: int, epoch: int) -> BatchRef:
        return BatchRef("all", f"t{trace}-{epoch}", 1, 960, 10**18, 10**18 + abs(epoch), 10**18)

    def _count(self, operator: int) -> None:
        self.stats.observe("operator_duration_seconds", str(operator), value=self.rng.expovariate(100))
        self.stats.add("operator_updates_total", str(operator), "in", by=self.rng.randrange(1000))


def _replaced(new: Manifest, **fields: Any) -> Manifest:
    return Manifest(**{**{name: getattr(new, name) for name in Manifest.__struct_fields__}, **fields})


def test_what_an_epoch_writes_does_not_grow_with_epochs() -> None:
    state = Growing()
    state.run(1_000)
    early, late = state.per_epoch(250), state.per_epoch(1_000)
    print(f"bytes per epoch: {state.per_epoch(10):.0f} at 10, {state.per_epoch(100):.0f} at 100, {late:.0f} at 1,000")
    assert late < 1.15 * early
    assert late < state.per_epoch(10) / 2, "the first manifests say everything"


def test_what_an_epoch_writes_depends_neither_on_settled_batches_nor_on_histograms() -> None:
    found = {}
    for settled, operators in ((10, 10), (2_000, 10), (10, 1_000)):
        state = Growing(settled=settled, operators=operators)
        state.run(40)  # the first rollup comes with epoch 32
        found[settled, operators] = state.bytes[-1]
    small = found[10, 10]
    assert all(abs(size - small) < 0.1 * small for size in found.values()), found
    assert small < 4_000


def test_every_manifest_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "ROLL_UP_EVERY", 3)
    state = Growing(settled=4)
    for _ in range(20):
        state.run(3)
        reader = StateDirectory("s", state.state.blob)
        for epoch in reader.epochs():
            assert reader.manifest(epoch) == state.committed[epoch]
    named = {one.rollup for one in state.committed.values()}
    assert len(named) > 3
    # A start goes on with the rollup that is there, and collects those that nothing names.
    state.state.release()
    assert state.state.acquire() == state.committed[60]
    state.run(4)
    state.state.gc(2)
    kept = {ref.segment for epoch in state.state.epochs() for ref in state.state.manifest(epoch).refs()}
    assert set(state.state.segments()) == kept | {"all"}


def test_a_rollup_that_is_gone_or_damaged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "ROLL_UP_EVERY", 2)
    state = Growing()
    state.run(5)
    rollup = state.committed[5].rollup
    assert rollup is not None
    file = segment_file(rollup.segment)
    data = bytes(state.state.blob.get(file))
    state.state.blob.delete(file)
    reader = StateDirectory("s", state.state.blob)
    with pytest.raises(Damaged, match=f"{manifest_file(5)}.*{rollup.segment}"):
        reader.manifest(5)
    state.state.blob.put(file, [data[:-4] + bytes(4)])
    with pytest.raises(Damaged, match=rollup.segment):
        StateDirectory("s", state.state.blob).manifest(5)
    state.state.release()
    # The epochs before the first rollup say everything themselves.
    with StateDirectory("s", state.state.blob) as owner:
        assert owner.latest() == state.committed[1]
        assert len(owner.damaged) == 4


def test_an_epoch_that_is_collected_while_it_is_read_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "ROLL_UP_EVERY", 2)
    state = Growing()
    state.run(5)
    rollup = state.committed[5].rollup
    assert rollup is not None
    reader = StateDirectory("s", state.state.blob)
    get = reader.blob.get

    def collected(name: str) -> Any:
        data = get(name)
        if name == manifest_file(5):
            reader.blob.delete(name)
            reader.blob.delete(segment_file(rollup.segment))
        return data

    monkeypatch.setattr(reader.blob, "get", collected)
    with pytest.raises(EpochGone):
        reader.manifest(5)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "+", "0", "a"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["+", "0", "1", "a", "b"]), inner),
    max_leaves=12,
)


@given(JSON, JSON)
def test_changes_lead_from_one_value_to_the_other(old: Any, new: Any) -> None:
    assert changed(old, json.loads(json.dumps(changes(old, new)))) == new
