"""Arrow IPC streams from untrusted producers: their size is bounded before they are expanded, and they are checked
before use.

A stream of a few kilobytes may expand to gigabytes: buffers are compressed, a null column takes no bytes at all, and
views, dictionaries and lists of nulls repeat one value many times. The decompressed size of a buffer is written in
front of it; the expanded size of a column is computed from lengths alone.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.service.ingest.rejects import Refusal

_WORD, _TEXT_WORDS = 8, 32
_EXPERIMENTAL = b"ARROW:experimental_compression"
_MESSAGE_HEADER, _MESSAGE_METADATA, _DICTIONARY_DATA, _BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 4, 1, 2, 3
"""Field numbers of the tables in Arrow's format/Message.fbs."""


class TooLarge(Refusal):
    """A message takes more than the allowed size when it is expanded."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            "decode",
            f"it has {size} bytes when decoded, more than max_decoded_bytes, {most}; send it in parts",
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a stream by name, each with n values, validated."""

    arrays: Mapping[str, pa.Array]
    count: int


def read_stream(buffer: pa.Buffer, width: int, most: int) -> Columns:
    """The columns of an IPC stream. O(bytes).

    width: words per row in the source that reads it; most: the maximum expanded size in bytes. Raises Refusal,
    TooLarge.
    """
    try:
        _check_compressed(buffer, most)
        reader = pa.ipc.open_stream(buffer)
        batches = list(reader)
        count = sum(batch.num_rows for batch in batches)
        size = count * (width + 2) * _WORD
        for batch in batches:
            if batch.num_rows < 0:
                raise Refusal("decode", f"not an Arrow stream: a batch of {batch.num_rows} rows")
            batch.validate()
            if size <= most:
                # The lengths of views are added up before any view is followed.
                size += sum(_viewed(array) for array in batch.columns)
        if size > most:
            raise TooLarge(size, most)
        for batch in batches:
            batch.validate(full=True)
        size = count * (width + 2) * _WORD + sum(_spelled(array) for batch in batches for array in batch.columns)
        if size > most:
            raise TooLarge(size, most)
        names = reader.schema.names
        if len(set(names)) < len(names):
            raise Refusal("decode", f"the column {min(name for name in names if names.count(name) > 1)!r} comes twice")
        if len(batches) == 1:
            return Columns(dict(zip(names, batches[0].columns, strict=True)), count)
        table = pa.Table.from_batches(batches, reader.schema).combine_chunks()
        columns = (column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns)
        return Columns(dict(zip(names, columns, strict=True)), count)
    except Refusal:
        raise
    except Exception as error:
        # A wrong byte can make Arrow raise anything: KeyError, or MemoryError for a length that is only claimed. Actual
        # sizes were bounded above.
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise Refusal("decode", f"not an Arrow stream: {said}") from error


# --- what is compressed -----------------------------------------------------------------------------------------------


def _check_compressed(buffer: pa.Buffer, most: int) -> None:
    """Raises TooLarge if the buffers decompress to more than `most` bytes. Also raises any error of Arrow's, and
    struct.error."""
    messages = pa.ipc.MessageReader.open_stream(buffer)
    size = 0
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        if message.type in ("record batch", "dictionary"):
            size += _decompressed(message)
            if size > most:
                raise TooLarge(size, most)


def _decompressed(message: pa.ipc.Message) -> int:
    """The size that the compressed buffers of a message claim to decompress to. Arrow has checked the message's
    tables."""
    data = memoryview(message.metadata)
    (root,) = struct.unpack_from("<I", data, 0)
    if _field(data, root, _MESSAGE_METADATA) and _EXPERIMENTAL in bytes(data):
        raise Refusal("decode", "its buffers are compressed as releases of Arrow before 1.0 did")
    batch = _pointed(data, _field(data, root, _MESSAGE_HEADER))
    if message.type == "dictionary":
        batch = _pointed(data, _field(data, batch, _DICTIONARY_DATA))
    if not _field(data, batch, _BATCH_COMPRESSION):
        return 0
    vector, body, size = _pointed(data, _field(data, batch, _BATCH_BUFFERS)), memoryview(message.body), 0
    (buffers,) = struct.unpack_from("<I", data, vector)
    for number in range(buffers):
        offset, length = struct.unpack_from("<qq", data, vector + 4 + 16 * number)
        if length >= _WORD and offset >= 0:
            # -1 stands for a buffer that is not compressed.
            size += max(0, *struct.unpack_from("<q", body, offset))
    return size


def _field(data: memoryview, table: int, number: int) -> int:
    """The position of a field of a FlatBuffers table; 0 if it is left out."""
    (back,) = struct.unpack_from("<i", data, table)
    (size,) = struct.unpack_from("<H", data, table - back)
    if size < 6 + 2 * number:
        return 0
    (offset,) = struct.unpack_from("<H", data, table - back + 4 + 2 * number)
    return table + int(offset) if offset else 0


def _pointed(data: memoryview, at: int) -> int:
    """The position that the offset at `at` points to."""
    return at + int(struct.unpack_from("<I", data, at)[0])


# --- what is spelled out ----------------------------------------------------------------------------------------------


def _viewed(array: pa.Array) -> int:
    """The total bytes of the texts in views, however deeply nested. The array need not be valid."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = array.buffers()[1]
        if views is None:
            return 0
        lengths = np.frombuffer(views, np.int32)[::4][array.offset : array.offset + len(array)]
        return int(np.maximum(lengths, 0).sum(dtype=np.int64))
    return sum(_viewed(child) for child in _children(array)) if kind.num_fields or pa.types.is_dictionary(kind) else 0


def _spelled(array: pa.Array) -> int:
    """The maximum number of bytes that the values of an array take in addition to the words of their rows; repeated
    texts count each time. The array is valid."""
    kind = array.type
    if pa.types.is_primitive(kind):
        return 0
    if pa.types.is_dictionary(kind):
        lengths = _lengths(array.dictionary)
        where = pc.fill_null(array.indices.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return int(lengths[where].sum()) if len(lengths) else 0
    if kind.num_fields:
        return sum(_spelled(child) + len(child) * _TEXT_WORDS for child in _children(array))
    return _viewed(array) or array.nbytes


def _lengths(array: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The number of bytes of each value of a dictionary."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if any(
        is_one(kind)
        for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    ):
        found: np.ndarray[tuple[int], np.dtype[np.int64]] = (
            pc.fill_null(pc.binary_length(array), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        )
        return found
    return np.full(len(array), max(_WORD, _spelled(array)), np.int64)


def _children(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return [array.dictionary]
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [array.field(number) for number in range(kind.num_fields)]
    return [array.values] if hasattr(array, "values") else []
