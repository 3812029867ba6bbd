"""Selects and orders the rows of an answer: the where, order, limit and cursor of a request, on words alone.

Words compare as the values do, so a filter is one vectorised comparison per condition, whatever the column's type. Only
long texts with equal beginnings need a look at their contents first. Nulls behave as in Spark SQL: a comparison with
null is not true; nulls come first in ascending order and last in descending order. Every order ends with the row's own
words, which makes it total. A page can therefore continue where the last one ended: a cursor names the data time, the
query and a position in an answer that never changes.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from vernier.operators.language.types.schema import Field, RowType
from vernier.service.views.deadline import NEVER, Deadline
from vernier.service.views.json_rows import encode_value
from vernier.service.views.multiset import Run, order_keys
from vernier.storage.errors import CallerError
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Ints

Operator = Literal["eq", "ne", "lt", "le", "gt", "ge", "in", "null", "notnull"]
OPERATORS: tuple[str, ...] = ("eq", "ne", "lt", "le", "gt", "ge", "in", "null", "notnull")


class BadFilter(CallerError):
    """A where= parameter cannot be parsed."""

    message = "where={text!r}: {problem}; write column:operator:value, operators are {operators}"
    text: str
    problem: str
    operators: str = ", ".join(OPERATORS)


class BadCursor(CallerError):
    """A cursor was not issued by this sidecar, or belongs to another request."""

    message = "the cursor {problem}; use the next_cursor of an answer unchanged, with the same view, where and order"
    problem: str


class UnknownViewColumn(CallerError):
    """A request names a column that the view does not have."""

    message = "view {view} has no column {column!r}{hint}; it has {columns}"
    view: str
    column: str
    hint: str
    columns: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, written `column:operator:value`."""

    column: str
    operator: str
    value: str

    @staticmethod
    def parse(text: str) -> Condition:
        """Parse a condition. `column:value` means eq. Raises BadFilter."""
        column, *rest = text.split(":", 2)
        if not column or not rest:
            raise BadFilter(text=text, problem="no operator")
        if rest[0] not in OPERATORS:
            if len(rest) == 1:
                return Condition(column, "eq", rest[0])
            near = difflib.get_close_matches(rest[0], OPERATORS, 1)
            raise BadFilter(
                text=text, problem=f"unknown operator {rest[0]!r}" + (f", did you mean {near[0]}" if near else "")
            )
        if len(rest) == 1 and rest[0] not in ("null", "notnull"):
            raise BadFilter(text=text, problem=f"operator {rest[0]} needs a value")
        return Condition(column, rest[0], rest[1] if len(rest) == 2 else "")

    def mask(self, stored: RowType, rows: Ints, view: str, heap: Heap | None) -> npt.NDArray[np.bool_]:
        """The mask of the rows that fulfil the condition. heap: holds their long texts. Raises UnknownViewColumn,
        BadValue.
        """
        field = find_column(stored, self.column, view)
        present = rows[:, field.offset] != 0 if field.nullable else np.ones(len(rows), np.bool_)
        if self.operator == "null":
            return ~present
        if self.operator == "notnull":
            return present
        texts = self.value.split(",") if self.operator == "in" else [self.value]
        words = np.array([encode_value(field, text, heap) for text in texts], np.int64).reshape(-1, field.words)
        block = np.concatenate(
            (rows[:, field.value_offset : field.offset + field.words], words[:, -field.type.words :])
        )
        keys = order_keys(block if heap is None else heap.comparable(block, field.type.text_words))
        values, wanted = keys[: len(rows)], keys[len(rows) :]
        match self.operator:
            case "eq":
                hit = values == wanted[0]
            case "ne":
                hit = values != wanted[0]
            case "lt":
                hit = values < wanted[0]
            case "le":
                hit = values <= wanted[0]
            case "gt":
                hit = values > wanted[0]
            case "ge":
                hit = values >= wanted[0]
            case _:
                hit = np.isin(values, wanted)
        answer: npt.NDArray[np.bool_] = hit & present
        return answer


def find_column(stored: RowType, name: str, view: str) -> Field:
    """Find a column. Raises UnknownViewColumn, which suggests the nearest name."""
    if name not in stored:
        near = difflib.get_close_matches(name, stored.names, 1)
        hint = f", did you mean {near[0]!r}" if near else ""
        raise UnknownViewColumn(view=view, column=name, hint=hint, columns=", ".join(stored.names))
    return stored.field(name)


@dataclass(frozen=True, slots=True)
class RowQuery:
    """The filter and the order of a request. where: conditions that must all hold; order: column names, `-name` for
    descending.
    """

    where: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the query selects all rows in key order."""
        return not self.where and not self.order

    def positions(
        self, stored: RowType, run: Run, view: str, heap: Heap | None = None, deadline: Deadline = NEVER
    ) -> npt.NDArray[np.intp]:
        """The positions in the run of the answer's rows, in the answer's order. O(n log n). Raises subclasses of
        CallerError.
        """
        conditions = [Condition.parse(text) for text in self.where]
        mask = np.ones(len(run), np.bool_)
        for condition in conditions:
            deadline.check()
            mask &= condition.mask(stored, run.rows, view, heap)
        chosen = np.flatnonzero(mask)
        columns: list[Ints] = []
        for name in self.order:
            deadline.check()
            descending = name.startswith("-")
            field = find_column(stored, name.lstrip("+-"), view)
            block = run.rows[chosen, field.offset : field.offset + field.words]
            if heap is not None:
                block = heap.comparable(block, [at - field.offset for at in field.text_words])
            columns += [~word if descending else word for word in block.T]
        if columns and len(chosen):
            chosen = chosen[np.lexsort(columns[::-1])]
        return chosen


class Cursor(msgspec.Struct, frozen=True):
    """Where the next page begins: in the answer to `where` and `order` on `view` as of `as_of`, at `offset`."""

    view: str
    as_of: int
    offset: int
    where: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def encode(self) -> str:
        """Encode as URL-safe text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @staticmethod
    def decode(text: str) -> Cursor:
        """Decode from text. Raises BadCursor."""
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            cursor = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Cursor)
        except (msgspec.MsgspecError, binascii.Error, UnicodeError, ValueError, RecursionError):
            raise BadCursor(problem="cannot be read") from None
        if cursor.offset < 0:
            raise BadCursor(problem="cannot be read")
        return cursor


def split_list(text: str | None) -> tuple[str, ...]:
    """Split `a,b` into its parts and drop empty ones."""
    return tuple(part for part in (text or "").split(",") if part)


def page(positions: Sequence[int] | npt.NDArray[np.intp] | range, offset: int, limit: int) -> tuple[slice, int | None]:
    """The slice of one page, and the offset of the next page (None at the end)."""
    stop = min(len(positions), offset + limit)
    return slice(offset, stop), stop if stop < len(positions) else None
