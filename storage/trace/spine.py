"""Trace: the layers of one arrangement on one worker, few and geometric in size.

A slice appends matrices of rows, one a step (a load's large ones are tries), and readers keep marks in them (how many
they have seen); when the slice closes they become one layer. Neighbours whose sizes are within a factor of two merge,
compacted to `since`, and merges take their time: each close pays for `FUEL` updates of them for each update that the
slice added and each level of sizes, and for `LEAST` more, the merge first that is due first. Readers use the two old
layers until the new one is done; merges are not persisted. Small layers wait until there are more than `SMALL_LAYERS`
of them and then become one, or they come to twice `SMALL` updates, so that small slices do not merge each time.

*Closes are alike*: an update goes through little more than one merge a level, and `FUEL` is more than that, so what a
close pays for is nearly always a matter of its own updates, not of how many merges coincide. It costs the sort of its
own steps, that fuel, and now and then a sort of less than `3 * SMALL` rows for small layers, which is taken off the
fuel.
*Merges keep up*: a merge of older a and newer b updates, a < 2 b, is due when b more have come in behind it: before as
many as its newer half wait to be merged with what it makes. A close pays for more than its fuel where the merges that
are due by some count would be late at an even pace, as they may be when slices grow.
*Layers are few*: neighbours that do not merge are at least a factor of two apart; behind a merge of a and b stand what
stood there when it began (falling by factors of two: less than b in all) and what has come since (at most b). So sizes
fall geometrically, with two layers a merge, down to the small ones: O(log n) layers for n updates.
*Work is O(log n) an update*: a merge makes the layer that an update is in larger by a half or more (a < 2 b: from a to
a + b > 3/2 a), unless the older one had shrunk below the newer, which the updates pay that cancelled in it.
Source: seed 000, "A proposal"; differential-dataflow's fuelled spine.
"""

from __future__ import annotations

import itertools

import numpy as np

from vernier.storage.errors import CutLost, DiffOverflow, HoldTooEarly
from vernier.storage.kernels import tries
from vernier.storage.kernels.folding import MANY, close_layers, close_steps
from vernier.storage.time.antichain import Antichain
from vernier.storage.trace.batch import Layer, keyed_columns
from vernier.storage.trace.cursor import Cursor
from vernier.storage.trace.history_cache import Histories, Selection
from vernier.storage.trace.holds import Hold, Holds
from vernier.storage.trace.merge import Merge
from vernier.storage.updates import MIN_TIME, Ints

__all__ = ["FUEL", "LARGE", "LEAST", "Selection", "Trace"]

FUEL = 1.3
"""Updates that merges go on by for each update that a slice adds and each level: sizes from `SMALL` up, by doubling."""
LEAST = 1 << 9
"""Updates that they go on by in any case, so that merges end when nothing comes in."""
SMALL = 1 << 9
"""Updates below which a layer is small."""
_SORTING = 3
"""Updates that could be merged for one that is sorted with small layers, at least: the fuel that it takes."""
SMALL_LAYERS = 8
"""Small layers at the end that are left alone: one more, and all of them become one."""
LARGE = 1 << 17
"""Rows of a step from which a load keeps it as a trie."""
_FOLDED = 1 << 20
"""Rows of steps up to which they are added up by hash: beyond the caches a sort is as fast."""


_numbers = itertools.count(1)
"""Which of the forks that share histories asks."""


