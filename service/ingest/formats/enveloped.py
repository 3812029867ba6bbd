"""Envelopes: the base of formats whose messages have rows in JSON inside some other structure.

Such a format extracts the rows of a message as the JSON texts they came as, with time and diff. Each becomes a line of
the json format, whose kernel reads all lines of a batch at once and whose judge explains what is wrong with a bad one.
A message enters as a whole or not at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.json_lines import JsonLines
from vernier.service.ingest.formats.judge import load
from vernier.service.ingest.formats.messages import Ints, Parsed, Progress, Refused
from vernier.service.ingest.formats.sieve import doubtful
from vernier.service.ingest.rejects import Refusal
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


class Enveloped:
    """Reads a topic of such messages; see messages.Format. open_message: returns what a message contains; raises
    Refusal.

    `open_message` never gets a message that a fast parser would read differently from the judge (sieve.py).
    """

    def __init__(self, sources: Mapping[str, RowType], open_message: Callable[[bytes | None], Opened]) -> None:
        self._only = next(iter(sources)) if len(sources) == 1 else None
        self._lines, self._open = JsonLines(sources), open_message

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch of messages. O(bytes), with some Python per message."""
        lines: list[bytes] = []
        owners: list[int] = []
        progress: list[Progress] = []
        refused: dict[int, Refused] = {}
        suspects = doubtful(values).tolist()
        for message, (value, suspect) in enumerate(zip(values.to_pylist(), suspects, strict=True)):
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
