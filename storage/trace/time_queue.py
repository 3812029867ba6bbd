"""Time queue: the stash of an operator, that is updates held back until their data time, in immutable runs sorted by
time.

An operator adds the updates that it emits for times at or after the end of the slice, with their full time. The slice
that covers that time removes them. What has been removed follows from the frontier alone (all times before it), so
removing changes nothing that is stored, and a run is written only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vernier.storage.strings.string_heap import Heap, Texts
from vernier.storage.updates import Ints, consolidate_rows, sort_columns


class Run:
    """Updates `[row | time | rounds | diff]` sorted by time, consolidated; immutable. `ref` says where the run is
    persisted, None if it is not; `texts` contains the contents of its long texts, as a batch's does."""

    __slots__ = ("data", "ref", "texts", "times")

    def __init__(self, data: Ints, times: Ints, ref: Any = None, texts: Texts | None = None) -> None:
        self.data, self.times, self.ref, self.texts = data, times, ref, texts

    def __len__(self) -> int:
        return len(self.data)

    def position(self, time: int) -> int:
        """The position of the first update at or after a time. O(log n)."""
        return int(np.searchsorted(self.times, time))

    def meta(self) -> dict[str, int]:
        """The run's meta in a segment's directory."""
        lower = int(self.times[0])
        return {"updates": len(self), "lower": lower, "upper": int(self.times[-1]) + 1, "since": lower}

    def settle(self, positions: Sequence[int], heap: Heap) -> None:
        """Collect the contents of the long texts in its rows. positions: the words at which texts begin; see
        `Batch.settle`."""
        if self.texts is None:
            self.texts = heap.dictionary(self.data, positions)

    def arrays(self) -> dict[str, Ints]:
        """The arrays to store."""
        columns = {"data": self.data, "times": self.times}
        return columns if self.texts is None else columns | self.texts.arrays()

    @staticmethod
    def open(arrays: Mapping[str, Ints], ref: Any) -> Run:
        """The run that `arrays()` describes. The arrays may be views of a mapped file and are not copied."""
        return Run(arrays["data"], arrays["times"], ref, Texts.of_arrays(arrays))


class Queue:
    """The stash of one operator on one worker. Runs are immutable, so `fork` is a cheap copy.

    width: words per row; depth: round coordinates per time.
    """

    __slots__ = ("_by_row", "_by_time", "_fresh", "depth", "name", "runs", "width")

    def __init__(self, name: str, width: int, depth: int, runs: Iterable[Run] = ()) -> None:
        self.name, self.width, self.depth = name, width, depth
        self.runs: list[Run] = list(runs)
        self._fresh: list[Ints] = []
        self._by_row = sort_columns(0, width, depth)
        self._by_time = np.array([width, *range(width), *range(width + 1, width + 1 + depth)], np.int64)

    def fork(self) -> Queue:
        """An independent queue with the same runs."""
        return Queue(self.name, self.width, self.depth, self.runs)

    def put(self, data: Ints) -> None:
        """Add updates for times after the running slice. O(1) here; `close_slice` sorts them."""
        self._fresh.append(data)

    def due(self, lower: int, upper: int) -> Ints:
        """The updates with lower <= time < upper, consolidated. O(log n + result). Raises DiffOverflow."""
        parts = [run.data[run.position(lower) : run.position(upper)] for run in self.runs]
        parts = [part for part in parts if len(part)]
        if not parts:
            return np.empty((0, self.width + self.depth + 2), np.int64)
        if len(parts) == 1:
            return np.array(parts[0])
        return consolidate_rows(np.concatenate(parts), self._by_row)

    def next(self, lower: int) -> int | None:
        """The earliest time at or after `lower` that has updates in the stash. O(runs log n)."""
        found = [int(run.times[at]) for run in self.runs if (at := run.position(lower)) < len(run)]
        return min(found, default=None)

    def reach(self, lower: int, count: int) -> int | None:
        """A time before which each run has at most `count` updates, counted from `lower` on; None if no run has more
        than that."""
        found = [int(run.times[at]) for run in self.runs if (at := run.position(lower) + count) < len(run)]
        return min(found, default=None)

    def waiting(self, lower: int) -> int:
        """The number of updates with times at or after `lower`."""
        return sum(len(run) - run.position(lower) for run in self.runs)

    def close_slice(self, upper: int) -> None:
        """Drop the updates before `upper`, and make a run of those that were added.

        Runs merge until each is more than twice as long as the next. So there are O(log n) runs, and each update is
        rewritten O(log n) times. Raises DiffOverflow.
        """
        kept: list[Run] = []
        fresh = self._fresh
        self._fresh = []
        added = [self._run(fresh)] if fresh else []
        for run in (*self.runs, *added):
            left = len(run) - run.position(upper)
            if not left:
                continue
            while kept and len(kept[-1]) - kept[-1].position(upper) <= 2 * left:
                older = kept.pop()
                run = self._run([older.data[older.position(upper) :], run.data[run.position(upper) :]])
                left = len(run)
                if not left:
                    break
            if left:
                kept.append(run)
        self.runs = kept

    def _run(self, parts: list[Ints]) -> Run:
        data = consolidate_rows(np.ascontiguousarray(np.concatenate(parts)), self._by_time)
        return Run(data, np.ascontiguousarray(data[:, self.width]))
