"""Rows that notebooks show as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from vernier.operators.language.types.scalars import TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.service.codec.instants import format_instant
from vernier.storage.updates import CLOSED, MIN_TIME

MOST = 100
"""How many rows are shown; all are there."""
_COUNTERS = 10**15
"""Smaller data times are shown as they are, because they are counters rather than dates."""
_STYLE = "font-family:monospace;border-collapse:collapse"


class Table(list[tuple[Any, ...]]):
    """A list of rows that notebooks draw. columns: their names. times: the columns that are instants."""

    def __init__(self, columns: Sequence[str], rows: Iterable[tuple[Any, ...]], times: Iterable[str] = ()) -> None:
        super().__init__(rows)
        self.columns = tuple(columns)
        self.times = frozenset(times)

    def _shown(self) -> list[list[str]]:
        return [
            [_text(value, name in self.times) for name, value in zip(self.columns, row, strict=True)]
            for row in self[:MOST]
        ]

    def _rest(self) -> str:
        return f"and {len(self) - MOST} more" if len(self) > MOST else ""

    def __repr__(self) -> str:
        lines = [list(self.columns), *self._shown()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        return "\n".join([*text, *([self._rest()] if self._rest() else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in self._shown()
        )
        rest = f"<p>{self._rest()}</p>" if self._rest() else ""
        return (
            f'<table cellpadding="4" style="{_STYLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}'
        )


def instants(schema: RowType) -> list[str]:
    """The columns of a schema that hold instants."""
    return [field.name for field in schema.fields if isinstance(field.type, TimestampNs)]


def instant(ns: int) -> str:
    """A data time for people."""
    if ns in (MIN_TIME, CLOSED):
        return "the beginning" if ns == MIN_TIME else "the end"
    return str(ns) if abs(ns) < _COUNTERS else format_instant(ns)


def _text(value: Any, is_time: bool) -> str:
    if value is None:
        return "null"
    if is_time:
        return instant(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
