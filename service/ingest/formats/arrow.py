"""The arrow format: a message is an Arrow IPC stream whose columns are the source's, with `_time` and `_diff`.

`_time` and `_diff` may be left out: without `_time` the topic needs the clock `arrival`, and without `_diff` rows are
inserts. Columns may come in any order and in any Arrow type that holds the source's type exactly (every integer type
for Int64, any time unit for TimestampNs, …). Progress is `{"resolved":"<ns>"}` in JSON.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.bounds import MOST_BYTES
from vernier.service.ingest.formats.columns import Gathered, resolved, rows_of
from vernier.service.ingest.formats.ipc import read_stream
from vernier.service.ingest.formats.json_lines import judge_resolved
from vernier.service.ingest.formats.messages import Ints, Parsed, Progress
from vernier.service.ingest.rejects import Refusal
from vernier.storage.strings.string_heap import Heap


class ArrowStream:
    """Reads a topic of Arrow streams for one source; see messages.Format. most_bytes: the maximum size of an expanded
    message."""

    def __init__(self, sources: Mapping[str, RowType], most_bytes: int = MOST_BYTES) -> None:
        ((self._name, self._row_type),) = sources.items()
        self._most_bytes = most_bytes

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch of messages. O(bytes); a few calls per message, none per row."""
        found = Gathered(self._name, self._row_type)
        for message, value in enumerate(values):
            buffer = value.as_buffer()
            try:
                if buffer is None or not buffer.size:
                    raise Refusal("decode", "the message is empty: it has no value")
                head = buffer.slice(0, min(64, buffer.size)).to_pybytes()
                if resolved(head):
                    upper = judge_resolved(buffer.to_pybytes())
                    found.progress.append(Progress(message, upper.lower, upper.upper))
                    continue
                rows = self._read(buffer, heap)
            except Refusal as refusal:
                found.refuse(message, refusal)
                continue
            found.add(np.full(len(rows[1]), message, np.int64), rows)
        return found.parsed()

    def _read(self, buffer: pa.Buffer, heap: Heap | None) -> tuple[Ints, Ints, Ints]:
        found = read_stream(buffer, self._row_type.width, self._most_bytes)
        return rows_of(found.arrays, found.count, self._row_type, heap)
