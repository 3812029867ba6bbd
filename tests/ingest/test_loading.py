"""Snapshots enter in pieces, and then messages: whatever the pieces and workers, answers are those of all rows at the
snapshot's time."""

import random
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vernier as vn
from tests.ingest.log import EDGES, ROOTS, Record, Topics, batch, native, progress
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.ingestion import Advanced, Ingestion
from vernier.service.ingest.ingestion_state import SnapshotState, snapshots_in
from vernier.service.ingest.loading import LOADED, Loading, SnapshotMisfit, SnapshotPart
from vernier.service.ingest.partition_report import Facts
from vernier.service.ingest.stash import HeldUpdates
from vernier.service.ingest.watermarks import Rounding
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME, Updates

AT, END = 100, 200
Row = tuple[int, int]
Update = tuple[str, tuple[int, ...], int, int]


class Edge(vn.Schema):
    """An edge."""

    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    """A node."""

    node: vn.Int64


def program(moves: bool) -> vn.App:
    """A join of two sources; with `moves`, a program that moves updates in time, too."""
    app = vn.App("loading", retain="1h")
    edges, roots = app.source("edges", Edge), app.source("roots", Root)
    found = roots.join(edges, left_on="node", right_on="src").group_by("node").agg(n=vn.count())
    app.view("found", found, key=["node"])
    if moves:
        app.view("later", edges.delay(30), key=["src", "dst"])
    return app


class Service:
    """Workers that load and ingest, with the dataflow behind them. One that is killed repeats an epoch."""

    def __init__(self, app: vn.App, workers: int, config: IngestionConfig) -> None:
        self.plan = compile_app(app)
        self.engine = LocalEngine(self.plan, workers)
        self.ingestion, self.loading = Ingestion(self.plan.sources, config), Loading(self.plan.sources, config)
        self.workers, self.state = workers, dict[str, Any]()
        self.held: list[dict[str, list[HeldUpdates]]] = [{} for _ in range(workers)]
        self.changes: dict[str, Counter[tuple[tuple[int, ...], int]]] = {name: Counter() for name in self.plan.views}

    def load(self, part: SnapshotPart, pieces: list[list[Row]], again: bool) -> None:
        """Load some pieces, one per worker, with a first attempt that is lost if `again`."""
        for _ in range(1 + again):
            decoded = []
            for worker in range(self.workers):
                rows = pieces[worker] if worker < len(pieces) else []
                columns = [pa.array([row[i] for row in rows], pa.int64()) for i in (1, 0)]
                given = pa.RecordBatch.from_arrays(columns, names=["dst", "src"])
                decoded.append(self.loading.decode("edges", given, Heap()))
            step = self.loading.advance(self.state, part, sum(map(len, decoded)))
            admitted = [self.loading.admit(part, rows, held, step) for rows, held in zip(decoded, self.held)]
        self._run(step, [(one.inputs, one.held) for one in admitted])

    def read(self, records: list[Record]) -> None:
        """An epoch of messages, all on the first worker."""
        decoded = [
            self.ingestion.decode([batch(records if not worker else [])], {}, self.state, held)
            for worker, held in enumerate(self.held)
        ]
        step = self.ingestion.advance(self.state, [Facts.decode(one.facts.encode()) for one in decoded])
        admitted = [self.ingestion.admit(one, held, step) for one, held in zip(decoded, self.held)]
        assert not [letter for one in admitted for letter in one.dead]
        self._run(step, [(one.inputs, one.held) for one in admitted])

    def _run(self, step: Advanced, admitted: list[tuple[dict[str, Updates], dict[str, list[HeldUpdates]]]]) -> None:
        # Encoded and decoded, as the manifest keeps it.
        self.state = msgspec.json.decode(msgspec.json.encode(step.state))
        self.held = [held for _, held in admitted]
        inputs = {
            name: Updates.concat([own[name] for own, _ in admitted if name in own], row_type.width)
            for name, row_type in self.plan.sources.items()
        }
        for name, found in self.engine.run_epoch(step.lower, step.upper, inputs).items():
            for row, time, diff in zip(found.rows.tolist(), found.time.tolist(), found.diff.tolist()):
                self.changes[name][tuple(row), time] += diff

    def rows(self, view: str, at: int) -> Counter[tuple[int, ...]]:
        """A view's rows as of a time."""
        found: Counter[tuple[int, ...]] = Counter()
        for (row, time), diff in self.changes[view].items():
            if time <= at:
                found[row] += diff
        return Counter({row: n for row, n in found.items() if n})


