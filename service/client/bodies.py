"""Splits updates into the request bodies that a client sends over HTTP."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"

Time = int | str
"""A data time: nanoseconds, a decimal string, or RFC 3339."""

_BODY_BYTES, _BODY_ROWS = 1 << 20, 20_000


def bodies(updates: Iterable[object] | pa.Table | bytes, resolved: Time | None) -> Iterator[tuple[bytes, str]]:
    """Yield bodies of about one megabyte, each with its content type."""
    if isinstance(updates, pa.Table):
        for batch in updates.to_batches(max_chunksize=_BODY_ROWS):
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield sink.getvalue(), ARROW
        updates = ()
    listed = updates.splitlines() if isinstance(updates, bytes) else map(_line, updates)
    lines: list[bytes] = []
    size = 0
    for line in listed:
        lines.append(line)
        size += len(line) + 1
        if size >= _BODY_BYTES:
            yield b"\n".join(lines), NDJSON
            lines, size = [], 0
    if resolved is not None:
        lines.append(msgspec.json.encode({"resolved": str(resolved) if isinstance(resolved, int) else resolved}))
    if lines:
        yield b"\n".join(lines), NDJSON


def _line(update: object) -> bytes:
    if isinstance(update, bytes):
        return update
    whole = isinstance(update, dict) and "data" in update
    return msgspec.json.encode(update if whole else {"data": update})
