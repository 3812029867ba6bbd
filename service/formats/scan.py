"""The scanner: hands a batch of messages to a kernel and turns the columns it fills into rows of words.

A topic's scanner knows the names and kinds of its sources' columns. What the kernel does not take whole, and every
topic with a column type that the kernel does not know, goes to the judge.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.language.schema import Field, RowType
from operators.language.types import Bool, Date, Float64, Int64, TimestampNs, Type, Values
from service.deadletter import Refusal
from service.formats.judge import Judged
from service.formats.messages import NO_TIME, Ints, Parsed, Progress, Refused
from service.kernels.json_values import BOOL, CELLS, DATE, DIFF, FLOAT64, INT64, MESSAGE, SOURCE, TIME, TIMESTAMP

_KINDS: dict[type[Type], int] = {Int64: INT64, Bool: BOOL, Float64: FLOAT64, Date: DATE, TimestampNs: TIMESTAMP}
_MOST_COLUMNS = 62
_CHUNK_BYTES = 1 << 26

Bools = npt.NDArray[np.bool_]
Verdict = Iterable[Judged] | Progress
"""What the judge makes of a message: updates or progress."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """Updates as a kernel writes them. out: int64[n, CELLS + columns]; nulls: bool[n, columns]."""

    out: Ints
    nulls: Bools

    @staticmethod
    def room(capacity: int, columns: int) -> "Scanned":
        """Room to be filled; memory that is never written is never resident."""
        return Scanned(np.empty((capacity, CELLS + columns), np.int64), np.empty((capacity, columns), np.bool_))

    @staticmethod
    def concat(parts: Sequence["Scanned"]) -> "Scanned":
        """All updates of the parts in message order; each part is in that order and no message is in two parts."""
        if len(parts) == 1:
            return parts[0]
        out = np.concatenate([part.out for part in parts])
        nulls = np.concatenate([part.nulls for part in parts])
        order = np.argsort(out[:, MESSAGE], kind="stable")
        return Scanned(out[order], nulls[order])


class Scanner:
    """Decodes the messages of one topic: `kernel` for the good ones, `judge` for what it leaves.

    kernel: (text, starts, pool, names, first, columns, out, doubles, nulls, good) -> number of updates. judge: (value)
    -> verdict, raises Refusal. envelope: the members of the envelope, the first names that the kernel is given.
    least_bytes: no update with one column has fewer bytes; 0 where a message is one update.
    """

    def __init__(
        self,
        sources: Mapping[str, RowType],
        envelope: Sequence[bytes],
        kernel: Callable[..., int],
        judge: Callable[[bytes | None], Verdict],
        least_bytes: int,
    ) -> None:
        self._sources = dict(sources)
        self._numbers = {name: number for number, name in enumerate(self._sources)}
        fields = [field for row_type in self._sources.values() for field in row_type.fields]
        widths = [len(row_type.fields) for row_type in self._sources.values()]
        pool = [*envelope, *(name.encode() for name in self._sources), *(field.name.encode() for field in fields)]
        self._pool = np.frombuffer(b"".join(pool), np.uint8)
        self._pool_names = np.cumsum([0, *map(len, pool)], dtype=np.int64)
        self._first = np.cumsum([0, *widths], dtype=np.int64)
        kinds = [(_KINDS.get(type(field.type), -1), field.nullable) for field in fields]
        self._kinds = np.array(kinds, np.int64).reshape(-1, 2)
        self._columns = max(widths)
        self._scans = self._columns <= _MOST_COLUMNS and all(type(field.type) in _KINDS for field in fields)
        self._kernel, self._judge, self._least_bytes = kernel, judge, least_bytes

    def decode(self, values: pa.LargeBinaryArray) -> Parsed:
        """Decode a batch. O(bytes); some 50 times slower for messages that the kernel leaves to the judge."""
        good = np.zeros(len(values), np.bool_)
        # A null may have bytes below it, which the kernel must not see.
        visible = pc.fill_null(values, b"") if values.null_count else values
        scanned = list(self._scan(visible, good)) if self._scans else []
        judged, progress, refused = self._judge_all(values, np.flatnonzero(~good))
        whole = Scanned.concat([*scanned, judged] if len(judged.out) or not scanned else scanned)
        source, message, time, diff = (np.ascontiguousarray(whole.out[:, c]) for c in (SOURCE, MESSAGE, TIME, DIFF))
        words: dict[str, Ints] = {}
        for name, number in self._numbers.items():
            mine = source == number if len(self._sources) > 1 else slice(None)
            words[name] = _encode(self._sources[name], whole.out[mine, CELLS:], whole.nulls[mine])
        return Parsed(tuple(self._sources), source, message, time, diff, words, progress, refused)

    def _scan(self, values: pa.LargeBinaryArray, good: Bools) -> Iterator[Scanned]:
        """Scan in chunks, so that room for the most updates that fit in the bytes stays small."""
        _, offsets, data = values.buffers()
        starts = _read_only(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
        text = _read_only(data or pa.py_buffer(b"\0"), np.uint8)
        begin = 0
        while begin < len(values):
            stop = int(np.searchsorted(starts, starts[begin] + _CHUNK_BYTES, "right")) - 1
            stop = min(max(stop, begin + 1), len(values))
            capacity = stop - begin + 1
            if self._least_bytes:
                capacity += int(starts[stop] - starts[begin]) // self._least_bytes
            room = Scanned.room(capacity, self._columns)
            names = (self._pool, self._pool_names, self._first, self._kinds)
            outputs = (room.out, room.out.view(np.float64), room.nulls, good[begin:stop])
            count = self._kernel(text, starts[begin : stop + 1], *names, *outputs)
            out = room.out[:count].copy()
            out[:, MESSAGE] += begin
            yield Scanned(out, room.nulls[:count].copy())
            begin = stop

    def _judge_all(self, values: pa.LargeBinaryArray, left: Ints) -> tuple[Scanned, list[Progress], list[Refused]]:
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
        room = Scanned.room(len(rows), self._columns)
        for k, (message, update) in enumerate(rows):
            time = NO_TIME if update.time is None else update.time
            cells = [0 if cell is None else cell for cell in update.cells]
            room.out[k, : CELLS + len(cells)] = [self._numbers[update.source], message, time, update.diff, *cells]
            room.nulls[k, : len(cells)] = [cell is None for cell in update.cells]
        return room, progress, refused


def _read_only(buffer: pa.Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A buffer as an array. Some buffers are writable, some not, and kernels are compiled for each kind of array."""
    array = np.frombuffer(buffer, dtype)
    array.flags.writeable = False
    return array


def _encode(row_type: RowType, cells: Ints, nulls: Bools) -> Ints:
    """Cells as words: int64[n, width]."""
    given = {field.name: _values(field, cells[:, c], nulls[:, c]) for c, field in enumerate(row_type.fields)}
    words: Ints = row_type.encode(given)
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
