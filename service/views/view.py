"""One view at one committed epoch, as readers see it. A state is immutable; the next epoch's state is made from it.

It holds the newest rows as a Multiset, the recent changes interval by interval (the log), and the batches of the view's
trace for everything older. The rows as of a data time T are the sum of all diffs at times <= T, which is exact for
since <= T < frontier. The changes from a frontier F on are exact if F > since, or if nothing was compacted yet. This is
the same rule, applied to the state as of F - 1.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vernier.operators.errors import meant
from vernier.operators.language.types.schema import RowType
from vernier.service.kernels import views
from vernier.service.views.multiset import Multiset
from vernier.storage.errors import CallerError, DiffOverflow
from vernier.storage.kernels.status import OK
from vernier.storage.strings.string_heap import Heap, Texts
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import MIN_TIME, Ints, Updates, consolidate_rows, order_rows

_LOG_LENGTH = 1024
_MANY = 1 << 14
"""From this number of changes on, an interval reads them when somebody asks. Until then it keeps their files: of large
epochs, a view's log has only a few."""
_READING = threading.Lock()
_INCARNATIONS = itertools.count(1)


class Compacted(CallerError):
    """A data time lies before the history window."""

    message = "view {view} keeps its history from {since} on; {as_of} is earlier: request a later time, or retain more"
    view: str
    as_of: int
    since: int


class NotYetFinal(CallerError):
    """The answer for a data time may still change."""

    message = (
        "view {view} is final before {frontier}; {as_of} is not final yet: request an earlier time, or "
        "wait with wait_ms="
    )
    view: str
    as_of: int
    frontier: int


class UnknownView(CallerError):
    """There is no view of that name."""

    message = "there is no view {view!r}{hint}"
    view: str
    hint: str

    @classmethod
    def of(cls, view: str, known: list[str]) -> UnknownView:
        """The error with the nearest name as a hint, or with all existing names."""
        listed = f"; there are {', '.join(known)}" if known else "; there are no views"
        return cls(view=view, hint=meant(view, known) or listed)


def matrix_of(updates: Updates) -> Ints:
    """The changes without their times, as `[row words | diff]`."""
    return np.delete(updates.data, updates.width, axis=1)


def key_first(updates: Updates, schema: RowType, key: Sequence[str]) -> Updates:
    """Reorder changes from the program's column order to the word order of the view's trace, which
    begins with the key.
    """
    order = schema.index(View.stored_type(schema, key).names)
    if np.array_equal(order, np.arange(schema.width)):
        return updates
    columns = np.concatenate((order, np.arange(schema.width, updates.data.shape[1])))
    return Updates(np.ascontiguousarray(updates.data[:, columns]), updates.width, updates.depth)


def by_time(updates: Updates) -> Updates:
    """Sort the changes by time, then by row."""
    data = np.ascontiguousarray(updates.data)
    order = order_rows(data, np.array([updates.width, *range(updates.width)], np.int64))
    return Updates(data[order], updates.width, updates.depth)


