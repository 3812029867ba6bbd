"""Answers queries on views page by page, with small caches that make the next page and the next reader cheap.

A final answer never changes. The rows as of a data time, and the row order of a query on them, can therefore be cached
until the memory is needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from vernier.operators.errors import BadValue
from vernier.service.views.deadline import NEVER, Deadline
from vernier.service.views.json_rows import RowJson, encode_value
from vernier.service.views.multiset import Multiset
from vernier.service.views.query import Cursor, RowQuery, find_column
from vernier.service.views.view import View
from vernier.storage.errors import CallerError
from vernier.storage.updates import Ints

_CHECKED = 256
"""Number of keys between two checks of the deadline."""


class BadKey(CallerError):
    """A key has the wrong number of parts."""

    message = "the key of view {view} is ({columns}), but {found} values were given"
    view: str
    columns: str
    found: int


class SizedCache:
    """A least-recently-used cache bounded by bytes. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.used = capacity, 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def peek(self, key: Hashable) -> Any:
        """Return the cached value, or None. Does not count as a use."""
        with self._lock:
            found = self._kept.get(key)
        return None if found is None else found[0]

    def get(self, key: Hashable, make: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        """Return the cached value, or compute and cache it. Two threads may compute the same value at the same time."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        value = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = (value, size(value))
                self.used += self._kept[key][1]
            while self.used > self.capacity and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                self.used -= freed
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Some rows of a view as of a time.

    rows: int64[n, width] stored words; counts: int64[n]; columns: the columns that the caller asked for, in that order;
    begun: the cursor at which the page begins.
    """

    view: View
    as_of: int
    columns: tuple[str, ...]
    rows: Ints
    counts: Ints
    next_cursor: str | None
    begun: Cursor

    @property
    def codec(self) -> RowJson:
        """The codec that turns the rows into dicts or Arrow."""
        return RowJson(self.view.stored, self.columns, self.view.heap)

    def next_after(self, shown: int) -> str | None:
        """The cursor of the next page if the caller shows only the first `shown` rows of this page."""
        if shown == len(self.rows):
            return self.next_cursor
        begun = self.begun
        return Cursor(begun.view, begun.as_of, begun.offset + shown, begun.where, begun.order).encode()


class Answers:
    """Answers queries on view states. cache_bytes bounds the cached row sets of older times; sorted queries get a
    quarter of it on top.
    """

    def __init__(self, cache_bytes: int = 64 << 20) -> None:
        self._sets = SizedCache(cache_bytes)
        self._orders = SizedCache(cache_bytes // 4)
        self._codecs: dict[int, RowJson] = {}

    def rows_as_of(self, view: View, as_of: int) -> Multiset:
        """The rows of the view at a data time. The newest rows are in memory; older ones are cached. Raises what
        View.check raises.
        """
        view.check(as_of)
        if as_of == view.frontier - 1:
            return view.rows
        key = (view.name, view.incarnation, as_of)
        rows: Multiset = self._sets.get(key, lambda: view.rows_as_of(as_of), lambda made: made.nbytes)
        return rows

    def page(
        self,
        view: View,
        as_of: int,
        query: RowQuery,
        offset: int,
        limit: int,
        columns: Sequence[str] = (),
        deadline: Deadline = NEVER,
    ) -> Page:
        """Rows offset .. offset + limit of the answer. Raises subclasses of CallerError that name the mistake."""
        chosen = tuple(columns) or view.schema.names
        for name in chosen:
            find_column(view.stored, name, view.name)
        deadline.check()
        run = self.rows_as_of(view, as_of).flat()
        deadline.check()
        if query.plain:
            total = len(run)
            found: slice | Ints = slice(offset, offset + limit)
        else:
            key = (view.name, view.incarnation, as_of, query)
            positions = self._orders.get(
                key,
                lambda: query.positions(view.stored, run, view.name, view.heap, deadline),
                lambda made: made.nbytes + 64,
            )
            total = len(positions)
            found = positions[offset : offset + limit]
        next_cursor = None
        if offset + limit < total:
            next_cursor = Cursor(view.name, as_of, offset + limit, query.where, query.order).encode()
        begun = Cursor(view.name, as_of, offset, query.where, query.order)
        return Page(view, as_of, chosen, run.rows[found], run.counts[found], next_cursor, begun)

    def key(self, view: View, as_of: int, words: Sequence[int]) -> tuple[Ints, Ints]:
        """The rows of one key, given as its words, and their counts."""
        kept = self._sets.peek((view.name, view.incarnation, as_of))
        if words and kept is None and view.log_start <= as_of + 1:
            return view.find(as_of, words)
        return self.rows_as_of(view, as_of).find(words)

    def keys(
        self, view: View, as_of: int, keys: Sequence[Sequence[int]], deadline: Deadline = NEVER
    ) -> tuple[Ints, Ints, list[int]]:
        """The rows of many keys in the order of the request, their counts, and the indexes of the keys that have no
        rows.
        """
        rows, found = self.rows_as_of(view, as_of), []
        for number, words in enumerate(keys):
            if number % _CHECKED == 0:
                deadline.check()
            found.append(rows.find(words))
        missing = [i for i, (part, _) in enumerate(found) if not len(part)]
        if not found:
            return np.empty((0, view.stored.width), np.int64), np.empty(0, np.int64), missing
        return np.concatenate([part for part, _ in found]), np.concatenate([counts for _, counts in found]), missing

    def codec(self, view: View) -> RowJson:
        """The codec of all columns of the view, cached per incarnation."""
        if view.heap is not None:
            # The heap belongs to the batches of one epoch, so this codec cannot be cached.
            return RowJson(view.stored, view.schema.names, view.heap)
        codec = self._codecs.get(view.incarnation)
        if codec is None:
            codec = self._codecs[view.incarnation] = RowJson(view.stored, view.schema.names)
        return codec


def key_words(view: View, parts: Sequence[object]) -> list[int]:
    """The words of a key that is given as one value for each key column. Raises BadKey, BadValue."""
    if len(parts) != len(view.key):
        raise BadKey(view=view.name, columns=", ".join(view.key), found=len(parts))
    words: list[int] = []
    for name, part in zip(view.key, parts, strict=True):
        words.extend(encode_value(view.stored.field(name), part))
    return words


def key_parts(view: View, given: object) -> Sequence[object]:
    """Read one key of a request body: a value, a list of values, or an object by column name. Raises
    BadKey, BadValue.
    """
    if isinstance(given, dict):
        unknown = [name for name in given if name not in view.key]
        if unknown:
            problem = f"is not a key column of view {view.name}, whose key is ({', '.join(view.key)})"
            raise BadValue(column=str(unknown[0]), problem=problem)
        if len(given) != len(view.key):
            raise BadKey(view=view.name, columns=", ".join(view.key), found=len(given))
        return [given[name] for name in view.key]
    return given if isinstance(given, list) else [given]
