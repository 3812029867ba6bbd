"""Runs all workers of a dataflow in this process, one thread each: for tests, replay and notebooks, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from vernier.operators.engine.migrate import Change
from vernier.operators.engine.worker import EpochResult, Worker
from vernier.operators.failures import ExchangeBroken
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.budget import Budget
from vernier.operators.runtime.exchange import Exchange, Single, Threads
from vernier.storage.strings.string_heap import Heap, needed
from vernier.storage.updates import Updates

Result = TypeVar("Result")


class LocalEngine:
    """Runs a plan epoch by epoch on `workers` threads. Use it as a context manager, or call `close()`.

    `heap` holds the contents of long texts. Add those of the input before an epoch (`RowType.encode(…, heap)`), and use
    it to decode the changes. ordered: whether changes are sorted; otherwise they are in any order. budget: what this
    process may hold; None for the default share of the machine's memory. An epoch that exceeds it raises EpochTooLarge.
    After an epoch that raised, the workers are in the middle of an epoch and the engine must not be used again.
    """

    def __init__(
        self,
        plan: Plan,
        workers: int = 1,
        *,
        slice_updates: int = 0,
        ordered: bool = True,
        budget: Budget | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"a dataflow needs at least one worker, not {workers}")
        self.plan = plan
        self._slice_updates, self._ordered, self._budget = slice_updates, ordered, budget
        self.heap = Heap()
        self._texts = _has_texts(plan)
        self._changes: list[Change] = []
        self._threads = Threads.connected(workers) if workers > 1 else []
        exchanges: list[Exchange] = list(self._threads) or [Single()]
        self.workers = [Worker(plan, exchange, slice_updates=slice_updates, budget=budget) for exchange in exchanges]
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="vernier-worker") if workers > 1 else None

    def run_epoch(self, lower: int, upper: int, inputs: Mapping[str, Updates]) -> dict[str, Updates]:
        """Process each source's updates with lower <= time < upper, in any order, and return every view's changes.

        The changes are those of all workers, consolidated, and sorted by row and time if the engine is `ordered`.
        Raises whatever the workers raise.
        """
        if self._texts:
            self._bring_texts(inputs)
        results = self._run(lower, upper, inputs)
        if self._texts:
            self._take_texts(results)
        if len(results) == 1 and not self._ordered:
            return results[0].changes
        # Slices have times of their own, and workers rows of their own, so their changes are consolidated together.
        changes = {
            name: Updates.concat((result.changes[name] for result in results), view.schema.width)
            for name, view in self.plan.views.items()
        }
        return {name: one.consolidate() for name, one in changes.items()} if self._ordered else changes

    def migrate(self, plan: Plan) -> None:
        """Continue with another plan from the current state (operators/engine/migrate.py). Raises NeedsHistory."""
        self.prepare(plan)
        self.switch()

    def prepare(self, plan: Plan) -> None:
        """Begin a change to another plan, beside the epochs of this one. Raises NeedsHistory."""

        def one(worker: Worker) -> Change:
            return Change(plan, worker.state, worker.exchange, slice_updates=self._slice_updates, budget=self._budget)

        self._changes = self._each(one)

    def fill(self, rows: int | None = None) -> bool:
        """Fill what is new in the other plan with up to `rows` more rows a worker; returns whether it could switch."""
        pairs = {id(worker): change for worker, change in zip(self.workers, self._changes, strict=True)}
        self._each(lambda worker: pairs[id(worker)].step(worker.state, worker.exchange, rows))
        return all(change.ready(self.workers[0].state) for change in self._changes)

    def switch(self) -> None:
        """Continue with the other plan, after filling what is left."""
        pairs = {id(worker): change for worker, change in zip(self.workers, self._changes, strict=True)}

        def one(worker: Worker) -> Worker:
            change = pairs[id(worker)]
            state = change.switch(worker.state, worker.exchange)
            return Worker(change.plan, worker.exchange, state, slice_updates=self._slice_updates, budget=self._budget)

        self.workers = self._each(one)
        self._changes = []
        self.plan = self.workers[0].plan
        self._texts = _has_texts(self.plan)

    def _each(self, call: Callable[[Worker], Result]) -> list[Result]:
        """Call a function for every worker, on its thread."""
        return [call(self.workers[0])] if self._pool is None else list(self._pool.map(call, self.workers))

    def _bring_texts(self, inputs: Mapping[str, Updates]) -> None:
        """Add the texts of the input rows to the workers' heaps, and release those of earlier epochs."""
        dictionaries = needed(self.heap, inputs, {name: row.text_words for name, row in self.plan.sources.items()})
        for worker in self.workers:
            worker.state.heap.trim()
            worker.state.heap.attach(dictionaries)

    def _take_texts(self, results: list[EpochResult]) -> None:
        """Attach the texts that this epoch's changes need, and detach those of earlier epochs."""
        self.heap.detach()
        texts = {name: view.schema.text_words for name, view in self.plan.views.items()}
        for worker, result in zip(self.workers, results, strict=True):
            self.heap.attach(needed(worker.state.heap, result.changes, texts))

    def _run(self, lower: int, upper: int, inputs: Mapping[str, Updates]) -> list[EpochResult]:
        if self._pool is None:
            return [self.workers[0].run_epoch(lower, upper, inputs)]
        count, total = len(self.workers), sum(map(len, inputs.values()))
        futures = []
        for i in range(count):
            # Any worker may read any update: the dataflow sends rows to the owners of their keys.
            part = {name: Updates(updates.data[i::count], updates.width, 0) for name, updates in inputs.items()}
            futures.append(self._pool.submit(self._run_one, i, lower, upper, part, total))
        failures = [failure for failure in (future.exception() for future in futures) if failure is not None]
        if failures:
            # Workers that waited for the failed one raise ExchangeBroken; the cause is the error of another kind.
            raise min(failures, key=lambda failure: isinstance(failure, ExchangeBroken))
        return [future.result() for future in futures]

    def _run_one(self, index: int, lower: int, upper: int, inputs: Mapping[str, Updates], total: int) -> EpochResult:
        try:
            return self.workers[index].run_epoch(lower, upper, inputs, total)
        except BaseException:
            self._threads[index].abort()
            raise

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _has_texts(plan: Plan) -> bool:
    """Whether any row of a plan can have a long text."""
    return any(row.text_words for row in plan.sources.values()) or any(
        shape.texts for shape in plan.arrangements.values()
    )
