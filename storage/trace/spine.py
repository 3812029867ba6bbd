"""Spine: the batches of one arrangement on one worker, few in number and geometric in size (class Trace).

While a slice runs, it appends matrices of rows, one per step (large ones of a load are tries). Readers keep marks in
them, which say how much they have seen. When the slice closes, its steps become one batch. Neighbouring batches whose
sizes are within a factor of two merge, compacted to `since`. Merges are incremental. For each update that the slice
added, and for each level of sizes, a close pays for `FUEL` updates of merging, plus `LEAST` more; the merge with the
earliest deadline is served first. Readers use the two old batches until the new one is done; unfinished merges are not
persisted. Neighbours that are not large, and not much more than what was added or few updates anyway, merge at once, in
the close that finds them (`AT_ONCE`), unless they have partial sums (storage/trace/prefix_index.py). Small batches wait
until there are more than `SMALL_BATCHES` of them; then those that are not much larger than what follows them become
one. When they hold `2 * SMALL` updates, all do. So small slices do not merge at every close, and closes that add little
leave the fuel to a later one (`FEW_CLOSES`, `FEW_UPDATES`).

*Close times are even*: an update goes through little more than one merge per level, and `FUEL` is more than that. What
a close pays for therefore nearly always depends on its own updates and not on how many merges coincide. Closing a slice
costs one sort of its steps plus the fuel; merges at once and occasional sorts of small batches (fewer than `3 * SMALL`
rows) are charged to the fuel.

*Merges keep up*: a merge of older a and newer b updates, a < 2 b, is due when b more updates have arrived after it,
that is before the updates waiting to merge with its result outnumber its newer half. A close pays for more than its
fuel if, at an even pace, the merges due by some count would be late, which can happen when slices grow.

*Batches are few*: neighbours that do not merge differ by at least a factor of two. Behind a merge of a and b are the
batches that were there when it began (falling by factors of two: less than b in all) and those that have arrived since
(at most b). So sizes fall geometrically, with two batches per merge, down to the small ones: O(log n) batches for n
updates.

*Work is O(log n) per update*: a merge enlarges the batch that contains an update by a half or more (a < 2 b: from a to
a + b > 3/2 a). The exception is an older batch that has shrunk below the newer one; this work is charged to the updates
that cancelled in it.

Source: "Differential dataflow roadmap", section "A proposal"; differential-dataflow's fuelled spine.
"""

from __future__ import annotations

import itertools

import numpy as np

from vernier.storage.errors import CutLost, DiffOverflow, HoldTooEarly
from vernier.storage.kernels import running_traces, tries
from vernier.storage.kernels.closing import (
    AT_ONCE,
    AT_ONCE_ALWAYS,
    AT_ONCE_EACH,
    FEW_CLOSES,
    FEW_UPDATES,
    SMALL_BATCHES,
    SMALL_UPDATES,
    SORTING,
    first_to_unite,
)
from vernier.storage.kernels.folding import MANY, close_batches, close_steps
from vernier.storage.time.antichain import Antichain
from vernier.storage.trace.batch import Batch, keyed_columns, owing_of
from vernier.storage.trace.closed import Closed
from vernier.storage.trace.cursor import Cursor
from vernier.storage.trace.history_cache import LOANS, HistoryCache, Selection
from vernier.storage.trace.holds import Hold, Holds
from vernier.storage.trace.merge import Merge
from vernier.storage.updates import CLOSED, MIN_TIME, Ints

__all__ = ["FUEL", "LARGE", "LEAST", "Selection", "Trace"]

FUEL = 1.3
"""Updates that merges advance for each update that a slice adds and each level. Levels are sizes from `SMALL` upwards,
doubling."""
LEAST = 1 << 9
"""Updates that merges advance whenever they go on, so that they finish even if no updates arrive."""
SMALL = SMALL_UPDATES
"""A batch with fewer updates than this is small."""
LARGE = 1 << 17
"""From this number of rows on, a load keeps a step as a trie."""
_ONE_PASS = 1 << 20
"""Up to this number of rows, a step becomes a trie in one pass, which takes as much memory again."""
_FOLDED = running_traces.FOLDED
"""Up to this number of rows, steps are summed by hash; beyond the processor's caches a sort is as fast."""


