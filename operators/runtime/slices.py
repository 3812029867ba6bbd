"""Slices: where an epoch is cut. Cuts are the same on all workers and never inside one data time. Answers do not depend
on them.

The slice sizing (operators/runtime/slice_sizing.py) decides, slice by slice, how many updates of each worker a slice
should hold. So the cost per update does not grow with the epoch, and more workers do not need more rounds of exchange
per update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from vernier.operators.failures import DelayedCycleDidNotSettle
from vernier.operators.runtime.exchange import Exchange
from vernier.operators.runtime.slice_sizing import SliceSizing
from vernier.storage.trace.time_queue import Queue
from vernier.storage.updates import CLOSED, Ints

Interval = tuple[int, int]


def cut_by_count(
    exchange: Exchange, sources: Mapping[str, Ints], lower: int, upper: int, sizing: SliceSizing
) -> Iterator[Interval]:
    """The slices of an epoch whose updates are all known, of about equal size. The caller must run each slice before it
    takes the next. Costs one exchange and, with several workers, one more for each slice. An epoch without updates has
    no slices.

    sources: updates at depth 0, sorted by time.
    """
    workers, grain = exchange.workers, sizing.grain
    sizing.share = 0
    if workers == 1 and sum(map(len, sources.values())) <= sizing.updates:
        if any(map(len, sources.values())):
            yield lower, upper
        return
    none = np.empty(0, np.int64)
    # Each source is sorted already, and a stable sort detects such runs: 200,000 times take 0.2 ms instead of 11 ms.
    times = np.sort(np.concatenate([none, *(data[:, -2] for data in sources.values())]), kind="stable")
    # Every grain-th time of each worker.
    sample = np.concatenate((times[:1], times[grain::grain]))
    gathered = exchange.allgather(sample.tobytes())
    if not any(gathered):
        return
    cuts = np.sort(np.concatenate([np.frombuffer(part, np.int64)[1:] for part in gathered]))
    done = 0
    while lower < upper:
        before = done
        # The number of slices that the rest needs; each of them takes an equal part of it.
        left = -(-(len(cuts) + 1 - done) // workers)
        if left > 1:
            wanted = sizing.updates // grain
            agreed = wanted if workers == 1 else (exchange.agree_min((wanted,)) or (wanted,))[0]
            left = -(-left // -(-left // agreed))
        done = min(done + left * workers, len(cuts) + 1)
        done = max(done, int(np.searchsorted(cuts, lower, side="right")) + 1)
        stop = min(upper, int(cuts[done - 1])) if done <= len(cuts) else upper
        if workers > 1:
            sizing.share = (min(done, len(cuts)) - before) * grain // workers
        yield lower, stop
        lower = stop


class HeldSlices:
    """The slices of an epoch in which updates may come out of queues, some of which the epoch's own slices fill.

    Costs one exchange per slice. A slice begins at the next time with work. delay: the smallest delay of a variable; no
    slice is wider. cyclic: the queues through which a variable feeds itself. After `max_steps` consecutive slices that
    only these queues feed, such a cycle may never end, and `unsettled` creates the error for the next slice.
    """

    def __init__(
        self,
        exchange: Exchange,
        queues: Mapping[str, Queue],
        sizing: SliceSizing,
        *,
        delay: int | None = None,
        cyclic: Sequence[str] = (),
        max_steps: int = 0,
        unsettled: Callable[[int, int], DelayedCycleDidNotSettle] | None = None,
    ) -> None:
        self._exchange, self._queues = exchange, queues
        self._sizing = sizing
        self._delay, self._max_steps, self._unsettled = delay, max_steps, unsettled
        self._outer = [name for name in queues if name not in cyclic]

    def cut(self, sources: Mapping[str, Ints], lower: int, upper: int) -> Iterator[Interval]:
        """The epoch's slices; the caller must run each before it takes the next. sources: sorted by time."""
        times = [np.ascontiguousarray(data[:, -2]) for data in sources.values()]
        quiet = 0
        while lower < upper:
            first, reach, outer = self._agree(times, lower)
            if first >= upper:
                return
            stop = min(upper, max(first + 1, reach))
            if self._delay is not None:
                stop = min(stop, first + self._delay)
            quiet = 0 if outer < stop else quiet + 1
            if self._unsettled is not None and quiet > self._max_steps:
                raise self._unsettled(first, stop)
            yield first, stop
            lower = stop

    def _agree(self, times: list[Ints], lower: int) -> tuple[int, int, int]:
        """The least over all workers of: the next time with work, the time at which a slice should end, and the next
        time with work from outside the delayed cycles."""
        source, reach = CLOSED, CLOSED
        step = self._sizing.updates
        for own in times:
            at = int(np.searchsorted(own, lower))
            source = min(source, int(own[at]) if at < len(own) else CLOSED)
            reach = min(reach, int(own[at + step]) if at + step < len(own) else CLOSED)
        waits = {name: queue.next(lower) for name, queue in self._queues.items()}
        for queue in self._queues.values():
            far = queue.reach(lower, step)
            reach = reach if far is None else min(reach, far)
        first = min([source, *(time for time in waits.values() if time is not None)])
        outer = min([source, *(time for name in self._outer if (time := waits[name]) is not None)])
        said = self._exchange.allgather(np.array([first, reach, outer], np.int64).tobytes())
        least = np.min([np.frombuffer(part, np.int64) for part in said], axis=0)
        return int(least[0]), int(least[1]), int(least[2])
