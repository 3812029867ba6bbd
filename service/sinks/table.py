"""The changes of steps as Arrow, and as the newest row of each key, for targets that hold tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Float64
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import List
from vernier.service.codec.arrowjson import json_texts
from vernier.service.codec.plain_times import plain_times
from vernier.service.sinks.history import Step
from vernier.service.sinks.outgoing import key_changes
from vernier.service.views.json_rows import RowJson

Key = tuple[Any, ...]
Row = dict[str, Any]


def change_batches(steps: Sequence[Step]) -> Iterator[pa.RecordBatch]:
    """Yield each step's changes as Arrow: the view's columns in the program's order, `_time` and `_diff`;
    times are integers. O(changes).
    """
    for step in steps:
        codec = RowJson(step.view.stored, step.view.schema.names, step.heap)
        rows = np.ascontiguousarray(step.changes.rows)
        yield plain_times(codec.arrow(rows, step.changes.diff, counted=True, times=step.changes.time))


def newest_rows(steps: Sequence[Step], form: str) -> dict[Key, Row | None]:
    """The row of each key that the steps change, after the last of them; None if the key is gone.

    Values are Python's; a TimestampNs is an integer, lists and structs are JSON. Raises NotOneRow, which names the
    format, for a key with several rows. O(changes log changes), and Python work for each.
    """
    found: dict[Key, Row | None] = {}
    for step in steps:
        order, groups = key_changes(step, form)
        # Of each key and time, the last change says which row there is then.
        last = np.array([end - 1 for _, end in groups], np.int64)
        chosen = step.changes.take(order[last]) if len(last) else step.changes
        (batch,) = change_batches([replace(step, changes=chosen)])
        names = step.view.schema.names
        columns = [_plain(batch.column(name), step.view.schema.field(name).slot) for name in names]
        for values, diff in zip(zip(*columns, strict=True), chosen.diff.tolist(), strict=True):
            row = dict(zip(names, values, strict=True))
            found[tuple(row[name] for name in step.view.key)] = row if diff > 0 else None
    return found


def _plain(column: pa.Array, slot: Slot) -> list[Any]:
    """Python values; lists and structs as JSON."""
    if isinstance(slot.type, (List, Struct)):
        texts = json_texts(slot, column.cast(slot.type.arrow))
        column = pc.if_else(column.is_valid(), texts, pa.scalar(None, texts.type))
    values: list[Any] = column.to_pylist()
    if isinstance(slot.type, Float64):
        # A NaN equals another one only if they are the same object, and keys are compared.
        values = [math.nan if value != value else value for value in values]
    return values
