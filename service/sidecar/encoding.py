"""Encodes rows as JSON, CSV or Arrow in pieces, within a limit of bytes and a deadline.

A piece is a thousand rows. Other threads can run between pieces, and the deadline is checked there.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from vernier.service.views.answers import Page
from vernier.service.views.deadline import Deadline
from vernier.service.views.json_rows import DIFF, RowJson
from vernier.storage.errors import CallerError
from vernier.storage.updates import Ints

_STEP = 1_000


class TooLarge(CallerError):
    """An answer exceeds the limit, and its route has no pages."""

    code = "response_too_large"
    message = "the answer is longer than the {limit} bytes of http.max_response_bytes; request {less}"
    limit: int
    less: str


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one answer: bytes, and time. least: the number of rows that must fit, so that no page is empty."""

    most: int
    deadline: Deadline
    least: int = 1


def _steps(n: int, deadline: Deadline) -> Iterator[slice]:
    for start in range(0, n, _STEP):
        deadline.check()
        yield slice(start, min(n, start + _STEP))


def json_parts(codec: RowJson, rows: Ints, counts: Ints, budget: Budget) -> tuple[list[bytes], int]:
    """The JSON texts of the first rows that fit, and their number. Raises TooSlow, TooLarge."""
    return _fitting(
        len(rows), budget, lambda part: [msgspec.json.encode(row) for row in codec.dicts(rows[part], counts[part])]
    )


def _fitting(n: int, budget: Budget, encode: Callable[[slice], list[bytes]]) -> tuple[list[bytes], int]:
    parts: list[bytes] = []
    size = 0
    for step in _steps(n, budget.deadline):
        for part in encode(step):
            size += len(part) + 1
            if size > budget.most:
                if len(parts) < budget.least:
                    raise TooLarge(limit=budget.most, less="fewer columns: one row is longer")
                return parts, len(parts)
            parts.append(part)
    return parts, len(parts)


def json_rows(codec: RowJson, rows: Ints, counts: Ints, budget: Budget) -> msgspec.Raw:
    """All rows as a JSON array. Raises TooSlow, TooLarge."""
    parts, shown = json_parts(codec, rows, counts, budget)
    if shown < len(rows):
        raise TooLarge(limit=budget.most, less="fewer keys, or the view with where= and limit=")
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")


def csv_text(page: Page, budget: Budget) -> tuple[bytes, int]:
    """CSV of a header and the first rows that fit, and the number of these rows. Raises TooSlow, TooLarge."""
    names = [*page.columns, *([DIFF] if bool((page.counts != 1).any()) else [])]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval=1, lineterminator="\n")
    writer.writeheader()
    head = out.getvalue().encode()

    def encode(part: slice) -> list[bytes]:
        lines = []
        for row in page.codec.dicts(page.rows[part], page.counts[part]):
            out.seek(0)
            out.truncate()
            writer.writerow({name: _cell(value) for name, value in row.items()})
            lines.append(out.getvalue().encode())
        return lines

    lines, shown = _fitting(len(page.rows), budget, encode)
    return head + b"".join(lines), shown


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def arrow_stream(page: Page, budget: Budget) -> tuple[bytes, int]:
    """An Arrow IPC stream of the first rows that fit, and their number. Raises TooSlow, TooLarge."""
    codec, shown = page.codec, 0
    metadata: dict[Any, Any] = {"vernier.as_of": str(page.as_of), "vernier.view": page.view.name}
    counted = bool((page.counts != 1).any())
    schema = codec.arrow(page.rows[:0], page.counts[:0], counted=counted).schema.with_metadata(metadata)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        left = budget.most
        for step in _steps(len(page.rows), budget.deadline):
            batch = codec.arrow(page.rows[step], page.counts[step], counted=counted)
            fits = len(batch)
            while fits and batch.slice(0, fits).nbytes > left:
                fits //= 2
            if fits:
                writer.write_batch(batch.slice(0, fits).replace_schema_metadata(metadata))
            left -= batch.slice(0, fits).nbytes
            shown += fits
            if fits < len(batch):
                break
    if len(page.rows) and not shown:
        raise TooLarge(limit=budget.most, less="fewer columns: one row is longer")
    return sink.getvalue(), shown
