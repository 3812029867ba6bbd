"""Envelopes: the base of formats whose messages have rows in JSON inside some other structure.

In a topic of one source a kernel finds the rows of all messages of a batch, with what stands beside them, and another
one reads the rows. Of a message that these do not take, the format extracts the rows as the JSON texts they came as,
with time and diff. Each becomes a line of the json format, whose kernel reads all lines of a batch at once and whose
judge explains what is wrong with a bad one. A message enters as a whole or not at all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.json_lines import JsonLines
from vernier.service.ingest.formats.judge import load
from vernier.service.ingest.formats.messages import Ints, Parsed, Progress, Refused
from vernier.service.ingest.formats.scan import Scanner
from vernier.service.ingest.formats.sieve import Bools, bytes_of, doubtful
from vernier.service.ingest.rejects import Refusal
from vernier.service.kernels.json_members import find_members
from vernier.service.kernels.json_messages import LINE_NAMES, scan_lines
from vernier.service.kernels.json_texts import copy_spans
from vernier.service.kernels.json_values import SPAN_LENGTH
from vernier.storage.strings.string_heap import Heap


@dataclass(frozen=True, slots=True)
class Line:
    """One row: its JSON, its diff, its time in JSON (None: not sent), the source's name in JSON (None: the topic's only
    one)."""

    row: bytes
    diff: int
    time: bytes | None = None
    source: bytes | None = None

    def encode(self) -> bytes:
        """The row as a line of the json format."""
        head = b"{" if self.source is None else b'{"input":%b,' % self.source
        time = b"" if self.time is None else b',"time":%b' % self.time
        return b'%b"data":%b%b,"diff":%d}' % (head, self.row, time, self.diff)


Opened = Sequence[Line] | Progress
Text = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Found:
    """What the kernel has found in n messages (json_members.py). text: uint8[.], in which spans lie; good: bool[n]."""

    text: Text
    cells: Ints
    there: npt.NDArray[np.int8]
    good: Bools


class Members:
    """The members that a format looks for: (name, kind) of those of a message, then of those inside one of them.
    others: whether members with other names are legal."""

    def __init__(self, outer: Sequence[tuple[str, int]], inner: Sequence[tuple[str, int]], *, others: bool) -> None:
        names = [name.encode() for name, _ in (*outer, *inner)]
        self._pool = np.frombuffer(b"".join(names), np.uint8)
        self._names = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self._kinds = np.array([kind for _, kind in (*outer, *inner)], np.int64)
        self._outer, self._others = len(outer), others

    def find(self, text: Text, starts: Ints, *, wrapped: bool = False) -> Found:
        """Look for them in n messages, each an object or, if `wrapped`, a list of one object. O(bytes)."""
        cells = np.empty((len(starts) - 1, len(self._kinds)), np.int64)
        there = np.zeros(cells.shape, np.int8)
        for given in (text, starts):
            given.flags.writeable = False  # kernels are compiled for messages, whose bytes are read-only
        names = (self._pool, self._names, self._kinds, self._outer, self._others)
        return Found(text, cells, there, find_members(text, starts, *names, wrapped, cells, there))


@dataclass(frozen=True, slots=True)
class Events:
    """k rows of messages, in message order. message, rows (spans in `text`), diff, time: int64[k]."""

    text: Text
    message: Ints
    rows: Ints
    diff: Ints
    time: Ints


class Rows:
    """Reads rows that stand alone. days: whether dates may be numbers of days."""

    def __init__(self, row_type: RowType, *, days: bool) -> None:
        # Legal JSON has no names of these bytes, so that members are columns.
        self._scanner = Scanner({"": row_type}, [b"\0"] * len(LINE_NAMES), _scan_rows, _leave, 0, days)

    def read(self, events: Iterable[Events], name: str, good: Bools, heap: Heap | None) -> Parsed:
        """The updates of the messages whose rows are all legal; others become false in `good`. name: of their
        source."""
        given = list(events)
        texts = [
            pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(one.rows), [None, *map(pa.py_buffer, copied)])
            for one in given
            for copied in (copy_spans(one.text, one.rows),)
        ]
        message, diff, time = (
            np.concatenate([getattr(one, which) for one in given]) for which in ("message", "diff", "time")
        )
        parsed = self._scanner.decode(pa.concat_arrays(texts), heap)
        good[message[[one.message for one in parsed.refused]]] = False
        words, row = parsed.words[""], parsed.message
        if not good.all():
            kept = good[message[row]]
            words, row = words[kept], row[kept]
        source = np.zeros(len(row), np.int64)
        return Parsed((name,), source, message[row], time[row], diff[row], {name: words}, [], [])


def _scan_rows(*arrays: Any) -> int:
    kernel: Callable[..., int] = scan_lines
    return kernel(*arrays[:6], True, *arrays[6:])


def _leave(value: bytes | None) -> Never:
    """The judge of a row: the message's reader looks at it again."""
    raise Refusal("decode", "")


