"""Isolates messages that make a format's reader raise: only these messages are refused, and no others.

A batch is decoded as a whole. If that raises, its halves are decoded, and so on, down to single messages that raise;
these become dead letters. Formats refuse what they know to be wrong, so this is only the safety net for everything
else.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from vernier.service.ingest.formats.messages import Format, Parsed, Refused
from vernier.service.ingest.formats.upsert import Upserts
from vernier.storage.errors import InvariantError, StorageError
from vernier.storage.strings.string_heap import Heap

UNFORESEEN = "the message cannot be read"
"""The beginning of the details of such refusals, which come from no rule of a format."""


def decode_one_by_one(
    reader: Format, values: pa.LargeBinaryArray, keys: pa.Array, only: str | None, heap: Heap | None
) -> Parsed:
    """Decode a batch. only: the topic's source, if it has just one. Raises errors that are not a message's fault:
    MemoryError, storage errors and broken invariants. O(bytes), plus O(bytes log messages) for each message that
    raises."""
    try:
        return reader.decode_keyed(values, keys, heap) if isinstance(reader, Upserts) else reader.decode(values, heap)
    except (MemoryError, StorageError, InvariantError):
        raise
    except Exception as error:
        if len(values) < 2:
            said = (str(error).splitlines() or [""])[0]
            detail = f"{UNFORESEEN}: {type(error).__name__} {said}".rstrip()
            nothing = _nothing(reader)
            marks = None if nothing.marks is None else np.zeros(len(values), np.int8)
            return replace(nothing, refused=[Refused(0, "decode", detail, only)], marks=marks)
    middle = len(values) // 2
    parts = (slice(0, middle), slice(middle, len(values)))
    return _joined([(part.start, decode_one_by_one(reader, values[part], keys[part], only, heap)) for part in parts])


def _nothing(reader: Format) -> Parsed:
    return reader.decode(pa.array([], pa.large_binary()))


def _joined(parts: Sequence[tuple[int, Parsed]]) -> Parsed:
    """Join the parts of one batch, each with the number of its first message."""
    names = parts[0][1].names
    marks = [part.marks for _, part in parts if part.marks is not None]
    source, time, diff = (
        np.concatenate([getattr(part, column) for _, part in parts]) for column in ("source", "time", "diff")
    )
    return Parsed(
        names,
        source,
        np.concatenate([part.message + begin for begin, part in parts]),
        time,
        diff,
        {name: np.concatenate([part.words[name] for _, part in parts]) for name in names},
        [replace(one, message=one.message + begin) for begin, part in parts for one in part.progress],
        [replace(one, message=one.message + begin) for begin, part in parts for one in part.refused],
        np.concatenate(marks) if marks else None,
    )