class Trace:
    """The layers of one arrangement, oldest first. Layers are immutable, so `fork` is a cheap copy.

    `layers` are those of earlier slices. `steps` are the keyed rows that the running slice has sealed, a step a matrix
    or, where it is large, a trie: they are read where they lie and become a layer when the slice closes.

    `loads`: whether the running slice is a load: very many updates, mostly of one time. Then large steps become tries,
    of which no histories are remembered: a load asks for each once a round, by pieces of the keys. `_sealed` counts the
    rows of steps that are matrices, `_packed` the updates of those that are tries. `_small` counts the small layers at
    the end, which have `_loose` updates. `_at_rest`: nothing merges, and nothing will before layers come in. `merged`
    counts the updates of merges that are done, `kept` those of them that did not cancel, `spent` those that merges have
    gone through, `_added` those of layers that slices have made: `due` of a merge counts them too. `since`: times
    before it may read as one. It goes where `close_slice` is told, but not beyond what a reader holds (`advance_by`),
    and no two layers merge across a cut that a reader holds (`distinguish`). Forks share the holds.
    """

    __slots__ = (
        "_added", "_addresses", "_at_rest", "_columns", "_histories", "_interval", "_loose", "_number", "_packed",
        "_sealed", "_small", "_table", "_tries", "cuts", "depth", "kept", "key_width", "layers", "loads", "merged",
        "merges", "name", "readers", "since", "spent", "steps", "val_width",
    )  # fmt: skip

    def __init__(self, name: str, key_width: int, val_width: int, depth: int, since: int = MIN_TIME) -> None:
        self.name, self.key_width, self.val_width, self.depth = name, key_width, val_width, depth
        self.layers: list[Layer] = []
        self.steps: list[Ints | Layer] = []
        self.merges: list[Merge] = []
        self.readers, self.cuts = Holds(1 + depth), Holds(1)
        self.since = since
        self.merged = self.kept = self.spent = self._added = 0
        self._interval = (MIN_TIME, MIN_TIME)
        self._table = np.zeros((8, tries.FIELDS), np.int64)
        self._addresses: list[Ints] = []
        self._sealed = self._packed = self._tries = self._small = self._loose = 0
        self._at_rest = self.loads = False
        self._columns = keyed_columns(key_width, val_width, depth)
        self._histories = Histories(key_width, val_width, depth)
        self._number = next(_numbers)

    def fork(self) -> Trace:
        """An independent trace with the same layers and merges. Not inside a slice."""
        copy = Trace(self.name, self.key_width, self.val_width, self.depth, self.since)
        copy.merges = list(self.merges)
        copy.readers, copy.cuts, copy._histories = self.readers, self.cuts, self._histories
        copy.replace(self.layers)
        copy._at_rest, copy._added = self._at_rest, self._added
        return copy

    def replace(self, layers: list[Layer]) -> None:
        """Hold exactly these layers, all of them of earlier slices. Merges of others are given up."""
        self.layers = list(layers)
        here = {id(layer) for layer in layers}
        self.merges = [merge for merge in self.merges if id(merge.older) in here and id(merge.newer) in here]
        self._clear_steps()
        self._at_rest = False
        self._small = self._loose = 0
        while self._small < len(layers) and layers[-1 - self._small].updates < SMALL:
            self._loose += layers[-1 - self._small].updates
            self._small += 1
        while len(self._table) < len(layers):
            self._grow()
        known = self._addresses
        for place, layer in enumerate(layers):
            if place >= len(known) or known[place] is not layer.address:
                self._table[place] = layer.address
        self._addresses = [layer.address for layer in layers]

    def seal(self, rows: Ints | Layer, lower: int, upper: int) -> None:
        """Add what a step of the slice [lower, upper) changed: keyed rows, sorted and consolidated, or their trie.

        They must not change any more. O(1), O(rows) for the many of a load: a trie takes a fifth of the room.
        """
        if (rows.updates if isinstance(rows, Layer) else len(rows)) == 0:
            return
        if self.loads and not isinstance(rows, Layer) and len(rows) >= LARGE:
            rows = Layer.of_rows(np.ascontiguousarray(rows), self.key_width, self.depth, lower, upper, self.since)
        self._interval = (self._interval[0] if self.steps else lower, upper)
        count = self.mark
        if count == len(self._table):
            self._grow()
        if isinstance(rows, Layer):
            self._table[count] = rows.address
            self._tries += 1
            self._packed += rows.updates
        else:
            rows = np.ascontiguousarray(rows)
            tries.describe_rows(rows, self.key_width, self.val_width, self._table, count)
            self._sealed += len(rows)
        self.steps.append(rows)

    def _grow(self) -> None:
        self._table = np.concatenate((self._table, np.zeros_like(self._table)))

    @property
    def mark(self) -> int:
        """How many layers and steps there are now: what a reader remembers to tell later what it has seen."""
        return len(self.layers) + len(self.steps)

    @property
    def settled(self) -> Ints:
        """The addresses of the layers of earlier slices, for kernels (kernels/tries.py): int64[layers, FIELDS]."""
        return self._table[: len(self.layers)]

    @property
    def sealed(self) -> int:
        """How many rows the running slice has sealed."""
        return self._sealed + self._packed

    @property
    def updates(self) -> int:
        """How many updates the layers hold."""
        return sum(layer.updates for layer in self.layers)

    @property
    def named(self) -> list[Layer]:
        """The layers that a manifest names for this trace: its own, or what they were merged from (`Layer.leaves`)."""
        return [leaf for layer in self.layers for leaf in layer.leaves]

    @property
    def nbytes(self) -> int:
        """Bytes of all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def select(self, keyed: Ints, *, fold: int, before: int | None = None) -> Selection:
        """The histories of many keys, one kernel call.

        keyed: int64[q, >= 1 + key_width], each row `[hash | key words …]`, distinct, sorted by hash. Layers of
        earlier slices read as time `fold`. `before`: only what was there at this mark. To be used before the next call.
        Raises DiffOverflow.
        """
        selection, status = self._histories.select(*self._asked(keyed, before), fold)
        if status != 0:
            raise DiffOverflow(operation=f"adding in {self.name}")
        return selection

    def expect(self, keyed: Ints, *, before: int | None = None) -> None:
        """Many keys, as for `select`, will be asked for by pieces, in their order: make room for all. O(keys)."""
        self._histories.expect(*self._asked(keyed, before))

    def _asked(self, keyed: Ints, before: int | None) -> tuple[Ints, Ints, int, int, int, int]:
        """What the histories, which serve this trace then, want to know of it and of keys that it is asked for."""
        self._histories.serve(self._number)
        mark = self.mark if before is None else before
        return self._table, np.ascontiguousarray(keyed), len(self.layers), mark, self._sealed, self._tries

    def let_go(self) -> None:
        """Give up the room that selections have. Not inside a slice."""
        self._histories.let_go()

    def advance_by(self, frontier: Antichain) -> Hold:
        """A reader that needs the times at or after `frontier` told apart: `since` stays before it while it is held.

        frontier: of 1 + depth coordinates. Raises HoldTooEarly, DepthMismatch.
        """
        earliest = int(frontier.lower_bound()[0])
        if earliest < self.since:
            raise HoldTooEarly(trace=self.name, since=self.since, wanted=earliest)
        return self.readers.take(frontier)

    def distinguish(self, upper: int) -> Hold:
        """A reader that will want the trace up to `upper`, or up to later times: no merge crosses such a cut while it
        is held. CutLost if it lies inside a layer already, or inside a merge."""
        self.cursor_through(upper)
        for merge in self.merges:
            if merge.older.upper <= upper < merge.newer.upper:
                raise CutLost(trace=self.name, upper=upper, first=merge.older.lower, last=merge.newer.upper)
        return self.cuts.take(Antichain([[upper]]))

    def cursor_through(self, upper: int) -> Cursor:
        """A cursor over what is older than the data time `upper`, exactly. Not inside a slice. CutLost."""
        older = [layer for layer in self.layers if layer.upper <= upper]
        for layer in self.layers[len(older) :]:
            if layer.lower < upper:
                raise CutLost(trace=self.name, upper=upper, first=layer.lower, last=layer.upper)
        return Cursor(older, self.key_width, self.val_width, self.depth)

    def close_slice(self, since: int) -> None:
        """Make a layer of this slice's steps, compact to `since` (or what readers hold), go on with merging neighbours.

        O(n log n) for n updates of the slice, plus their fuel, O(n log updates). Raises DiffOverflow.
        """
        held = self.readers.earliest
        self.since = max(self.since, since if held is None else min(since, held))
        fresh = self._close_steps()
        self._clear_steps()
        if fresh is not None:
            self._append(fresh)
            small = fresh.updates < SMALL
            self._small = self._small + 1 if small else 0
            self._loose = self._loose + fresh.updates if small else 0
        if self._at_rest and not self._crowded and (fresh is None or fresh.updates < SMALL):
            return
        layers = list(self.layers)
        spent = self.spent
        self._unite_small(layers)
        self._go_on(layers, 0 if fresh is None else fresh.updates, _SORTING * (self.spent - spent))
        self.replace(layers)
        self._at_rest = not self.merges and self.cuts.earliest is None

    def _append(self, layer: Layer) -> None:
        """Hold one layer more."""
        count = len(self.layers)
        if count == len(self._table):
            self._grow()
        self._table[count] = layer.address
        self._addresses.append(layer.address)
        self.layers = [*self.layers, layer]

    def _clear_steps(self) -> None:
        """Forget the slice's steps and what they have been asked for."""
        if self.steps:
            self.steps = []
            self._sealed = self._packed = self._tries = 0
        self.loads = False
        self._histories.forget()

    @property
    def _crowded(self) -> bool:
        """Whether the small layers at the end are too many, or no longer small together."""
        return self._small > SMALL_LAYERS or (self._small > 1 and self._loose >= 2 * SMALL)

    def _unite_small(self, layers: list[Layer]) -> None:
        """Make one layer of the small ones at the end, once that is due."""
        tail, cut = self._small, self.cuts.earliest
        if not self._crowded or self._busy(*layers[-tail:]) or (cut is not None and layers[-1].upper > cut):
            return
        parts = layers[-tail:]
        updates = sum(layer.updates for layer in parts)
        united = self._united(len(layers) - tail, updates, parts[0].lower, parts[-1].upper)
        if united is not None and any(layer.texts is not None for layer in parts):
            united.origins = tuple(parts)
        self.merged += updates
        self.kept += 0 if united is None else united.updates
        self.spent += updates
        layers[-tail:] = [] if united is None else [united]

    def _go_on(self, layers: list[Layer], added: int, spent: int) -> None:
        """Begin the merges of `layers` that are due to begin, and pay for those in progress, the first due one first.

        added: updates of the slice's layer; spent: fuel that is gone already.
        """
        self._added += added
        self._begin(layers)
        fuel = self._fuel(layers, added) - spent
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
                place = next(i for i, layer in enumerate(layers) if layer is merge.older)
                layers[place : place + 2] = [merged] if merged.updates else []
                self._begin(layers)

    def _begin(self, layers: list[Layer]) -> None:
        """Let neighbours merge that are within a factor of two."""
        cut = self.cuts.earliest
        for older, newer in itertools.pairwise(layers):
            if newer.updates < SMALL or older.updates >= 2 * newer.updates or (cut is not None and newer.upper > cut):
                continue
            if not self._busy(older, newer):
                self.merges.append(Merge(older, newer, self.since, due=self._added + newer.updates))

    def _fuel(self, layers: list[Layer], added: int) -> int:
        """How many updates a close pays for that adds so many."""
        levels = (sum(layer.updates for layer in layers) // SMALL).bit_length()
        fuel = LEAST + int(FUEL * levels * added)
        left = 0
        for merge in sorted(self.merges, key=lambda merge: merge.due):
            left += merge.size - merge.spent
            fuel = max(fuel, left * added // max(added, merge.due - self._added, 1))
        return fuel

    def _busy(self, *layers: Layer) -> bool:
        """Whether one of the layers is merging."""
        return any(layer is merge.older or layer is merge.newer for merge in self.merges for layer in layers)

    def _close_steps(self) -> Layer | None:
        """The layer of this slice's steps, None when they come to nothing."""
        if not self.steps:
            return None
        only = self.steps[0]
        if len(self.steps) == 1 and isinstance(only, Layer) and (layer := only.since_then(self.since)) is not None:
            return layer
        alike = len(self.steps) > 1 and not self._tries and self.sealed <= _FOLDED and self.since >= self._interval[1]
        return self._united(len(self.layers), self.sealed, *self._interval, alike)

    def _united(self, first: int, updates: int, lower: int, upper: int, alike: bool = False) -> Layer | None:
        """The layer of the layers and steps from number `first` on, which have so many updates, compacted to `since`;
        None when they come to nothing. alike: only one time is left of them, which are steps. O(n log n)."""
        shape, interval = (self.key_width, self.val_width, self.depth), (lower, upper, self.since)
        parts = self._table[: self.mark], first, updates, *shape, self.since, self._columns
        if updates > MANY and self.key_width > 0 and not alike:
            columns, left, status = close_steps(*parts)
            layer = Layer.of_columns(columns, shape, left, *interval)
        else:
            (together, address), left, status = close_layers(*parts, alike)
            layer = Layer(*shape, left, *interval, together, address)
        if status != 0:
            raise DiffOverflow(operation=f"adding in {self.name}")
        return layer if left else None
