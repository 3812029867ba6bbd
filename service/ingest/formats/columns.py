"""Columns: rows that come as Arrow columns become words, one message or one batch at a time.

`_time` (ns since 1970, or an Arrow timestamp) and `_diff` (default 1) may be columns, too; no source has columns of
these names.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.errors import BadValue
from vernier.operators.language.types.options import ABSENT
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import Field, RowType
from vernier.service.ingest.formats.messages import NO_TIME, Ints, Parsed, Progress, Refused
from vernier.service.ingest.formats.present import present
from vernier.service.ingest.rejects import Reason, Refusal
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import CLOSED, MIN_TIME

TIME, DIFF = "_time", "_diff"


def rows_of(
    columns: Mapping[str, pa.Array], count: int, row_type: RowType, heap: Heap | None
) -> tuple[Ints, Ints, Ints]:
    """Words int64[n, width], times int64[n] (NO_TIME where none was sent) and diffs int64[n]. Raises Refusal."""
    if row_type.changed:
        columns = present(columns, row_type, "the message")
    for name in columns:
        if name not in row_type and name not in (TIME, DIFF):
            known = ", ".join(row_type.names)
            raise Refusal("schema", f"the message has the column {name!r}, which the source does not (it has {known})")
    words = np.zeros((count, row_type.width), np.int64)
    for field in row_type.fields:
        own = words[:, field.offset : field.offset + field.words]
        if field.name in columns:
            own[:] = _encode(field, columns[field.name], heap)
        elif (value := row_type.defaults(field.name)) is ABSENT:
            raise Refusal("schema", f"the message has no column {field.name!r}")
        elif value is not None:
            own[:] = field.encode_python([value], heap)
    return words, _times(columns.get(TIME), count), _diffs(columns.get(DIFF), count)


def _encode(field: Field, array: pa.Array, heap: Heap | None) -> Ints:
    try:
        words: Ints = field.encode(array, heap)
    except (BadValue, pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
        problem = error.problem if isinstance(error, BadValue) else str(error).splitlines()[0]
        large = isinstance(field.type, Int64) and pa.types.is_integer(array.type)
        decimals = pa.types.is_decimal(array.type) or pa.types.is_timestamp(array.type)
        null = not field.nullable and array.null_count
        reason: Reason = "overflow" if (large or decimals) and not null else "schema"
        raise Refusal(reason, f"column {field.name!r}: {problem}") from error
    return words


def _times(array: pa.Array | None, count: int) -> Ints:
    if array is None or pa.types.is_null(array.type):
        return np.full(count, NO_TIME, np.int64)
    if pa.types.is_timestamp(array.type):
        try:
            array = array.cast(pa.timestamp("ns", array.type.tz)).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise Refusal("overflow", f"_time: {str(error).splitlines()[0]}") from error
    given = _integers(array, TIME)
    time = pc.fill_null(given, NO_TIME).to_numpy(zero_copy_only=False)
    sent = np.asarray(given.is_valid().to_numpy(zero_copy_only=False))
    wrong = np.flatnonzero(sent & ((time < MIN_TIME) | (time >= CLOSED)))
    if len(wrong):
        raise Refusal("overflow", f"_time of row {wrong[0]} is {time[wrong[0]]}, outside {MIN_TIME} to {CLOSED - 1}")
    return np.asarray(time, np.int64)


def _diffs(array: pa.Array | None, count: int) -> Ints:
    if array is None or pa.types.is_null(array.type):
        return np.ones(count, np.int64)
    diff = np.asarray(pc.fill_null(_integers(array, DIFF), 1).to_numpy(zero_copy_only=False), np.int64)
    zero = np.flatnonzero(diff == 0)
    if len(zero):
        raise Refusal("schema", f"_diff of row {zero[0]} is 0, which changes nothing")
    return diff


def _integers(array: pa.Array, name: str) -> pa.Int64Array:
    if not pa.types.is_integer(array.type):
        raise Refusal("schema", f"{name} is {array.type}, but it should be int64")
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise Refusal("overflow", f"{name}: {str(error).splitlines()[0]}") from error


class Gathered:
    """Collects the updates, progress and refusals of one source's topic, each kind in message order."""

    def __init__(self, name: str, row_type: RowType) -> None:
        self._name, self._row_type = name, row_type
        self._parts: list[tuple[Ints, Ints, Ints, Ints]] = []
        self.progress: list[Progress] = []
        self.refused: list[Refused] = []

    def add(self, message: Ints, rows: tuple[Ints, Ints, Ints]) -> None:
        """Add updates, with the message number of each."""
        self._parts.append((message, *rows))

    def refuse(self, message: int, refusal: Refusal) -> None:
        """Record that a message is refused."""
        self.refused.append(Refused(message, refusal.reason, refusal.detail, self._name))

    def parsed(self) -> Parsed:
        """Everything collected, with updates in message order."""
        none = np.empty(0, np.int64)
        parts: Sequence[tuple[Ints, Ints, Ints, Ints]] = self._parts or [
            (none, np.empty((0, self._row_type.width), np.int64), none, none)
        ]
        message, words, time, diff = (np.concatenate([part[i] for part in parts]) for i in range(4))
        if np.any(message[1:] < message[:-1]):
            order = np.argsort(message, kind="stable")
            message, words, time, diff = (column[order] for column in (message, words, time, diff))
        source = np.zeros(len(message), np.int64)
        refused = sorted(self.refused, key=lambda one: one.message)
        return Parsed((self._name,), source, message, time, diff, {self._name: words}, self.progress, refused)


def resolved(value: bytes) -> bool:
    """Whether a message of a binary format is progress, `{"resolved":"<ns>"}`."""
    return value[:64].replace(b" ", b"").startswith(b'{"resolved":')
