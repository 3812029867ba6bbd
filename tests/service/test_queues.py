"""What waits for its time is stored with the epoch: a service that is killed goes on as if it had not been."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vernier as vn
from tests.service.queued import EPOCHS, SPAN, epoch, program, updates_of
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.shard import Shard
from vernier.service.coordinator.committer import Committer
from vernier.service.coordinator.runner import SOON_SECONDS, beat_in
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.storage.state.audit import audit
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace.batch import Batch

Change = tuple[str, tuple[int, ...], int, int]


def expected() -> set[Change]:
    """The changes of a run without interruption."""
    app = program()
    with vn.testing.run(app) as t:
        for number in range(1, EPOCHS + 1):
            updates = updates_of(number)
            rows = zip(map(tuple, updates.rows.tolist()), updates.time.tolist(), updates.diff.tolist(), strict=True)
            t.update("stays", list(rows))
        t.advance(SPAN * (EPOCHS + 1))
        return {(view, row, time, diff) for view in app.views for row, time, diff in t.changes(view)}


def committed(path: Path) -> list[Change]:
    """What all committed epochs have changed; their views have the key first, as the schema does."""
    state = StateDirectory(path)
    found: list[Change] = []
    for number in state.epochs():
        for view, refs in state.manifest(number).changes.items():
            for ref in refs:
                entry = state.open(ref.segment).entry(ref.label)
                data = Batch.open(entry.meta, entry.arrays).to_updates().data
                found += [(view, tuple(row[:-2]), row[-2], row[-1]) for row in data.tolist()]
    return found


@pytest.mark.slow
def test_killed_again_and_again_it_ends_as_one_that_was_not(tmp_path: Path) -> None:
    path = tmp_path / "state"
    command = [sys.executable, "-m", "tests.service.queued", str(path)]
    reached, kills = 1, 0
    while reached <= EPOCHS:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process, process.stdout as lines:
            for line in lines:
                reached = int(line)
                if reached % 2 == 0 and reached <= EPOCHS:
                    process.send_signal(signal.SIGKILL)  # in the middle of the epoch that follows
                    kills += 1
                    break
        assert process.returncode in (0, -signal.SIGKILL)
    assert kills >= EPOCHS // 3
    found = committed(path)
    assert len(found) == len(set(found))
    assert set(found) == expected()
    state = StateDirectory(path)
    newest = state.latest()
    assert newest is not None
    waiting = {name: sum(ref.updates for ref in shards[0]) for name, shards in newest.held.items()}
    assert set(waiting) == {"stays", *compile_app(program()).queues}
    assert any(waiting.values())
    assert not audit(state).problems


def test_the_next_epoch_comes_when_something_is_due(tmp_path: Path) -> None:
    plan = compile_app(program())
    epochs = Committer(
        StateDirectory(tmp_path / "state"), plan, IngestionConfig({"stays": SourceConfig("stays")}), 1, 10
    )
    assert epochs.due is None
    for _ in range(3):
        epoch(plan, epochs)
        newest = epochs.newest
        assert newest is not None
        state = Shard.load(plan, epochs.directory, newest, 0, 1).state
        waits = [time for run in (run for one in state.queues.values() for run in one.runs) for time in run.times]
        assert epochs.due == min(time for time in waits if time >= newest.upper)
    epochs.close()


def test_a_beat_is_early_when_it_is_needed() -> None:
    second = 10**9
    assert beat_in(5 * second, 5 * second + second // 4, 1.0) == 0.25 + SOON_SECONDS
    assert beat_in(5 * second, 4 * second, 1.0) == SOON_SECONDS
    assert beat_in(5 * second, 7 * second, 1.0) is None


def test_a_queue_that_is_read_back_is_the_same(tmp_path: Path) -> None:
    from vernier.storage.trace.time_queue import Queue, Run

    queue = Queue("q", 1, 1)
    queue.put(np.array([[7, 50, 2, 1], [8, 20, 1, 1], [7, 50, 2, 1]], np.int64))
    queue.close_slice(10)
    queue.put(np.array([[7, 50, 2, -2], [9, 30, 0, 1]], np.int64))
    queue.close_slice(11)
    again = Queue("q", 1, 1, [Run.open(run.arrays(), None) for run in queue.runs])
    for one in (queue, again):
        assert one.next(0) == 20
        assert one.next(21) == 30
        assert one.waiting(11) == 2
        assert one.due(20, 31).tolist() == [[8, 20, 1, 1], [9, 30, 0, 1]]
        assert one.due(31, 100).tolist() == []
