"""The scanner: passes a batch of messages to a kernel and turns the columns that the kernel fills into rows of words.

A topic's scanner knows the names and kinds of its sources' columns. Messages that the kernel does not accept go to the
judge, and so do all messages of a source with a column type that the kernel does not know. For a composed column, whose
values are more than one word, a cell holds the number of a value; the values of the batch are collected as words
(`_Values`). Of lists and structs the kernel finds the ends; nested.py reads them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.types.parts import Composed, words_of
from vernier.operators.language.types.scalars import Bool, Date, Float64, Values
from vernier.operators.language.types.schema import Field, RowType
from vernier.service.ingest.formats.judge import Judged
from vernier.service.ingest.formats.messages import NO_TIME, Ints, Parsed, Progress, Refused
from vernier.service.ingest.formats.nested import MOST_COLUMNS, ForJudge, about, array_of
from vernier.service.ingest.formats.sieve import bytes_of
from vernier.service.ingest.rejects import Refusal
from vernier.service.kernels.json_values import (
    CELLS,
    DATE,
    DAY,
    DIFF,
    KIND,
    MESSAGE,
    SOURCE,
    TIME,
)
from vernier.storage.strings.string_heap import Heap

_CHUNK_BYTES = 1 << 26

Bools = npt.NDArray[np.bool_]
Verdict = Iterable[Judged] | Progress
"""What the judge returns for a message: updates or progress."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """Updates as a kernel writes them. out: int64[n, CELLS + columns]; nulls: bool[n, columns]."""

    out: Ints
    nulls: Bools

    @staticmethod
    def allocate(capacity: int, columns: int) -> "Scanned":
        """Unfilled arrays for `capacity` updates; memory that is never written never becomes resident."""
        return Scanned(np.empty((capacity, CELLS + columns), np.int64), np.empty((capacity, columns), np.bool_))

    @staticmethod
    def concat(parts: Sequence["Scanned"]) -> "Scanned":
        """All updates of the parts in message order. Each part is in that order, and no message is in two parts."""
        if len(parts) == 1:
            return parts[0]
        out = np.concatenate([part.out for part in parts])
        nulls = np.concatenate([part.nulls for part in parts])
        order = np.argsort(out[:, MESSAGE], kind="stable")
        return Scanned(out[order], nulls[order])


class _Values:
    """The values of one composed column in a batch, as words int64[n, width of its type]; cells are numbers of
    values."""

    def __init__(self, kind: Composed, heap: Heap | None) -> None:
        self._kind, self._heap = kind, heap
        self._parts: list[Ints] = []
        self._count = 0

    def add_array(self, values: pa.Array) -> Ints:
        """Add values of the type's own Arrow type; returns their cells."""
        return self._add(self._kind.to_words(values, self._heap))

    def array_of(self, text: Ints, cells: Ints) -> pa.Array:
        """The values that a kernel has scanned. Raises ForJudge."""
        return array_of(self._kind, text, cells)

    def add_python(self, values: Sequence[Any]) -> Ints:
        """Add values that the judge has found legal; returns their cells."""
        return self._add(words_of(self._kind.kinds, self._kind.split_python(values), len(values), self._heap))

    def words(self, cells: Ints) -> Ints:
        """The words of the values with these cells."""
        parts = self._parts or [np.zeros((1, self._kind.words), np.int64)]
        whole: Ints = np.concatenate(parts)[cells]
        return whole

    def _add(self, words: Ints) -> Ints:
        cells = np.arange(self._count, self._count + len(words), dtype=np.int64)
        self._parts.append(words)
        self._count += len(words)
        return cells


_Columns = dict[tuple[int, int], _Values]
"""The composed columns, by the number of their source and their own number in it."""