def expected(updates: list[Update], view: str, at: int) -> Counter[tuple[int, ...]]:
    """The rows of a view as of a time, from all updates."""
    shift = 30 if view == "later" else 0
    now: dict[str, Counter[tuple[int, ...]]] = {"edges": Counter(), "roots": Counter()}
    for source, row, time, diff in updates:
        if time + shift <= at:
            now[source][row] += diff
    if view == "later":
        return Counter({row: n for row, n in now["edges"].items() if n})
    counts: Counter[int] = Counter()
    for (src, _), n in now["edges"].items():
        counts[src] += n * now["roots"][src,]
    return Counter({(node, n): 1 for node, n in counts.items() if n})


@given(st.integers(0, 2**32), st.integers(1, 2), st.booleans())
@settings(max_examples=40, deadline=None)
def test_answers_are_those_of_all_rows_at_the_snapshots_time(seed: int, workers: int, moves: bool) -> None:
    chance = random.Random(seed)
    config = IngestionConfig(
        {
            "edges": SourceConfig("edges", clock="event", idle_timeout_ms=None),
            "roots": SourceConfig("roots", clock="event", idle_timeout_ms=None),
        },
        {"edges": 1, "roots": 1},
    )
    service = Service(program(moves), workers, config)

    def edge() -> Row:
        return chance.randrange(4), chance.randrange(4)

    pieces = [[edge() for _ in range(chance.randrange(5))] for _ in range(chance.randrange(6))]
    direct = not service.plan.queues
    begin = {"edges": SnapshotState(AT, len(pieces), "print")}
    for first in range(0, max(1, len(pieces)), workers):
        take = list(range(first, min(first + workers, len(pieces))))
        part = SnapshotPart(source="edges", take=take, direct=direct, now_ms=1, begin={} if first else begin)
        service.load(part, pieces[first : first + workers], chance.random() < 0.3)
        assert service.state["frontier"] < LOADED
    assert snapshots_in(service.state)["edges"].done == len(pieces)
    assert snapshots_in(service.state)["edges"].rows == sum(map(len, pieces))
    truth: list[Update] = [("edges", row, AT, 1) for piece in pieces for row in piece]
    log = Topics()
    sent: dict[str, list[tuple[tuple[int, ...], int, int]]] = {"edges": [], "roots": []}
    for _ in range(chance.randrange(20)):
        at = chance.randrange(0, END)
        if chance.random() < 0.5:
            sent["edges"].append((edge(), at, chance.choice([1, 1, -1])))
        else:
            sent["roots"].append(((chance.randrange(4),), at, 1))
    for source, updates in sent.items():
        # Updates of the snapshot's source up to its time are in the snapshot.
        truth += [(source, *one) for one in updates if source == "roots" or one[1] > AT]
        chance.shuffle(updates)
        for update in updates:
            log.append(source, 0, native([update]))
    records = list(log.records)
    for cut in sorted(chance.randrange(len(records) + 1) for _ in range(2)):
        service.read(records[:cut])
        records = records[cut:] if cut < len(records) else []
    service.read([*records, log.append("edges", 0, progress(END)), log.append("roots", 0, progress(END))])
    assert service.state["frontier"] == END
    for at in range(AT, END, 3):
        for view in service.plan.views:
            assert service.rows(view, at) == expected(truth, view, at), (view, at)


