"""Long texts are stored with the batches, changes and held batches that need them, and come back from there alone."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vernier as vn
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime.exchange import Exchange, Single, Threads
from vernier.service.cluster.messages import Report
from vernier.service.cluster.shard import Shard, store
from vernier.service.cluster.worker import report
from vernier.service.coordinator.committer import Committer
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.counts import SourceCounts
from vernier.service.ingest.ingestion import Admitted, Advanced
from vernier.service.ingest.stash import HeldUpdates
from vernier.storage.state.audit import audit
from vernier.storage.state.reshard import open_batch
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME, Updates

SPAN, EPOCHS = 10, 9
Change = tuple[tuple[Any, ...], int, int]


class Note(vn.Schema):
    name: vn.String
    tags: vn.List(vn.String)  # type: ignore[valid-type]


def program() -> vn.App:
    app = vn.App("notes", retain="1h")
    notes = app.source("notes", Note)
    app.view("all", notes.distinct(), key=["name", "tags"])
    app.view("late", notes.delay("25ns").select("name"), key=["name"])
    app.view("pairs", notes.join(notes.select("tags", other="name"), on="tags"), key=["name", "other", "tags"])
    return app


def note(number: int) -> tuple[Any, ...]:
    name = f"the name of a note that is number {number % 7}" if number % 3 else f"n{number % 5}"
    return (name, [f"tag {number % 2} is a long tag"] * (number % 3))


def changes_of(epoch: int) -> list[Change]:
    first = SPAN * epoch
    came = [(note(number), number, 1) for number in range(first, first + SPAN)]
    return came + [(note(number - 13), number, -1) for number in range(max(first, 13 + SPAN), first + SPAN, 2)]


def run_epoch(plan: Plan, path: Path, workers: int) -> int:
    """The next epoch by `workers` workers, from what is on disk; its number."""
    epochs = Committer(StateDirectory(path), plan, IngestionConfig({"notes": SourceConfig("notes")}), workers, 1000)
    number, newest = epochs.start.epoch, epochs.newest
    lower = MIN_TIME if newest is None else newest.upper
    upper = SPAN * (number + 1)
    schema = plan.sources["notes"]

    def work(index: int, exchange: Exchange) -> Report:
        if newest is None:
            base = Shard.empty(plan, index)
        else:
            base = Shard.load(plan, epochs.directory, newest, index, workers)
        heap = base.open_heap()
        # Half of the updates come an epoch early and are held.
        due = [one for one in base.held["notes"] if len(one)]
        early = changes_of(number + 1)[0::2] + (changes_of(number) if newest is None else changes_of(number)[1::2])
        mine = early[index::workers]
        words = schema.encode_rows((row for row, _, _ in mine), heap)
        updates = Updates.of(words, [time for _, time, _ in mine], [diff for _, _, diff in mine])
        updates = Updates.concat([updates, *(one.updates for one in due)], schema.width)
        now = updates.take(updates.time < upper)
        later = updates.take(updates.time >= upper)
        state = base.state.fork()
        worker = Worker(plan, exchange, state)
        result = worker.run_epoch(lower, upper, {"notes": now})
        held = [HeldUpdates.sort(later, np.zeros(len(later), np.int64), np.zeros((len(later), 2), np.int64))]
        shard = Shard(index, number, "a", state, {"notes": held if len(later) else []})
        stored = store(epochs.directory, plan, shard, (lower, upper), result.changes, [])
        step = Advanced({}, {}, lower, upper, {}, {}, {})
        none = np.empty(0, np.int64)
        admitted = Admitted({"notes": now}, shard.held, [], {"notes": SourceCounts()}, (none, none))
        return report(shard, step, admitted, result, worker, stored, {}, 0)

    exchanges: list[Exchange] = list(Threads.connected(workers)) if workers > 1 else [Single()]
    with ThreadPoolExecutor(workers) as pool:
        epochs.commit(list(pool.map(work, range(workers), exchanges)), {})
    epochs.close()
    return number


def committed(plan: Plan, path: Path) -> dict[str, set[tuple[str, int, int]]]:
    """What the epochs' change batches say, each with the contents in its own segment."""
    state = StateDirectory(path)
    found: dict[str, Counter[tuple[str, int]]] = {view: Counter() for view in plan.views}
    for number in state.epochs():
        for view, refs in state.manifest(number).changes.items():
            about = plan.views[view]
            for ref in refs:
                batch = open_batch(state.open(ref.segment), ref)
                heap = Heap()
                heap.attach([batch.texts])
                updates = batch.to_updates()
                rows = about.schema.decode_rows(updates.rows[:, list(about.words)], heap)
                for row, time, diff in zip(rows, updates.time.tolist(), updates.diff.tolist(), strict=True):
                    found[view][repr(row), time] += diff
    return {view: {(row, time, diff) for (row, time), diff in one.items() if diff} for view, one in found.items()}


@pytest.mark.parametrize("workers", [[1], [2], [1, 3, 2]])
def test_every_epoch_may_begin_from_disk(tmp_path: Path, workers: list[int]) -> None:
    app = program()
    plan, path = compile_app(app), tmp_path / "state"
    for number in range(1, EPOCHS + 1):
        assert run_epoch(plan, path, workers[number % len(workers)]) == number
    with vn.testing.run(app) as t:
        t.update("notes", [one for number in range(1, EPOCHS + 1) for one in changes_of(number)])
        t.advance(SPAN * (EPOCHS + 1))
        expected = {view: {(repr(row), time, diff) for row, time, diff in t.changes(view)} for view in plan.views}
    found = committed(plan, path)
    assert found == expected
    assert all(len(changes) > 20 for changes in found.values())
    checked = audit(StateDirectory(path))
    assert checked.problems == []
