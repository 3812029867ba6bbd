"""The contents of views for workers: numbers for them, and their rows as an Arrow stream.

Equal numbers mean equal rows, so a worker that has a number needs nothing more. A view that did not change since an
earlier epoch keeps its number, and so does a view at a time that was the newest when it was first read.
"""

from __future__ import annotations

import io
import itertools
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from vernier.service.ask.errors import NegativeMultiplicity
from vernier.service.views.answers import Answers
from vernier.service.views.deadline import Deadline
from vernier.service.views.json_rows import RowJson
from vernier.service.views.multiset import Multiset
from vernier.service.views.view import View

_BATCH = 65_536
_REMEMBERED = 4_096


class Contents:
    """Numbers the contents of views. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._newest: WeakKeyDictionary[Multiset, int] = WeakKeyDictionary()
        self._known: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        self._lock = Lock()

    def number(self, view: View, as_of: int) -> int:
        """The number of a view's rows at a data time. O(1)."""
        key = (view.name, view.incarnation, as_of)
        with self._lock:
            found = self._known.get(key)
            if found is None and as_of == view.frontier - 1:
                # An epoch without changes of the view keeps its set of rows.
                found = self._newest.get(view.rows)
            if found is None:
                found = next(self._numbers)
            if as_of == view.frontier - 1:
                self._newest[view.rows] = found
            self._known[key] = found
            self._known.move_to_end(key)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found


def stream(answers: Answers, view: View, as_of: int, deadline: Deadline) -> Iterator[bytes]:
    """A view's rows at a data time as the pieces of an Arrow stream, none of them empty. The column `_diff` has the
    multiplicities, if one is not 1.

    O(rows), a batch at a time. Raises NegativeMultiplicity before the first piece, TooSlow, and what `check` raises.
    """
    rows = answers.rows_as_of(view, as_of).flat()
    deadline.check()
    if len(rows) and int(rows.counts.min()) < 0:
        raise NegativeMultiplicity(view=view.name, as_of=as_of)
    counted = bool((rows.counts != 1).any())
    codec = RowJson(view.stored, view.schema.names, view.heap)
    schema = _local(codec.arrow(rows.rows[:0], rows.counts[:0], counted=counted)).schema
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for start in range(0, len(rows), _BATCH):
            deadline.check()
            part = slice(start, start + _BATCH)
            writer.write_batch(_local(codec.arrow(rows.rows[part], rows.counts[part], counted=counted)))
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def _local(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with instants without a zone: DuckDB keeps nanoseconds in TIMESTAMP_NS, which has none."""
    schema = pa.schema([pa.field(one.name, _without_zone(one.type), one.nullable) for one in batch.schema])
    arrays = [pc.cast(array, one.type) for array, one in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("item", _without_zone(kind.value_type), kind.value_field.nullable))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _without_zone(one.type), one.nullable) for one in kind])
    return kind