@given(st.integers(0, 2**32), st.integers(1, 2), st.sampled_from(["exact", "millisecond"]))
@settings(max_examples=60, deadline=None)
def test_a_source_that_joins_a_running_service_has_all_its_rows_from_then_on(
    seed: int, workers: int, rounding: Rounding
) -> None:
    """The frontier of the other source moves on while pieces enter; nothing of the new topic is late, and from the time
    of joining answers are those of the snapshot and all changes after its time."""
    chance = random.Random(seed)
    unit = 1_000_000 if rounding == "millisecond" else 1
    at, end = unit * chance.randrange(0, 150), unit * END
    roots = SourceConfig("roots", clock="event", idle_timeout_ms=None)
    edges = SourceConfig("edges", clock="event", idle_timeout_ms=None, rounding=rounding)
    both = IngestionConfig({"edges": edges, "roots": roots}, {"edges": 1, "roots": 1})
    service = Service(program(False), workers, both)
    later, service.ingestion = service.ingestion, Ingestion({"roots": ROOTS}, IngestionConfig({"roots": roots}))
    log, truth = Topics(), list[Update]()
    promised = unit * 10

    def move_on() -> None:
        """Some changes of the other source, and its promise."""
        nonlocal promised
        upper = promised + unit * chance.randrange(0, 20)
        sent = [((chance.randrange(4),), chance.randrange(promised, upper + 1), 1) for _ in range(chance.randrange(3))]
        truth.extend(("roots", *one) for one in sent)
        service.read(
            [*(log.append("roots", 0, native([one])) for one in sent), log.append("roots", 0, progress(upper))]
        )
        assert service.state["frontier"] == upper
        promised = upper

    def edge() -> Row:
        return chance.randrange(4), chance.randrange(4)

    move_on()
    service.ingestion = later
    pieces = [[edge() for _ in range(chance.randrange(5))] for _ in range(chance.randrange(6))]
    begin = {"edges": SnapshotState(at, len(pieces), "print", beside=True)}
    for first in range(0, max(1, len(pieces)), workers):
        take = list(range(first, min(first + workers, len(pieces))))
        part = SnapshotPart(source="edges", take=take, direct=False, now_ms=1, begin={} if first else begin)
        service.load(part, pieces[first : first + workers], chance.random() < 0.3)
        if first + workers < len(pieces):
            move_on()
    state = snapshots_in(service.state)["edges"]
    frontier = service.state["frontier"]
    assert state.done == len(pieces)
    assert not state.covers(frontier)
    truth += [("edges", row, state.shown, 1) for piece in pieces for row in piece]
    changes = [(edge(), chance.randrange(0, end - unit), chance.choice([1, 1, -1])) for _ in range(chance.randrange(9))]
    ups = (lambda time: -(-time // unit) * unit) if rounding == "millisecond" else (lambda time: time)
    truth += [("edges", row, ups(max(time, state.shown)), diff) for row, time, diff in changes if time > at]
    records = [log.append("edges", 0, native([one])) for one in changes]
    cut = chance.randrange(len(records) + 1)
    service.read(records[:cut])
    assert service.state["frontier"] <= max(frontier, at + 1)  # the new topic is not read as far as that
    service.read([*records[cut:], log.append("edges", 0, progress(end)), log.append("roots", 0, progress(end))])
    assert service.state["frontier"] == end
    assert snapshots_in(service.state)["edges"].covers(end)
    for now in range(state.shown, end, max(1, (end - state.shown) // 40)):
        assert service.rows("found", now) == expected(truth, "found", now), now


def test_a_snapshot_alone_is_final_at_its_time() -> None:
    config = IngestionConfig({"edges": SourceConfig("edges", clock="event")}, {"edges": 2})
    loading = Loading({"edges": EDGES}, config)
    part = SnapshotPart(
        source="edges",
        take=[0],
        direct=True,
        now_ms=5,
        begin={"edges": SnapshotState(AT, 2, "p")},
        offsets={"edges": {1: 7}},
    )
    first = loading.advance({}, part, 3)
    assert (first.lower, first.upper) == (MIN_TIME, MIN_TIME + 2)
    assert first.offsets == {"edges": {"1": 7}}
    assert not snapshots_in(first.state)["edges"].covers(first.upper)
    last = loading.advance(first.state, SnapshotPart(source="edges", take=[1], direct=True, now_ms=6), 4)
    assert (last.lower, last.upper) == (MIN_TIME + 2, AT + 1)
    assert snapshots_in(last.state)["edges"].covers(last.upper)
    assert last.frontiers == {"edges": {"0": AT + 1, "1": AT + 1}}


def test_a_source_of_the_same_topic_is_not_declared_complete() -> None:
    both = {name: SourceConfig("both", clock="event") for name in ("edges", "roots")}
    loading = Loading({"edges": EDGES, "roots": ROOTS}, IngestionConfig(both, {"both": 1}))
    part = SnapshotPart(source="edges", take=[0], direct=True, now_ms=5, begin={"edges": SnapshotState(AT, 1)})
    assert loading.advance({}, part, 3).upper < LOADED


def test_a_row_that_does_not_fit_is_named() -> None:
    config = IngestionConfig({"edges": SourceConfig("edges")}, {"edges": 1})
    loading = Loading({"edges": EDGES}, config)
    given = pa.RecordBatch.from_arrays([pa.array([1, None]), pa.array([1, 2])], names=["src", "dst"])
    with pytest.raises(SnapshotMisfit, match="source edges does not fit: column 'src'"):
        loading.decode("edges", given, Heap())
    assert np.array_equal(loading.decode("edges", given.slice(0, 1), Heap()).rows, [[1, 1]])
