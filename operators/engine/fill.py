"""Fill: computes the fresh traces of a changed plan from rows that the state holds, at once or beside the epochs.

The way of the data: the batches of each given trace → pieces of rows → the operators behind them, in a worker of their
own. Everything that a given trace knows only in sum enters first, piece by piece, each piece at a data time of its own
just before the history begins. Then the history enters with its true times. That is exact because the fresh traces are
read from their `since` on only, and there all pieces add up.

Beside the epochs, the fill is a reader of shared arrangements that lags. It takes a hold on each given trace
(storage/trace/holds.py): times from its own frontier on stay apart (`advance_by`), and no merge crosses that frontier
(`distinguish`), so the batches after it are exactly what the fill has not seen. `catch_up` reads those and moves the
hold. When the fill has reached the newest commit, its traces and the kept ones are the state of the new plan.

The fill reads only what is committed, so an attempt that fails costs it nothing. If a worker dies, all of them begin
again. Cost of a step: the rows that it may take, and what the new operators do with them.
Source: "Differential dataflow roadmap", constraint 2 (readers that lag hold an index back).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from vernier.operators.engine.given import Given, given_plan, name_of
from vernier.operators.engine.worker import Worker, WorkerState
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.budget import Budget
from vernier.operators.runtime.exchange import Exchange
from vernier.storage.time.antichain import Antichain
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.holds import Hold, Holds
from vernier.storage.updates import MIN_TIME, Ints, Updates

PIECES = 1 << 20
"""More pieces than a fill ever takes."""


class Fill:
    """Fills the traces of `plan` that the operators `operators` compute, on one worker. All workers must call the same
    methods in the same order. state: what is filled so far."""

    def __init__(
        self,
        plan: Plan,
        operators: Collection[int],
        given: Mapping[int, Given],
        exchange: Exchange,
        *,
        slice_updates: int = 0,
        budget: Budget | None = None,
    ) -> None:
        self.plan = given_plan(plan, given)
        self.state = WorkerState.empty(plan)
        self.rows = self.taken = self.steps = 0
        """This worker's rows to take, those that it has taken, and the steps it took them in."""
        self._given, self._operators = given, {*operators}
        self._slice_updates, self._budget = slice_updates, budget
        self._exchange = exchange
        self._worker: Worker | None = None
        self._waiting: list[tuple[str, Given, Batch]] = []
        self._key = 0
        self._name, self._rest = "", np.empty((0, 2), np.int64)
        self._history: dict[str, list[Ints]] = {}
        self._holds: dict[str, tuple[Hold, Hold]] = {}
        self._readers: dict[str, Holds] = {}
        self._begun = self._next = MIN_TIME
        self._loaded = False

    @property
    def upper(self) -> int:
        """The frontier up to which the fresh traces are complete; MIN_TIME before all rows are in."""
        return self.state.upper if self._loaded else MIN_TIME

    def begin(self, state: WorkerState, *, hold: bool = False) -> None:
        """Begin with the rows of `state`. hold: its traces go on while the fill lasts, so hold them."""
        self._begun = state.upper
        self.state.heap = state.heap
        self._next = max(
            MIN_TIME, min((self._floor(one) for one in self._given.values()), default=self._begun) - PIECES
        )
        for op, given in self._given.items():
            trace = state.traces[given.trace]
            if hold and given.trace not in self._holds:
                cut = trace.distinguish(state.upper)
                self._holds[given.trace] = trace.advance_by(Antichain([[state.upper]])), cut
            self._readers[given.trace] = trace.readers
            batches = trace.cursor_through(state.upper).batches
            self._waiting += [(name_of(op), given, batch) for batch in batches]
            self.rows += sum(batch.updates for batch in batches)
        self.use(self._exchange)

    def follows(self, state: WorkerState) -> bool:
        """Whether the traces of `state` are those that the fill holds, as they went on."""
        return all(state.traces[name].readers is readers for name, readers in self._readers.items())

    def use(self, exchange: Exchange) -> None:
        """Communicate through this exchange from now on: each attempt of an epoch has its own."""
        self._exchange = exchange
        self._worker = Worker(
            self.plan,
            exchange,
            self.state,
            slice_updates=self._slice_updates,
            only=self._operators,
            budget=self._budget,
        )

    def step(self, state: WorkerState, rows: int | None = None) -> None:
        """Take up to `rows` more rows on this worker, or all; once all workers have none left, what came since."""
        self.steps += 1
        self._attach_texts(state)
        if self._loaded:
            self._catch_up(state)
            return
        inputs = self._take(rows)
        self._run(self._next, self._next + 1, inputs)
        self._next += 1
        if all(said == b"" for said in self._exchange.allgather(b"more" if self._waiting or len(self._rest) else b"")):
            self._run(self._next, self._begun, self._history)
            self._history, self._loaded = {}, True

    def finish(self, state: WorkerState) -> WorkerState:
        """Take all that is left up to the frontier of `state`; returns the filled state."""
        while self.upper < state.upper:
            self.step(state)
        self.close()
        return self.state

    def close(self) -> None:
        """Release the held traces; idempotent."""
        for holds in self._holds.values():
            for hold in holds:
                hold.release()
        self._holds = {}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _floor(self, given: Given) -> int:
        """The time that stands for all that the given trace knows only in sum."""
        return min(given.since, self._begun - 1)

    def _take(self, rows: int | None) -> dict[str, list[Ints]]:
        """The next rows, up to `rows` of them, by source. What has history is put aside for later."""
        inputs: dict[str, list[Ints]] = {}
        left = self.rows if rows is None else rows
        while left > 0 and (len(self._rest) or self._waiting):
            if not len(self._rest):
                left -= self._read(left)
            now, self._rest = self._rest[:left], self._rest[left:]
            now[:, -2] = self._next
            inputs.setdefault(self._name, []).append(now)
            self.taken += len(now)
            left -= len(now)
        return inputs

    def _read(self, rows: int) -> int:
        """Read the next keys with about `rows` rows, at least one key; returns how many rows have history."""
        self._name, given, batch = self._waiting[0]
        keys = len(batch.hashes)
        before = batch.updates_before
        first = self._key
        stop = bisect_right(range(keys + 1), before(first) + rows, lo=first + 2, key=before) - 1 if keys else 0
        data = given.updates(batch.keyed((first, stop)), self.state.heap)
        late = data[:, -2] > given.since  # compaction moves times up to `since`, never beyond
        if late.any():
            self._history.setdefault(self._name, []).append(data[late])
            data = data[~late]
        self._rest, self._key = data, stop
        if stop == keys:
            self._waiting.pop(0)
            self._key = 0
        held = int(np.count_nonzero(late))
        self.taken += held
        return held

    def _catch_up(self, state: WorkerState) -> None:
        """Take what the held traces have received since the fill's frontier, and hold the rest."""
        lower, upper = self.state.upper, state.upper
        if lower == upper:
            return
        inputs = {
            name_of(op): [
                given.updates(batch.keyed(), self.state.heap)
                for batch in state.traces[given.trace].batches
                if batch.lower >= lower
            ]
            for op, given in self._given.items()
        }
        self._run(lower, upper, inputs)
        for trace, (hold, cut) in self._holds.items():
            hold.advance(Antichain([[upper]]))
            cut.release()
            self._holds[trace] = hold, state.traces[trace].distinguish(upper)

    def _run(self, lower: int, upper: int, inputs: Mapping[str, Sequence[Ints]]) -> None:
        assert self._worker is not None
        together = {
            name: Updates(np.concatenate(parts), parts[0].shape[1] - 2, 0) for name, parts in inputs.items() if parts
        }
        self._worker.run_epoch(lower, upper, together)

    def _attach_texts(self, state: WorkerState) -> None:
        for given in self._given.values():
            self.state.heap.attach(batch.texts for batch in state.traces[given.trace].batches)
