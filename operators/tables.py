"""Tables of rows, times and diffs as text, as tests and pages write them:

    person  friend  time  diff
    1       2       5
    1       2       11    -1

The columns stand under the names of the row's columns, in any order, then `time` and `diff` (+1 if the cell or the
column is missing). Cells are separated by blanks, or by `|` as in Markdown. A text with blanks is in double quotes,
lists and structs are JSON, null is `null`.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vernier.operators.errors import ProgramError, listed, meant
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import Field, RowType
from vernier.operators.language.types.texts import Binary, String
from vernier.storage.strings.string_heap import Heap

Row = tuple[Any, ...]
Change = tuple[Row, int, int]

_CELL = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{].*?[\]}](?=\s|$)|\S+')
_RULE = re.compile(r"[-:|\s]+")
_TRUTH = {"true": True, "false": False}


def parse_changes(text: str, schema: RowType) -> list[Change]:
    """The changes (row, time, diff) of a table that has a column `time`. Raises ProgramError, naming the line."""
    names, lines = _lines(text)
    diffs = names[-1:] == ["diff"]
    columns = names[:-1] if diffs else names
    if columns[-1:] != ["time"]:
        raise ProgramError(
            problem=f"a table of changes ends in the columns time or time and diff, not {listed(names)}; for rows at "
            "a time give at="
        )
    columns = columns[:-1]
    rows, times, counts = [], [], []
    for line, cells in lines:
        short = diffs and len(cells) == len(names) - 1
        if len(cells) != len(names) and not short:
            raise ProgramError(problem=f"the line {line!r} has {len(cells)} cells for the columns {listed(names)}")
        rows.append(cells[: len(columns)])
        times.append(_integer(cells[len(columns)], line))
        count = cells[-1] if diffs and not short else ""
        counts.append(_integer(count, line) if count else 1)
    return list(zip(_rows(columns, rows, schema), times, counts, strict=True))


def parse_rows(text: str, schema: RowType) -> list[Row]:
    """The rows of a table without times. Raises ProgramError, naming the line."""
    names, lines = _lines(text)
    for line, cells in lines:
        if len(cells) != len(names):
            raise ProgramError(problem=f"the line {line!r} has {len(cells)} cells for the columns {listed(names)}")
    return _rows(names, [cells for _, cells in lines], schema)


def format_changes(changes: Iterable[Change], schema: RowType) -> str:
    """The changes as a table that `parse_changes` reads."""
    rows = [[*_texts(row, schema), str(time), f"{diff:+}"] for row, time, diff in changes]
    return _aligned([*schema.names, "time", "diff"], rows)


def format_rows(rows: Iterable[Row], schema: RowType) -> str:
    """The rows as a table that `parse_rows` reads."""
    return _aligned(list(schema.names), [_texts(row, schema) for row in rows])


def _lines(text: str) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The names of the columns, and each line with its cells."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise ProgramError(problem="the table is empty; its first line has the names of the columns")
    if "|" not in lines[0]:
        return lines[0].split(), [(line, _CELL.findall(line)) for line in lines[1:]]
    parts = [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines]
    return parts[0], [
        (line, cells) for line, cells in zip(lines[1:], parts[1:], strict=True) if not _RULE.fullmatch(line)
    ]


def _rows(names: Sequence[str], lines: Sequence[Sequence[str]], schema: RowType) -> list[Row]:
    """The rows as Python values in the order of the schema, as the engine would return them."""
    for name in names:
        if name not in schema:
            raise ProgramError(
                problem=f"the table has a column {name!r}{meant(name, schema.names)}; the rows have {schema}"
            )
    fields = [schema.field(name) for name in names]
    rows = [{field.name: _value(cell, field) for field, cell in zip(fields, cells, strict=True)} for cells in lines]
    heap = Heap()
    return schema.decode_rows(schema.encode_rows(rows, heap, whole=False), heap)


def _value(cell: str, field: Field) -> Any:
    if cell == "null":
        return None
    text = json.loads(cell) if cell.startswith('"') else cell
    read = _READERS.get(type(field.type), json.loads)
    try:
        return read(text)
    except (ValueError, KeyError, ArithmeticError) as error:
        raise ProgramError(problem=f"the cell {cell} of column {field.name!r} is no {field.type}") from error


def _integer(cell: str, line: str) -> int:
    try:
        return int(cell)
    except ValueError as error:
        raise ProgramError(problem=f"{cell!r} is no integer, in the line {line!r} of a table") from error


_READERS: dict[type, Callable[[str], Any]] = {
    Int64: int,
    TimestampNs: int,
    Float64: float,
    Bool: lambda text: _TRUTH[text],
    Date: datetime.date.fromisoformat,
    Decimal: decimal.Decimal,
    String: str,
    Binary: bytes.fromhex,
}


def _texts(row: Row, schema: RowType) -> list[str]:
    return [_text(value, field) for value, field in zip(row, schema.fields, strict=True)]


def _text(value: Any, field: Field) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(field.type, Binary):
        return bytes(value).hex() or '""'
    if isinstance(value, str):
        plain = value not in ("", "null") and not re.search(r'[\s"|]|^[\[{]', value)
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else str(value)


def _aligned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)