class Scanner:
    """Decodes the messages of one topic: `kernel` handles the well-formed ones, `judge` those that it leaves.

    kernel: (text, starts, pool, names, first, columns, out, nulls, good) -> number of updates. judge: (value)
    -> verdict, raises Refusal. envelope: the members of the envelope, which are the first names passed to the kernel.
    least_bytes: a lower bound for the bytes of an update with one column; 0 if a message is one update. days: whether
    dates may be numbers of days.
    """

    def __init__(
        self,
        sources: Mapping[str, RowType],
        envelope: Sequence[bytes],
        kernel: Callable[..., int],
        judge: Callable[[bytes | None], Verdict],
        least_bytes: int,
        days: bool = False,
    ) -> None:
        self._sources = dict(sources)
        self._numbers = {name: number for number, name in enumerate(self._sources)}
        fields = [field for row_type in self._sources.values() for field in row_type.fields]
        widths = [len(row_type.fields) for row_type in self._sources.values()]
        pool = [*envelope, *(name.encode() for name in self._sources), *(field.name.encode() for field in fields)]
        self._pool = np.frombuffer(b"".join(pool), np.uint8)
        self._pool_names = np.cumsum([0, *map(len, pool)], dtype=np.int64)
        self._first = np.cumsum([0, *widths], dtype=np.int64)
        self._kinds = np.array([about(field.type, field.nullable) for field in fields], np.int64).reshape(-1, 4)
        if days:
            self._kinds[self._kinds[:, KIND] == DATE, KIND] = DAY
        self._composed = {
            (number, c): field.type
            for number, row_type in enumerate(self._sources.values())
            for c, field in enumerate(row_type.fields)
            if isinstance(field.type, Composed)
        }
        self._columns = max(widths)
        self._scans = self._columns <= MOST_COLUMNS
        self._kernel, self._judge, self._least_bytes = kernel, judge, least_bytes

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch; heap: receives the contents of long texts.

        O(bytes); some 50 times slower for messages that the kernel leaves to the judge.
        """
        columns = {place: _Values(kind, heap) for place, kind in self._composed.items()}
        good = np.zeros(len(values), np.bool_)
        # A null may have bytes in its place, which the kernel must not see.
        visible = pc.fill_null(values, b"") if values.null_count else values
        scanned = list(self._scan(visible, good, columns)) if self._scans else []
        judged, progress, refused = self._judge_all(values, np.flatnonzero(~good), columns)
        whole = Scanned.concat([*scanned, judged] if len(judged.out) or not scanned else scanned)
        source, message, time, diff = (np.ascontiguousarray(whole.out[:, c]) for c in (SOURCE, MESSAGE, TIME, DIFF))
        words: dict[str, Ints] = {}
        counts = np.bincount(source, minlength=len(self._sources))
        for name, number in self._numbers.items():
            mine = slice(None) if counts[number] == len(source) else source == number
            own = {c: found for (of, c), found in columns.items() if of == number}
            words[name] = _encode(self._sources[name], whole.out[mine, CELLS:], whole.nulls[mine], own)
        return Parsed(tuple(self._sources), source, message, time, diff, words, progress, refused)

    def _scan(self, values: pa.LargeBinaryArray, good: Bools, columns: _Columns) -> Iterator[Scanned]:
        """Scan in chunks, so that the arrays for the maximum number of updates per chunk stay small."""
        text, starts = bytes_of(values)
        begin = 0
        while begin < len(values):
            stop = int(np.searchsorted(starts, starts[begin] + _CHUNK_BYTES, "right")) - 1
            stop = min(max(stop, begin + 1), len(values))
            capacity = stop - begin + 1
            if self._least_bytes:
                capacity += int(starts[stop] - starts[begin]) // self._least_bytes
            scanned = Scanned.allocate(capacity, self._columns)
            names = (self._pool, self._pool_names, self._first, self._kinds)
            outputs = (scanned.out, scanned.nulls, good[begin:stop])
            count = self._kernel(text, starts[begin : stop + 1], *names, *outputs)
            out, nulls = scanned.out[:count].copy(), scanned.nulls[:count].copy()
            for place in columns:
                out, nulls = self._composed_values(columns, place, text, out, nulls, good[begin:stop])
            out[:, MESSAGE] += begin
            yield Scanned(out, nulls)
            begin = stop

    def _composed_values(
        self, columns: _Columns, place: tuple[int, int], text: Ints, out: Ints, nulls: Bools, good: Bools
    ) -> tuple[Ints, Bools]:
        """Add the values of one composed column, in whose cells their numbers then are. Messages with a value that the
        kernels do not take become bad, and lose their rows. out, nulls: see `Scanned`, with numbers of messages in
        `good`."""
        number, c = place
        while True:
            mine = np.flatnonzero((out[:, SOURCE] == number) & ~nulls[:, c])
            try:
                values = columns[place].array_of(text, out[mine, CELLS + c])
            except ForJudge as left:
                good[out[mine[left.bad], MESSAGE]] = False
                kept = good[out[:, MESSAGE]]
                out, nulls = out[kept], nulls[kept]
                continue
            out[mine, CELLS + c] = columns[place].add_array(values)
            return out, nulls

    def _judge_all(
        self, values: pa.LargeBinaryArray, left: Ints, columns: _Columns
    ) -> tuple[Scanned, list[Progress], list[Refused]]:
        """Judge the messages at `left`, one by one."""
        rows: list[tuple[int, Judged]] = []
        progress: list[Progress] = []
        refused: list[Refused] = []
        only = next(iter(self._sources)) if len(self._sources) == 1 else None
        for message in left.tolist():
            try:
                verdict = self._judge(values[message].as_py())
            except Refusal as refusal:
                refused.append(Refused(message, refusal.reason, refusal.detail, refusal.source or only))
                continue
            if isinstance(verdict, Progress):
                progress.append(Progress(message, verdict.lower, verdict.upper, verdict.counts))
            else:
                rows.extend((message, update) for update in verdict)
        scanned = Scanned.allocate(len(rows), self._columns)
        for k, (message, update) in enumerate(rows):
            time = NO_TIME if update.time is None else update.time
            number = self._numbers[update.source]
            plain = [0 if cell is None or (number, c) in columns else cell for c, cell in enumerate(update.cells)]
            scanned.out[k, : CELLS + len(plain)] = [number, message, time, update.diff, *plain]
            scanned.nulls[k, : len(plain)] = [cell is None for cell in update.cells]
        for (number, c), found in columns.items():
            mine = [k for k, (_, update) in enumerate(rows) if self._numbers[update.source] == number]
            given = [(k, cell) for k in mine if (cell := rows[k][1].cells[c]) is not None]
            if given:
                scanned.out[[k for k, _ in given], CELLS + c] = found.add_python([cell for _, cell in given])
        return scanned, progress, refused


def _encode(row_type: RowType, cells: Ints, nulls: Bools, composed: Mapping[int, _Values]) -> Ints:
    """Cells as words: int64[n, width]."""
    words = np.zeros((len(cells), row_type.width), np.int64)
    for c, field in enumerate(row_type.fields):
        own = words[:, field.offset : field.offset + field.words]
        if c not in composed:
            own[:] = field.encode(_values(field, cells[:, c], nulls[:, c]))
            continue
        present = np.flatnonzero(~nulls[:, c])
        own[present, int(field.nullable) :] = composed[c].words(cells[present, c])
        if field.nullable:
            own[:, 0] = ~nulls[:, c]
    return words


def _values(field: Field, cells: Ints, nulls: Bools) -> "pa.Array | Values":
    cells = np.ascontiguousarray(cells)
    values: Values = cells
    if isinstance(field.type, Float64):
        values = cells.view(np.float64)
    elif isinstance(field.type, Bool):
        values = cells != 0
    if not field.nullable:
        return values
    if isinstance(field.type, Date):
        return pa.array(values.astype(np.int32), mask=nulls).cast(pa.date32())
    return pa.array(values, mask=nulls)