class Enveloped:
    """Reads a topic of such messages; see messages.Format. open_message: returns what a message contains; raises
    Refusal. days: whether dates may be numbers of days.

    `open_message` never gets a message that a fast parser would read differently from the judge (sieve.py).
    """

    def __init__(
        self, sources: Mapping[str, RowType], open_message: Callable[[bytes | None], Opened], *, days: bool = False
    ) -> None:
        self._only = next(iter(sources)) if len(sources) == 1 else None
        self._lines, self._open = JsonLines(sources), open_message
        self._rows = Rows(sources[self._only], days=days) if self._only is not None else None

    def find(self, text: Text, starts: Ints, good: Bools) -> Sequence[Events]:
        """The rows of the messages that the kernels take, in a topic of one source; good: bool[n], becomes false for
        the others. Message m is text[starts[m] : starts[m + 1]]."""
        good[:] = False
        return ()

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch of messages. O(bytes), with some Python for each message that the kernels do not take."""
        suspects = doubtful(values)
        good, scanned = ~suspects, None
        if self._rows is not None and self._only is not None and len(values):
            text, starts = bytes_of(pc.fill_null(values, b"") if values.null_count else values)
            events = self.find(text, starts, good) if starts[0] < starts[-1] <= SPAN_LENGTH else ()
            if events:
                scanned = self._rows.read(events, self._only, good, heap)
        if scanned is None:
            return self._open_all(values, suspects, heap)
        left = np.flatnonzero(~good)
        if not len(left) and len(events) == 1:
            return scanned
        return _joined(scanned, self._open_all(values.take(pa.array(left)), suspects[left], heap), left)

    def _open_all(self, values: pa.LargeBinaryArray, suspects: Bools, heap: Heap | None) -> Parsed:
        """Decode messages one by one."""
        lines: list[bytes] = []
        owners: list[int] = []
        progress: list[Progress] = []
        refused: dict[int, Refused] = {}
        for message, (value, suspect) in enumerate(zip(values.to_pylist(), suspects.tolist(), strict=True)):
            try:
                if suspect:
                    load(value)
                opened = self._open(value)
            except Refusal as refusal:
                source = refusal.source or self._only
                refused[message] = Refused(message, refusal.reason, refusal.detail, source)
                continue
            if isinstance(opened, Progress):
                progress.append(Progress(message, opened.lower, opened.upper, opened.counts))
                continue
            for line in opened:
                lines.append(line.encode())
                owners.append(message)
        parsed = self._lines.decode(pa.array(lines, pa.large_binary()), heap)
        owner = np.array(owners, np.int64)
        for one in parsed.refused:
            at = owners[one.message]
            refused.setdefault(at, Refused(at, one.reason, one.detail, one.source))
        owned = owner[parsed.message] if len(owner) else parsed.message
        return _without(parsed, owned, progress, refused)


def _joined(scanned: Parsed, opened: Parsed, left: Ints) -> Parsed:
    """The updates of both in message order; left: the numbers of the messages in `opened`."""
    ((name, words),) = scanned.words.items()
    message = np.concatenate([scanned.message, left[opened.message]])
    order = np.argsort(message, kind="stable")
    source, time, diff = (
        np.concatenate([getattr(scanned, which), getattr(opened, which)])[order] for which in ("source", "time", "diff")
    )
    return Parsed(
        scanned.names, source, message[order], time, diff, {name: np.concatenate([words, opened.words[name]])[order]},
        [replace(one, message=int(left[one.message])) for one in opened.progress],
        [replace(one, message=int(left[one.message])) for one in opened.refused],
    )  # fmt: skip


def _without(parsed: Parsed, message: Ints, progress: Sequence[Progress], refused: dict[int, Refused]) -> Parsed:
    """The updates of the messages that were not refused, with this progress and these refusals."""
    keep = ~np.isin(message, np.array(sorted(refused), np.int64))
    words = {name: rows[keep[parsed.source == k]] for k, (name, rows) in enumerate(parsed.words.items())}
    columns = (column[keep] for column in (parsed.source, message, parsed.time, parsed.diff))
    source, message, time, diff = columns
    return Parsed(parsed.names, source, message, time, diff, words, progress, list(_in_order(refused)))


def _in_order(refused: Mapping[int, Refused]) -> Iterator[Refused]:
    for message in sorted(refused):
        yield refused[message]
