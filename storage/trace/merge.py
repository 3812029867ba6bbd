"""Merge: two adjacent batches become one, incrementally, at the pace of the caller's merge budget (fuel).

The two batches stay unchanged and readable until the merge is done. The partial result exists only in memory, so a
process that dies loses only work and starts the merge again.

Source: "Differential dataflow roadmap", sections "A proposal" and "Implementation" (compaction while merging).
"""

from __future__ import annotations

import numpy as np

from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels.merging import (
    DONE,
    MANY_DIFFS,
    MANY_ROUNDS,
    MANY_TIMES,
    OUT_KEYS,
    OUT_UPDATES,
    OUT_VALS,
    READ,
    STATE_WORDS,
    merge_piece,
)
from vernier.storage.kernels.prefix_sums import STEP, SUMS, extend_sums
from vernier.storage.kernels.tries import KEYS, VAL_COUNT, describe
from vernier.storage.trace import spill
from vernier.storage.trace.batch import COLUMNS, Batch, owing_of
from vernier.storage.updates import Ints

_ALL = 2**62

IN_BACKGROUND = 1 << 18
"""From this number of updates on, a merged batch is not written in the epoch that finishes its merge, but in the
background (storage/state/background_writer.py)."""


class Merge:
    """The merge of `older` and `newer`, compacted to `since`: data times before it become `since`, rounds are kept.

    That is `advance_by` for the frontier {(since, 0 … 0)}. The whole work is `size` updates, the sum of the two;
    `spent` of them are done. `due` is for callers that budget several merges. sums, summed: the partial sums of its
    result (storage/trace/prefix_index.py), and up to which val. Reserves memory for the sum of both at once; pages that
    are never written cost nothing.
    """

    __slots__ = ("_columns", "_state", "due", "newer", "older", "since", "size", "spent", "summed", "sums")

    def __init__(self, older: Batch, newer: Batch, since: int, *, due: int = 0) -> None:
        self.older, self.newer, self.since, self.due = older, newer, since, due
        n = self.size = older.updates + newer.updates
        self.spent = 0
        keys = int(older.address[KEYS] + newer.address[KEYS])
        vals = int(older.address[VAL_COUNT] + newer.address[VAL_COUNT])
        self._state = np.zeros(STATE_WORDS, np.int64)
        self.sums: dict[tuple[int, int, int], Ints] = {}
        self.summed: dict[tuple[int, int, int], int] = {}
        self._columns: tuple[Ints, ...] = (
            spill.empty(keys + 1),
            spill.empty(keys if older.key_width > 1 else 0, older.key_width),
            spill.empty(keys + 1),
            spill.empty(vals + 1, older.val_width),
            spill.empty(vals + 1),
            spill.empty(n),
            spill.empty(n, older.depth),
            spill.empty(n),
        )

    @property
    def columns(self) -> tuple[Ints, ...]:
        """What is merged so far, with space for the rest."""
        return self._columns

    @property
    def done(self) -> bool:
        """Whether the merge is complete."""
        return bool(self._state[DONE])

    def work(self, fuel: int) -> bool:
        """Merge about `fuel` more updates; returns whether the merge is complete. O(fuel). Raises DiffOverflow.

        Forks of a trace share their merges: work that one fork has paid for is done for all, with the same result.
        """
        if self.done:
            return True
        older = self.older
        status = merge_piece(
            older.address, self.newer.address, older.key_width, older.val_width, older.depth,
            self.since, fuel, self._state, self._columns,
        )  # fmt: skip
        if status != 0:
            raise DiffOverflow(operation="addition")
        self.spent = int(self._state[READ])
        if older.sums or self.newer.sums:
            self._extend_sums()
        return self.done

    def _extend_sums(self) -> None:
        """Continue the partial sums of which one of the batches has some (storage/trace/prefix_index.py)."""
        # The end of the newest val is not known before the next one begins.
        vals = int(self._state[OUT_VALS]) - (0 if self.done else 1)
        hashes, keys, key_offsets, words, val_offsets, times, rounds, diffs = self._columns
        address = describe(hashes, keys, key_offsets, words, val_offsets, times, rounds, diffs, self.size)
        table = address.reshape(1, -1)
        for column in {**self.older.sums, **self.newer.sums}:
            if column not in self.sums:
                self.sums[column] = spill.empty(len(words) // STEP + 1, SUMS)
                self.sums[column][0] = 0
            extend_sums(table, 0, self.summed.get(column, 0), vals, *column, self.sums[column])
            self.summed[column] = max(vals, 0)

    def finish(self) -> Batch:
        """Complete the merge and return the merged batch, which may be empty.

        Each call returns a new Batch object over the same columns, because one attempt may have stored its batch and
        another not.
        """
        self.work(_ALL)
        state, older, newer = self._state, self.older, self.newer
        keys, vals, n = int(state[OUT_KEYS]), int(state[OUT_VALS]), int(state[OUT_UPDATES])
        hashes, words, key_offsets, val_words, val_offsets, times, rounds, diffs = self._columns
        columns = (
            hashes[:keys],
            words[:keys],
            key_offsets[: keys + 1 if keys != vals else 0],
            val_words[:vals],
            val_offsets[: vals + 1 if vals != n else 0],
            times[: n if state[MANY_TIMES] else min(n, 1)],
            rounds[: n if state[MANY_ROUNDS] else min(n, 1)],
            diffs[: n if state[MANY_DIFFS] else min(n, 1)],
        )
        arrays = {name: _fitted(column) for name, column in zip(COLUMNS, columns, strict=True)}
        since = max(self.since, older.since, newer.since)
        batch = Batch(older.key_width, older.val_width, older.depth, n, older.lower, newer.upper, since, arrays)
        if older.texts is not None or newer.texts is not None:
            batch.origins = (older, newer)
        batch.owing = owing_of((older, newer))
        batch.sums = {column: _fitted(sums[: vals // STEP + 1]) for column, sums in self.sums.items()}
        if n >= IN_BACKGROUND:
            batch.parts = older.leaves + newer.leaves
        return batch


def _fitted(column: Ints) -> Ints:
    """The column without its unused tail; copied only if that frees more than half of the allocation."""
    base = column.base
    if base is not None and 2 * column.nbytes < base.nbytes:
        return column.copy()
    return column
