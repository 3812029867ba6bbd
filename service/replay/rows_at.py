"""Collects the rows of a replay's views at one data time, with the order and values of the sidecar's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vernier.operators.language.types.schema import RowType
from vernier.service.client.answers import Rows
from vernier.service.views.json_rows import RowJson
from vernier.service.views.multiset import Multiset
from vernier.service.views.view import View, key_first, matrix_of
from vernier.storage.strings.string_heap import Heap, needed
from vernier.storage.strings.string_heap import order as by_content
from vernier.storage.updates import MIN_TIME, Updates


class RowsAt:
    """Receives the views' changes epoch by epoch and accumulates their rows at the time `at`.

    views: schema and key by name. Memory holds the rows as of `at`, not their history.
    """

    def __init__(self, at: int, views: Mapping[str, tuple[RowType, Sequence[str]]]) -> None:
        self.at, self.views = at, dict(views)
        self._rows = {
            name: Multiset.of(schema.width, np.empty((0, schema.width + 1), np.int64))
            for name, (schema, _) in self.views.items()
        }
        self._heap = Heap()

    def add(self, changes: Mapping[str, Updates], heap: Heap | None = None) -> None:
        """Take the changes of an epoch. heap: holds the contents of their long texts. Raises DiffOverflow."""
        kept = {}
        for name, (schema, key) in self.views.items():
            found = changes[name]
            found = found.take(np.flatnonzero(found.time <= self.at))
            kept[name] = key_first(found, schema, key)
        if heap is not None:
            positions = {name: self._stored(name).text_words for name in self.views}
            self._heap.attach(needed(heap, kept, positions))
        for name, found in kept.items():
            if len(found):
                self._rows[name] = self._rows[name].apply(matrix_of(found))

    def _stored(self, name: str) -> RowType:
        return View.stored_type(*self.views[name])

    def columns(self, name: str) -> Sequence[str]:
        """The view's columns in the program's order."""
        return self.views[name][0].names

    def rows(self, name: str) -> Rows:
        """The view's rows by key, then by the other columns; a multiplicity other than 1 is `_diff`. O(n log n)."""
        stored, run = self._stored(name), self._rows[name].flat()
        rows, counts = run.rows, run.counts
        if stored.text_words:
            place = by_content(rows, np.arange(stored.width, dtype=np.int64), stored.text_words, self._heap)
            rows, counts = rows[place], counts[place]
        dicts = RowJson(stored, self.columns(name), self._heap).dicts(rows, counts)
        return Rows(dicts, self.at, MIN_TIME, self.at + 1, 0)