class Interval:
    """The changes of one advance of the frontier, lower <= time < upper. texts: the dictionaries of their long texts.

    Their first reader puts them in order and, if there are many, reads them: most epochs are over before anyone asks
    for their changes.
    """

    __slots__ = ("_changes", "_count", "_ordered", "_parts", "_width", "committed_ns", "lower", "texts", "upper")

    def __init__(
        self,
        lower: int,
        upper: int,
        changes: Updates,
        committed_ns: int,
        texts: tuple[Texts, ...] = (),
        *,
        ordered: bool = True,
    ) -> None:
        """ordered: whether the changes are ordered by time, then row."""
        self.lower, self.upper, self.committed_ns, self.texts = lower, upper, committed_ns, texts
        self._changes: Updates | None = changes
        self._count, self._width, self._ordered = len(changes), changes.width, ordered
        self._parts: Sequence[Batch] = ()

    @staticmethod
    def of(lower: int, upper: int, parts: Sequence[Batch], width: int, committed_ns: int) -> Interval:
        """The changes in some batches, which are there as long as the interval is."""
        texts = tuple(part.texts for part in parts if part.texts is not None)
        made = Interval(lower, upper, Updates.empty(width), committed_ns, texts, ordered=False)
        made._changes, made._count, made._parts = None, sum(part.updates for part in parts), parts
        if made._count < _MANY:
            made._read()
        return made

    def __len__(self) -> int:
        """The number of changes."""
        return self._count

    @property
    def nbytes(self) -> int:
        """The memory of the changes, once they are read."""
        return 8 * self._count * (self._width + 2)

    @property
    def unordered(self) -> Updates:
        """The changes in any order. O(n) the first time. Any thread may read them."""
        return self._read() if self._changes is None else self._changes

    def _read(self) -> Updates:
        with _READING:
            if self._changes is None:  # no other thread has read them, and perhaps put them in order
                self._changes = Updates.concat([part.to_updates() for part in self._parts], self._width)
                self._parts = ()
            return self._changes

    @property
    def changes(self) -> Updates:
        """The changes ordered by time, then row. O(n log n) the first time. Any thread may read them."""
        self.order()
        return self.unordered

    def order(self) -> None:
        """Put the changes in order, if no reader has yet."""
        if not self._ordered:
            self._changes = by_time(self.unordered)
            self._ordered = True  # last: another thread may look, and at worst it sorts them as well

    def to_order(self) -> int:
        """The number of changes that `changes` would have to put in order."""
        return 0 if self._ordered else self._count

    def part(self, lower: int, upper: int) -> Interval:
        """The part of this interval inside [lower, upper)."""
        if lower <= self.lower and self.upper <= upper:
            return self
        time = self.changes.time
        inside = slice(int(np.searchsorted(time, lower)), int(np.searchsorted(time, upper)))
        lower, upper = max(lower, self.lower), min(upper, self.upper)
        return Interval(lower, upper, self.changes.take(inside), self.committed_ns, self.texts)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A view at `frontier`. rows: as of frontier - 1; log: contiguous intervals that end at the frontier, oldest first.

    schema has the columns in the program's order; stored has them in the order of the words, which begins with the key.
    Times are data times in ns. Two states of the same name and incarnation agree on every time that both know, so
    answers as of a time can be cached. heap: finds the contents of the long texts of all rows and changes in the state;
    None if the view has no texts.
    """

    name: str
    schema: RowType
    key: tuple[str, ...]
    stored: RowType
    since: int
    frontier: int
    rows: Multiset
    incarnation: int
    log: tuple[Interval, ...] = ()
    batches: tuple[Batch, ...] = field(default=(), repr=False)
    heap: Heap | None = field(default=None, repr=False)

    @staticmethod
    def stored_type(schema: RowType, key: Sequence[str]) -> RowType:
        """The row type of a view's trace: key columns first, in the key's order, then the others."""
        return schema.take([*key, *(name for name in schema.names if name not in key)])

    @staticmethod
    def load(
        name: str, schema: RowType, key: Sequence[str], since: int, frontier: int, batches: Iterable[Batch]
    ) -> View:
        """Build the state from the batches of its trace alone. O(n log n) for n updates in the trace."""
        stored, held = View.stored_type(schema, key), tuple(batches)
        rows = sum_until(held, stored.width, frontier - 1)
        heap = _heap_of(stored, held, ())
        return View(name, schema, tuple(key), stored, since, frontier, rows, next(_INCARNATIONS), (), held, heap)

    def follow(self, interval: Interval, sums: Multiset, since: int, batches: Iterable[Batch], log_bytes: int) -> View:
        """The state after an interval that begins at this frontier. sums: the interval's changes without their times,
        summed by row. The log keeps its newest `log_bytes`. O(sums), amortised, times the logarithm of the view's size.
        """
        log = [*self.log, interval]
        kept = sum(one.nbytes for one in log)
        drop = 0
        while drop < len(log) - 1 and (kept > log_bytes or log[drop].upper <= since or len(log) - drop > _LOG_LENGTH):
            kept -= log[drop].nbytes
            drop += 1
        rows = self.rows.plus(sums)
        held, kept_log = tuple(batches), tuple(log[drop:])
        heap = _heap_of(self.stored, held, kept_log)
        return replace(self, since=since, frontier=interval.upper, rows=rows, log=kept_log, batches=held, heap=heap)

    @property
    def log_start(self) -> int:
        """The frontier from which on the log contains all changes."""
        return self.log[0].lower if self.log else self.frontier

    def check(self, as_of: int) -> None:
        """Raises Compacted or NotYetFinal unless the rows as of that time are known and final."""
        if as_of >= self.frontier:
            raise NotYetFinal(view=self.name, as_of=as_of, frontier=self.frontier)
        if as_of < self.since and self.since > MIN_TIME:
            raise Compacted(view=self.name, as_of=as_of, since=self.since)

    def rows_as_of(self, as_of: int) -> Multiset:
        """The rows at a data time: the newest rows minus later changes if the log reaches back that far, else a sum
        over the trace.
        """
        self.check(as_of)
        if as_of == self.frontier - 1:
            return self.rows
        if as_of + 1 >= self.log_start:
            later = [interval.unordered for interval in self._log_parts(as_of + 1, self.frontier)]
            undone = matrix_of(Updates.concat(later, self.stored.width)).copy()
            undone[:, -1] *= -1
            return self.rows.apply(undone)
        return sum_until(self.batches, self.stored.width, as_of)

    def undone(self, as_of: int) -> int | None:
        """The number of changes after that time, which is the cost of the rows as of it; None if the log does not reach
        back.
        """
        if as_of + 1 < self.log_start:
            return None
        count = 0
        for interval in reversed(self.log):
            if interval.upper <= as_of + 1:
                break
            count += len(interval)
        return count

    def find(self, as_of: int, words: Sequence[int]) -> tuple[Ints, Ints]:
        """The rows of a key (given as words) and their counts, at a data time that the log reaches.

        It searches the later changes for this key only, which is far cheaper than `rows_as_of`. O(changes after that
        time), in a few passes. Raises what `check` raises, and DiffOverflow.
        """
        self.check(as_of)
        rows, counts = self.rows.find(words)
        if as_of == self.frontier - 1:
            return rows, counts
        wanted, parts = np.array(words, np.int64), [np.column_stack((rows, counts))]
        for interval in self._log_parts(as_of + 1, self.frontier):
            changes = interval.unordered
            same = changes.data[:, 0] == wanted[0]
            if len(wanted) > 1:
                same &= (changes.data[:, 1 : len(wanted)] == wanted[1:]).all(axis=1)
            if same.any():
                parts.append(matrix_of(changes.take(np.flatnonzero(same))))
                parts[-1][:, -1] *= -1
        if len(parts) == 1:
            return rows, counts
        data = consolidate_rows(np.concatenate(parts), np.arange(self.stored.width, dtype=np.int64))
        return data[:, :-1], data[:, -1]

    def can_resume(self, frontier: int) -> bool:
        """Whether all changes from this frontier on are known individually."""
        return frontier > self.since or self.since <= MIN_TIME

    def intervals(self, lower: int, upper: int) -> list[Interval]:
        """The changes with lower <= time < upper as contiguous intervals, in order. Raises Compacted if some were
        compacted.

        Where the log reaches they are shared: O(intervals), and a sort of what no reader has read yet (`to_order`).
        Older ones come from the trace as one interval, O(trace).
        """
        upper = min(upper, self.frontier)
        if lower >= upper:
            return []
        if lower >= self.log_start:
            # The log is complete even where `since` has passed it, which happens with the first data of a quiet
            # service.
            found = self._log_parts(lower, upper)
        elif not self.can_resume(lower):
            raise Compacted(view=self.name, as_of=lower, since=self.since)
        else:
            middle = min(self.log_start, upper)
            older = changes_between(self.batches, self.stored.width, lower, middle)
            found = [Interval(lower, middle, older, 0), *self._log_parts(middle, upper)]
        for interval in found:
            interval.order()
        return found

    def to_order(self, lower: int) -> int:
        """The number of changes of the log from this frontier on that no reader has put in order yet."""
        count = 0
        for interval in reversed(self.log):
            if interval.upper <= lower:
                break
            count += interval.to_order()
        return count

    def _log_parts(self, lower: int, upper: int) -> list[Interval]:
        first = len(self.log)
        while first and self.log[first - 1].upper > lower:
            first -= 1
        parts = []
        for interval in self.log[first:]:
            if interval.lower >= upper:
                break
            parts.append(interval.part(lower, upper))
        return parts


def _heap_of(stored: RowType, batches: Iterable[Batch], log: Iterable[Interval]) -> Heap | None:
    """A heap over the long texts of these batches and intervals. O(batches + intervals); reads no text yet."""
    if not stored.text_words:
        return None
    heap = Heap()
    heap.attach(batch.texts for batch in batches)
    heap.attach(texts for interval in log for texts in interval.texts)
    return heap


def changes_between(batches: Iterable[Batch], width: int, lower: int, upper: int) -> Updates:
    """The changes that a view's batches hold with lower <= time < upper, ordered by time, then row.

    Exact if no time from `lower` on was compacted. Then batches of one shard hold different times and batches of
    different shards hold different rows, so nothing has to be summed. O(updates of the batches that overlap) to search,
    plus a sort of the result. Raises Damaged.
    """
    found = []
    for batch in batches:
        if batch.lower < upper and batch.upper > lower and batch.updates:
            batch.verify()
            picked = views.pick_between(batch.address, batch.key_width, batch.val_width, lower, upper)
            found.append(Updates(picked, width, 0))
    return by_time(Updates.concat(found, width))


def sum_until(batches: Iterable[Batch], width: int, as_of: int) -> Multiset:
    """The rows at a data time. O(updates), plus a sort of the distinct rows. Raises DiffOverflow, Damaged."""
    found = [np.empty((0, width + 1), np.int64)]
    for batch in batches:
        if batch.lower <= as_of and batch.updates:
            batch.verify()
            rows, status = views.sum_until(batch.address, batch.key_width, batch.val_width, as_of)
            if status != OK:
                raise DiffOverflow(operation="addition")
            found.append(rows)
    return Multiset.of(width, np.concatenate(found))
