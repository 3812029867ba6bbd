"""The sieve: decides which messages a fast JSON parser may read (kernels/json_sieve.py)."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vernier.service.kernels.json_sieve import find_doubtful

Bools = npt.NDArray[np.bool_]


def doubtful(values: pa.Array) -> Bools:
    """bool[n]: which of n messages the judge must load first. Null messages have no value and are never doubtful."""
    if not pa.types.is_large_binary(values.type):
        values = values.cast(pa.large_binary())
    visible = pc.fill_null(values, b"") if values.null_count else values
    found = np.zeros(len(visible), np.bool_)
    if len(visible):
        text, starts = bytes_of(visible)
        find_doubtful(text, starts, found)
    return found


def bytes_of(values: pa.LargeBinaryArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(bytes, starts) of n messages without nulls: message m is bytes[starts[m] : starts[m + 1]]."""
    _, offsets, data = values.buffers()
    starts = _read_only(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return _read_only(data or pa.py_buffer(b"\0"), np.uint8), starts


def _read_only(buffer: pa.Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A buffer as a read-only array. Kernels are compiled separately for writable and read-only arrays, and buffers may
    be either."""
    array = np.frombuffer(buffer, dtype)
    array.flags.writeable = False
    return array