_numbers = itertools.count(1)
"""Numbers for traces, to tell apart the forks that share histories."""


class Trace:
    """The batches of one arrangement, oldest first. Batches are immutable, so `fork` is a cheap copy.

    `batches` are the batches of earlier slices. `steps` are the keyed rows that the running slice has sealed, each a
    matrix or, if it is large, a trie. They are read in place and become a batch when the slice closes.

    `running`: while a kernel runs slices of this trace (storage/trace/running.py), what it has closed of them; reading
    `batches` or `since` takes it over, and changing the trace otherwise ends the loan.

    `loads`: whether the running slice is a load, that is very many updates, mostly of one time. Then large steps become
    tries, and their histories are not cached: a load reads each key once per round, in pieces. `_sealed` counts the
    rows of steps that are matrices, `_packed` the updates of those that are tries. `_small` counts the small batches at
    the end, which have `_loose` updates. `_at_rest`: no merge is running, and none will begin before batches are added.

    `merged` counts the updates that went into finished merges, `kept` those of them that did not cancel, and `spent`
    the updates that merges have processed. `_added` counts the updates in batches that slices have made; `due` of a
    merge is a value of this counter. `replaced` counts how often the batches have become others, not only more.

    `since`: times before it may be read as one. It advances to the value given to `close_slice`, but not beyond what a
    reader holds (`advance_by`), and no two batches merge across a cut that a reader holds (`distinguish`). Forks share
    the holds.
    """

    __slots__ = (
        "_added", "_addresses", "_at_rest", "_batches", "_charged", "_closes", "_interval", "_loose", "_owed",
        "_packed", "_sealed", "_since", "_small", "_table", "_tries", "columns", "cuts", "depth", "histories", "kept",
        "key_width", "loads", "merged", "merges", "name", "number", "readers", "replaced", "running", "spent",
        "steps", "val_width",
    )  # fmt: skip

    def __init__(self, name: str, key_width: int, val_width: int, depth: int, since: int = MIN_TIME) -> None:
        self.name, self.key_width, self.val_width, self.depth = name, key_width, val_width, depth
        self._batches: list[Batch] = []
        self.running: Closed | None = None
        self.steps: list[Ints | Batch] = []
        self.merges: list[Merge] = []
        self.readers, self.cuts = Holds(1 + depth), Holds(1)
        self._since = since
        self._closes = self._owed = self._charged = 0
        self.merged = self.kept = self.spent = self._added = self.replaced = 0
        self._interval = (MIN_TIME, MIN_TIME)
        self._table = np.zeros((8, tries.FIELDS), np.int64)
        self._addresses: list[Ints] = []
        self._sealed = self._packed = self._tries = self._small = self._loose = 0
        self._at_rest = self.loads = False
        self.columns = keyed_columns(key_width, val_width, depth)
        self.histories = HistoryCache(key_width, val_width, depth)
        self.number = next(_numbers)

    @property
    def batches(self) -> list[Batch]:
        """The batches of earlier slices, oldest first."""
        if self.running is not None and self.running.news:
            self._take_news(self.running)
        return self._batches

    @property
    def since(self) -> int:
        """From which time on times are distinguished."""
        if self.running is not None and self.running.news:
            self._take_news(self.running)
        return self._since

    @since.setter
    def since(self, since: int) -> None:
        self._stop_running()
        self._since = since

    def run_in(self, closed: Closed, unites: bool, merges: bool) -> None:
        """Let a kernel close this trace's slices. unites: whether it may unite small batches; merges: whether it may
        merge larger ones, too."""
        self._stop_running()
        held = self.readers.earliest
        closed[running_traces.SINCE] = self._since
        closed[running_traces.HELD] = CLOSED if held is None else held
        closed[running_traces.BATCHES] = closed[running_traces.KEPT] = len(self._batches)
        closed[running_traces.SMALL], closed[running_traces.LOOSE] = self._small, self._loose
        closed[running_traces.UNITES] = unites and self.cuts.earliest is None
        closed[running_traces.AT_REST] = self._at_rest
        closed[running_traces.CLOSES], closed[running_traces.OWED] = self._closes, self._owed
        closed[running_traces.SPENT] = self._charged
        busy = (1 + at for at, batch in enumerate(self._batches) if self._busy(batch))
        closed[running_traces.BUSY] = max(busy, default=0) if merges else CLOSED
        self.running = closed

    def _take_news(self, closed: Closed) -> None:
        """Take over what a kernel has closed."""
        shape = self.key_width, self.val_width, self.depth
        known = min(closed[running_traces.KEPT], len(self._batches))
        self.replaced += known < len(self._batches)
        self._batches = closed.take(self._batches, self._table, shape)
        self._addresses[known:] = [batch.address for batch in self._batches[known:]]
        self._since = closed[running_traces.SINCE]
        self._small, self._loose = closed[running_traces.SMALL], closed[running_traces.LOOSE]
        self._closes, self._owed = closed[running_traces.CLOSES], closed[running_traces.OWED]
        self._charged = closed[running_traces.SPENT]

    def _stop_running(self) -> None:
        """Take over what a kernel has closed; before the trace changes otherwise."""
        if self.running is not None:
            if self.running.news:
                self._take_news(self.running)
            self.running = None
            LOANS.add()

    def fork(self) -> Trace:
        """An independent trace with the same batches and merges. Not inside a slice."""
        copy = Trace(self.name, self.key_width, self.val_width, self.depth, self.since)
        copy.merges = list(self.merges)
        copy.readers, copy.cuts, copy.histories = self.readers, self.cuts, self.histories
        copy.replace(self.batches)
        copy._at_rest, copy._added = self._at_rest, self._added
        copy._closes, copy._owed, copy._charged = self._closes, self._owed, self._charged
        return copy

    def replace(self, batches: list[Batch]) -> None:
        """Hold exactly these batches, all of earlier slices. Merges of other batches are abandoned."""
        self._stop_running()
        self._batches = list(batches)
        self.replaced += 1
        here = {id(batch) for batch in batches}
        self.merges = [merge for merge in self.merges if id(merge.older) in here and id(merge.newer) in here]
        self._clear_steps()
        self._at_rest = False
        self._small = self._loose = 0
        while self._small < len(batches) and batches[-1 - self._small].updates < SMALL:
            self._loose += batches[-1 - self._small].updates
            self._small += 1
        while len(self._table) < len(batches):
            self._grow()
        known = self._addresses
        for place, batch in enumerate(batches):
            if place >= len(known) or known[place] is not batch.address:
                self._table[place] = batch.address
        self._addresses = [batch.address for batch in batches]

    def seal(self, rows: Ints | Batch, lower: int, upper: int) -> None:
        """Add the changes of one step of the slice [lower, upper): keyed rows, sorted and consolidated, or their trie.

        The rows must not be modified afterwards. O(1); O(rows) for a large step of a load, because a trie takes a fifth
        of the memory.
        """
        if (rows.updates if isinstance(rows, Batch) else len(rows)) == 0:
            return
        if self.loads and not isinstance(rows, Batch) and len(rows) >= LARGE:
            rows = Batch.of_rows(np.ascontiguousarray(rows), self.key_width, self.depth, lower, upper, self.since)
        self._interval = (self._interval[0] if self.steps else lower, upper)
        count = self.mark
        if count == len(self._table):
            self._grow()
        if isinstance(rows, Batch):
            self._table[count] = rows.address
            self._tries += 1
            self._packed += rows.updates
        else:
            rows = np.ascontiguousarray(rows)
            tries.describe_rows(rows, self.key_width, self.val_width, self._table, count)
            self._sealed += len(rows)
        self.steps.append(rows)

    def _grow(self) -> None:
        self._stop_running()
        self._table = np.concatenate((self._table, np.zeros_like(self._table)))

    def table(self, more: int) -> Ints:
        """The table of batches and steps (kernels/tries.py), with room for `more` entries."""
        while len(self._table) < len(self.batches) + more:
            self._grow()
        return self._table

    @property
    def mark(self) -> int:
        """The current number of batches and steps. A reader remembers it to tell later what it has seen."""
        return len(self.batches) + len(self.steps)

    @property
    def settled(self) -> Ints:
        """The addresses of the batches of earlier slices, for kernels (kernels/tries.py): int64[batches, FIELDS]."""
        return self._table[: len(self.batches)]

    @property
    def sealed(self) -> int:
        """The number of rows that the running slice has sealed."""
        return self._sealed + self._packed

    @property
    def updates(self) -> int:
        """The number of updates in the batches of earlier slices."""
        return sum(batch.updates for batch in self.batches)

    @property
    def named(self) -> list[Batch]:
        """The batches that a manifest names for this trace: its own, or those they were merged from
        (`Batch.leaves`)."""
        return [leaf for batch in self.batches for leaf in batch.leaves]

    @property
    def nbytes(self) -> int:
        """Bytes of all batches of earlier slices."""
        return sum(batch.nbytes for batch in self.batches)

    def select(self, keyed: Ints, *, fold: int, before: int | None = None) -> Selection:
        """The histories of many keys, in one kernel call.

        keyed: int64[q, >= 1 + key_width], each row `[hash | key words …]`, distinct, sorted by hash. Updates of earlier
        slices are returned with the time `fold`. `before`: a mark; only what was there at this mark is read. The result
        must be used before the next call. Raises DiffOverflow.
        """
        selection, status = self.histories.select(*self._asked(keyed, before), fold)
        if status != 0:
            raise DiffOverflow(operation=f"addition in {self.name}")
        return selection

    def select_leading(self, keyed: Ints, *, fold: int, now: Ints, both: bool, limit: int) -> Selection:
        """What `select` returns, of each key up to its first val that has `limit` copies at all times of the slice, by
        the updates at rounds up to `now`, and, if `both`, one that has them by those up to the round that is one
        less in every loop. Raises DiffOverflow."""
        selection, status = self.histories.select_leading(*self._asked(keyed, None), fold, now, both, limit)
        if status != 0:
            raise DiffOverflow(operation=f"addition in {self.name}")
        return selection

    @property
    def entries_a_key(self) -> float:
        """How many updates the batches of earlier slices have for each of their keys. O(batches)."""
        table = self._table[: len(self.batches)]
        return float(table[:, tries.UPDATES].sum() / max(1, table[:, tries.KEYS].sum()))

    @property
    def loading(self) -> bool:
        """Whether steps of the running slice are tries, so that nothing is cached."""
        return self._tries > 0

    def reserve(self, keyed: Ints, *, before: int | None = None) -> None:
        """Reserve memory for keys that the caller will pass to `select` in pieces, in their order. O(keys)."""
        self.histories.reserve(*self._asked(keyed, before))

    def _asked(self, keyed: Ints, before: int | None) -> tuple[Ints, Ints, int, int, int, int]:
        """The arguments that the histories need about this trace and the keys; makes the histories serve this trace."""
        self.histories.serve(self.number)
        mark = self.mark if before is None else before
        return self._table, np.ascontiguousarray(keyed), len(self.batches), mark, self._sealed, self._tries

    def release(self) -> None:
        """Free the memory that selections use. Not inside a slice."""
        self.histories.release()

    def advance_by(self, frontier: Antichain) -> Hold:
        """Register a reader that distinguishes the times at or after `frontier`: `since` stays at or before it while
        the hold lasts.

        frontier: of 1 + depth coordinates. Raises HoldTooEarly, DepthMismatch.
        """
        earliest = int(frontier.lower_bound()[0])
        if earliest < self.since:
            raise HoldTooEarly(trace=self.name, since=self.since, wanted=earliest)
        return self.readers.take(frontier)

    def distinguish(self, upper: int) -> Hold:
        """Register a reader that will read the trace up to `upper` or up to later times: no merge crosses such a cut
        while the hold lasts. Raises CutLost if the cut lies inside a batch or a running merge already."""
        self.cursor_through(upper)
        for merge in self.merges:
            if merge.older.upper <= upper < merge.newer.upper:
                raise CutLost(trace=self.name, upper=upper, first=merge.older.lower, last=merge.newer.upper)
        return self.cuts.take(Antichain([[upper]]))

    def cursor_through(self, upper: int) -> Cursor:
        """A cursor over exactly the updates before the data time `upper`. Not inside a slice. Raises CutLost."""
        older = [batch for batch in self.batches if batch.upper <= upper]
        for batch in self.batches[len(older) :]:
            if batch.lower < upper:
                raise CutLost(trace=self.name, upper=upper, first=batch.lower, last=batch.upper)
        return Cursor(older, self.key_width, self.val_width, self.depth)

    def close_slice(self, since: int) -> None:
        """Make a batch of this slice's steps, compact to `since` (limited by readers' holds), and continue merging
        neighbours.

        O(n log n) for n updates of the slice, plus their fuel, O(n log updates). Raises DiffOverflow.
        """
        self.advance(since)
        fresh = self._close_steps()
        self._clear_steps()
        self._close_with(fresh)

    def advance(self, since: int) -> int:
        """Let times before `since` be read as one, as far as readers allow it. Returns the trace's `since`."""
        self.since = self.reaches(since)
        return self._since

    def reaches(self, since: int) -> int:
        """The trace's `since` after `advance(since)`."""
        held = self.readers.earliest
        return max(self.since, since if held is None else min(since, held))

    def _close_with(self, fresh: Batch | None) -> None:
        """Add the batch of a slice, if it has one, whose steps are gone, and continue merging, if it is time to."""
        added = 0 if fresh is None else fresh.updates
        if fresh is not None:
            self._append(fresh)
            small = added < SMALL
            self._small = self._small + 1 if small else 0
            self._loose = self._loose + added if small else 0
        self._closes += 1
        if self._at_rest:
            self._owed = self._charged = 0
        self._owed += added
        self.go_on(crowded=self._crowded, fresh=fresh is not None)

    def go_on(self, *, crowded: bool, fresh: bool) -> None:
        """After a slice: unite small batches, merge what merges at once, and continue other merges if it is time to.
        crowded: there are many small batches; fresh: the newest batch may merge. Raises DiffOverflow."""
        self._stop_running()
        at_rest = self._at_rest
        if crowded:
            self._unite_small()
        while fresh and self._merge_newest():
            pass
        self._at_rest = at_rest
        begins = fresh and len(self._batches) > 1 and _alike(*self._batches[-2:])
        if begins or not (self._at_rest or (self._closes < FEW_CLOSES and self._owed < FEW_UPDATES)):
            batches, added = list(self.batches), self._owed
            self._closes = self._owed = 0
            self._merge(batches, added)
            self._charged = 0
            self.replace(batches)
            self._at_rest = not self.merges and self.cuts.earliest is None

    def _append(self, batch: Batch) -> None:
        """Add one batch."""
        self._stop_running()
        count = len(self._batches)
        if count == len(self._table):
            self._grow()
        self._table[count] = batch.address
        self._addresses.append(batch.address)
        self._batches = [*self._batches, batch]

    def _clear_steps(self) -> None:
        """Drop the slice's steps and the histories read from them."""
        if self.steps:
            self.steps = []
            self._sealed = self._packed = self._tries = 0
        self.loads = False
        self.histories.forget()

    @property
    def _crowded(self) -> bool:
        """Whether there are too many small batches at the end, or they are no longer small together."""
        return self._small > SMALL_BATCHES or (self._small > 1 and self._loose >= 2 * SMALL)

    def _unite_small(self) -> None:
        """Make one of the small batches at the end, those that `first_to_unite` says, if nothing holds them."""
        stop = len(self._batches)
        if not self._held(*self._batches[-self._small :]):
            first, updates = first_to_unite(self._table, stop - self._small, stop, self._loose)
            self._unite(first, updates)
            self._charged += SORTING * updates

    def _merge_newest(self) -> bool:
        """Merge the two newest batches at once, if they are to merge and have few updates. Returns whether it has."""
        pair = self._batches[-2:]
        updates = sum(batch.updates for batch in pair)
        if len(pair) < 2 or not _alike(*pair) or updates > max(AT_ONCE_ALWAYS, min(AT_ONCE, AT_ONCE_EACH * self._owed)):
            return False
        # The partial sums of a prefix index are those of a merge in pieces.
        if self._held(*pair) or pair[0].sums or pair[1].sums:
            return False
        self._unite(len(self._batches) - 2, updates)
        self._charged += updates
        return True

    def _unite(self, first: int, updates: int) -> None:
        """Replace the batches from number `first` on, which have this many updates, by one."""
        parts = self._batches[first:]
        united = self._united(first, updates, parts[0].lower, parts[-1].upper)
        if united is not None:
            united.owing = owing_of(parts)
            if any(batch.texts is not None for batch in parts):
                united.origins = tuple(parts)
        self.merged += updates
        self.kept += 0 if united is None else united.updates
        self.spent += updates
        self.replace([*self._batches[:first], *([] if united is None else [united])])

    def _held(self, *batches: Batch) -> bool:
        """Whether one of these adjacent batches is being merged, or a reader holds a cut before their end."""
        cut = self.cuts.earliest
        return self._busy(*batches) or (cut is not None and batches[-1].upper > cut)

    def _merge(self, batches: list[Batch], added: int) -> None:
        """Begin the merges of `batches` that can begin, and spend the fuel on running merges, earliest deadline first.
        added: updates that slices have added since the last time."""
        self._added += added
        self._begin(batches)
        fuel = self._fuel(batches, added) - self._charged
        while self.merges:
            merge = min(self.merges, key=lambda merge: (not merge.done, merge.due))
            if fuel <= 0 and not merge.done:
                return
            before = merge.spent
            merge.work(fuel)
            self.spent += merge.spent - before
            fuel -= merge.spent - before
            if merge.done:
                self.merges.remove(merge)
                self.merged += merge.size
                merged = merge.finish()
                self.kept += merged.updates
                place = next(i for i, batch in enumerate(batches) if batch is merge.older)
                batches[place : place + 2] = [merged] if merged.updates else []
                self._begin(batches)

    def _begin(self, batches: list[Batch]) -> None:
        """Begin merges of neighbours whose sizes are within a factor of two."""
        for older, newer in itertools.pairwise(batches):
            if _alike(older, newer) and not self._held(older, newer):
                self.merges.append(Merge(older, newer, self.since, due=self._added + newer.updates))

    def _fuel(self, batches: list[Batch], added: int) -> int:
        """How many updates of merging a close pays for if it adds `added` updates."""
        # Where kernels are interpreted, the numbers of updates are numpy's.
        levels = int(sum(batch.updates for batch in batches) // SMALL).bit_length()
        fuel = LEAST + int(FUEL * levels * added)
        left = 0
        for merge in sorted(self.merges, key=lambda merge: merge.due):
            left += merge.size - merge.spent
            fuel = max(fuel, left * added // max(added, merge.due - self._added, 1))
        return fuel

    def _busy(self, *batches: Batch) -> bool:
        """Whether one of the batches is being merged."""
        return any(batch is merge.older or batch is merge.newer for merge in self.merges for batch in batches)

    def _close_steps(self) -> Batch | None:
        """The batch of this slice's steps; None if they cancel out."""
        if not self.steps:
            return None
        only = self.steps[0]
        if len(self.steps) == 1 and isinstance(only, Batch) and (batch := only.compacted(self.since)) is not None:
            return batch
        alike = len(self.steps) > 1 and not self._tries and self.sealed <= _FOLDED and self.since >= self._interval[1]
        return self._united(len(self.batches), self.sealed, *self._interval, alike)

    def _united(self, first: int, updates: int, lower: int, upper: int, alike: bool = False) -> Batch | None:
        """One batch of the batches and steps from number `first` on, which have this many updates, compacted to
        `since`; None if they cancel out. alike: they are steps, and compaction leaves them a single time. O(n log n).
        """
        shape, interval = (self.key_width, self.val_width, self.depth), (lower, upper, self.since)
        parts = self._table[: self.mark], first, updates, *shape, self.since, self.columns
        in_one_pass = alike or (first == self.mark - 1 and updates <= _ONE_PASS and self._table[first, tries.FLAT])
        if updates > MANY and self.key_width > 0 and not in_one_pass:
            columns, left, status = close_steps(*parts)
            batch = Batch.of_columns(columns, shape, left, *interval)
        else:
            (together, address), left, status = close_batches(*parts, alike)
            batch = Batch(*shape, left, *interval, together, address)
        if status != 0:
            raise DiffOverflow(operation=f"addition in {self.name}")
        return batch if left else None


def _alike(older: Batch, newer: Batch) -> bool:
    """Whether neighbours are to merge: their sizes are within a factor of two, and the newer one is not small."""
    return newer.updates >= SMALL and older.updates < 2 * newer.updates
