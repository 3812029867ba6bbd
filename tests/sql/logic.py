"""sqllogictest files: a program and its queries in one file, with the rows that each query has at that place.

The format is sqllogictest's, as DuckDB and others read it. What it means here:

- `statement ok`: CREATE TABLE, CREATE VIEW and SET belong to the program. INSERT, UPDATE and DELETE happen at a data
  time: the first second of 2024 for the first of them, and a second later for each of the next.
- `sleep 10s`: the next statement happens so much later, and queries before it see the time pass.
- `statement error TEXT`: the program that is refused with this text. It is built with the program above it.
- `query I rowsort`: the rows of a maintained view at this place, one line each, with tabs between values; `NULL` is
  null, `(empty)` the empty text. There is one letter a column, and rows are sorted as text: tables have no order.
  `query I rowsort ours`: Spark has no answer or several ones, so it is not asked.

DuckDB runs the statements on tables of its own, and the rows by which a table differs before and after a statement are
the updates. So a file is a history, and each query is checked in the middle of it.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from tests.oracle.model import Change
from vernier.operators.language.types.duration import nanoseconds
from vernier.operators.sql.statements import CreateTable, Source, read_statements

BEGIN = 1_704_067_200_000_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Record:
    """One record of a file. kind: ok, error, query or sleep; line: where it begins; head: what follows on it."""

    kind: str
    line: int
    head: str
    text: str
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """A query with the data time at which it has these rows. view: its name in the program."""

    record: Record
    view: str
    time: int


@dataclass
class Script:
    """A file, ready to run: the program, the updates of its tables, what is asked, and what is refused (each with the
    program as far as its line)."""

    program: str
    changes: dict[str, list[Change]]
    asked: list[Asked]
    refused: list[tuple[Record, str]]


def read_records(text: str) -> list[Record]:
    """The records of a file: blocks between empty lines."""
    found: list[Record] = []
    number = 1
    for block in re.split(r"\n[ \t]*\n", text):
        lines = block.split("\n")
        begin = number
        number += len(lines) + 1
        while lines and (not lines[0].strip() or lines[0].startswith("#")):
            lines.pop(0)
            begin += 1
        if not lines:
            continue
        kind, _, head = lines[0].partition(" ")
        if kind == "statement":
            kind, _, head = head.partition(" ")
        if kind not in ("ok", "error", "query", "sleep"):
            raise ValueError(f"line {begin}: a record is a statement, a query or a sleep, not {lines[0]!r}")
        body, _, wanted = "\n".join(lines[1:]).partition("----")
        rows = tuple(wanted.strip("\n").split("\n")) if wanted.strip("\n") else ()
        found.append(Record(kind, begin, head.strip(), body.strip().rstrip(";"), rows))
    return found


def script(records: Sequence[Record]) -> Script:
    """Run the statements, and make the program."""
    made = Script("", {}, [], [])
    views: dict[str, str] = {}
    now = BEGIN - SECOND
    with duckdb.connect() as tables:
        for one in records:
            word = one.text.split(None, 1)[0].upper() if one.text else ""
            if one.kind == "sleep":
                now += nanoseconds(one.head)
            elif one.kind == "error":
                made.refused.append((one, f"{made.program}{one.text};\n"))
            elif one.kind == "query":
                view = views.setdefault(one.text, f"query_{len(views) + 1}")
                made.asked.append(Asked(one, view, now))
            elif word in ("CREATE", "SET"):
                made.program += one.text + ";\n"
                for statement in read_statements(Source(one.text + ";", "script.slt")):
                    if isinstance(statement, CreateTable):
                        tables.execute(_for_duckdb(one.text))
                        made.changes[statement.name] = []
            else:
                now += SECOND
                before = _contents(tables, made.changes)
                tables.execute(one.text)
                for name, rows in _contents(tables, made.changes).items():
                    new, old = rows - before[name], before[name] - rows
                    made.changes[name] += [(row, now, count) for row, count in new.items()]
                    made.changes[name] += [(row, now, -count) for row, count in old.items()]
    made.program += "".join(f"CREATE MATERIALIZED VIEW {name} AS\n{query};\n" for query, name in views.items())
    return made


def _for_duckdb(table: str) -> str:
    """CREATE TABLE without the options that DuckDB does not know, and with its names of types."""
    plain = re.sub(r"\)\s*WITH\s*\([^)]*\)\s*$", ")", table)
    for ours, theirs in ((r"\bSTRING\b", "VARCHAR"), (r"\bBINARY\b", "BLOB"), (r"\bARRAY<(\w+)>", r"\1[]")):
        plain = re.sub(ours, theirs, plain, flags=re.IGNORECASE)
    return plain


def _contents(tables: duckdb.DuckDBPyConnection, names: Sequence[str] | dict[str, Any]) -> dict[str, Counter[Any]]:
    return {name: Counter(map(_given, tables.execute(f"FROM {name}").fetchall())) for name in names}


def _given(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row in the form in which a source takes it."""
    return tuple(
        _instant(value) if isinstance(value, datetime.datetime) else tuple(value) if isinstance(value, list) else value
        for value in row
    )


def _instant(value: datetime.datetime) -> int:
    span = value.replace(tzinfo=datetime.UTC) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return ((span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds) * 1_000


def shown(rows: Counter[Any], types: Sequence[str]) -> list[str]:
    """Rows as the lines of a file. types: what Spark calls the types of the columns."""
    lines = ["\t".join(map(_cell, row, types)) for row in rows.elements()]
    return sorted(lines)


def _cell(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if kind.startswith("timestamp") and isinstance(value, int):
        at = datetime.datetime.fromtimestamp(value // SECOND, datetime.UTC).replace(tzinfo=None)
        rest = f".{value % SECOND:09d}".rstrip("0") if value % SECOND else ""
        return f"{at}{rest}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_cell(one, "") for one in value) + "]"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value) or "(empty)"


def rewritten(text: str, records: Sequence[Record], rows: dict[int, list[str]]) -> str:
    """The text of a file with these rows for its queries, by their lines."""
    begins = {one.line: one for one in records}
    found: list[str] = []
    number = 1
    for block in re.split(r"\n[ \t]*\n", text.rstrip("\n")):
        lines = block.split("\n")
        comments = [one for one in lines if not one.strip() or one.startswith("#")]
        begin = number + len(comments)
        number += len(lines) + 1
        record = begins.get(begin)
        if record is not None and record.kind == "query":
            lines = [*comments, f"query {record.head}", record.text, "----", *rows[begin]]
        found.append("\n".join(lines))
    return "\n\n".join(found) + "\n"
