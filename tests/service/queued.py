"""A service without Spark or Kafka that goes on from its state directory, for tests that kill it.

    python -m tests.service.queued STATE

Runs the epochs of `UPDATES` that are not committed yet, each as the worker and the driver do it: from the newest
manifest's shard, through a fork of it, to a segment, a report and a commit. Prints a line for each commit.
"""

import sys

import numpy as np

import vernier as vn
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime.exchange import Single
from vernier.service.cluster.shard import Shard, store
from vernier.service.cluster.worker import report
from vernier.service.coordinator.committer import Committer
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.counts import SourceCounts
from vernier.service.ingest.ingestion import Admitted, Advanced
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME, Updates

EPOCHS = 12
SPAN = 10


class Stay(vn.Schema):
    guest: vn.Int64
    stop: vn.Int64


def program() -> vn.App:
    """Queues of all kinds: behind a filter on time, in a loop, and of a delayed variable."""
    app = vn.App("stays", retain="1h")
    stays = app.source("stays", Stay)

    @vn.fixpoint
    def down(x: vn.Collection) -> vn.Collection:
        below = x.valid_between(to="stop").filter(col("guest") > 0).with_columns(guest=col("guest") - 1)
        return vn.union(below, stays.distinct()).distinct()

    gone = vn.Variable("gone", Stay, delay=25)
    gone.set(stays)
    app.view("here", stays.valid_between(to="stop").delay(7).union(gone.negate()), key="guest")
    app.view("down", down(stays.distinct()), key="guest")
    return app


def updates_of(epoch: int) -> Updates:
    """What comes in in an epoch: nothing in every third, so that only what waits makes it work."""
    times = [] if epoch % 3 == 2 else [SPAN * epoch + i for i in range(4)]
    rows = np.array([(time % 3, time + 5 + 7 * (time % 4)) for time in times], np.int64).reshape(-1, 2)
    return Updates.of(rows, times, 1)


def epoch(plan: Plan, epochs: Committer) -> None:
    """The next epoch, from what is on disk."""
    start, newest = epochs.start, epochs.newest
    base = Shard.empty(plan, 0) if newest is None else Shard.load(plan, epochs.directory, newest, 0, 1)
    lower = MIN_TIME if newest is None else newest.upper
    upper = SPAN * (start.epoch + 1)
    inputs = {"stays": updates_of(start.epoch)}
    state = base.state.fork()
    worker = Worker(plan, Single(), state)
    result = worker.run_epoch(lower, upper, inputs)
    shard = Shard(0, start.epoch, "a", state, base.held)
    stored = store(epochs.directory, plan, shard, (lower, upper), result.changes, [])
    step = Advanced({}, {}, lower, upper, {}, {}, {})
    none = np.empty(0, np.int64)
    admitted = Admitted(inputs, base.held, [], {"stays": SourceCounts()}, (none, none))
    epochs.commit([report(shard, step, admitted, result, worker, stored, {}, 0)], {})


def main(path: str) -> None:
    """Go on to the last epoch."""
    plan = compile_app(program())
    epochs = Committer(StateDirectory(path), plan, IngestionConfig({"stays": SourceConfig("stays")}), 1, 1000)
    while epochs.start.epoch <= EPOCHS:
        epoch(plan, epochs)
        print(epochs.start.epoch, flush=True)
    epochs.close()


if __name__ == "__main__":
    main(sys.argv[1])
