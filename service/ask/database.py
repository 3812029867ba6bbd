"""The DuckDB of a worker: locked down, with the tables that it keeps and the questions that it runs.

No file, network, extension or setting can be reached from a question, and nothing spills to a disk. One thread runs a
question, so that an answer is the same each time: with several, sums of floats and rows without ORDER BY would depend
on which thread was first. Tables are copies in DuckDB's own memory, which its memory limit covers; the least recently
used ones go when they take more than half of it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

import duckdb
import pyarrow as pa

from vernier.service.ask import functions, question
from vernier.service.ask.encoding import encode
from vernier.service.ask.errors import BadSql, QueryFailed, QueryMemory, QueryTimeout, SqlRefused
from vernier.service.ask.frames import Done, Run, Table
from vernier.service.ask.names import folded
from vernier.storage.errors import CallerError

COPIES = "_diff"
"""A column of a kept table: how many copies of the row the view has. It is there if the number is not always 1."""
_CONFIG: dict[str, Any] = {
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "arrow_large_buffer_size": True,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "default_null_order": "nulls_first_on_asc_last_on_desc",  # as in views and in Spark SQL
    "errors_as_json": True,
    "python_enable_replacements": False,  # else a question could name variables of this process
    "temp_directory": "",
    "threads": 1,
}
_BAD = frozenset({"Parser", "Syntax", "Binder", "Catalog", "Mismatch Type", "Parameter Not Resolved"})
_REFUSED = frozenset({"Permission"})
_EXPLAIN = "EXPLAIN "


class Database:
    """An in-memory DuckDB. memory_mb: for tables and questions together. For one thread."""

    def __init__(self, memory_mb: int) -> None:
        self._memory_mb = memory_mb
        self._main = duckdb.connect(":memory:", config=_CONFIG | {"memory_limit": f"{memory_mb}MiB"})
        self._main.execute("CREATE SCHEMA kept")
        self._main.execute(functions.TIMEZONE)
        self._main.execute("SET TimeZone = 'UTC'")
        # Last, because it forbids to change temp_directory, too.
        self._main.execute("SET enable_external_access = false")
        self._main.execute("SET lock_configuration = true")
        self._existing = question.catalogue(self._main)
        self._kept: OrderedDict[int, None] = OrderedDict()

    def read(self, sql: str) -> question.Question:
        """Parse a question. Raises BadSql, SqlRefused."""
        try:
            return question.read(self._main, sql, self._existing)
        except duckdb.Error as error:
            raise self._meaning(error, sql) from None

    def missing(self, numbers: list[int]) -> list[int]:
        """The contents that are not kept; the others now count as used."""
        for number in numbers:
            if number in self._kept:
                self._kept.move_to_end(number)
        return [number for number in dict.fromkeys(numbers) if number not in self._kept]

    def keep(self, number: int, rows: pa.RecordBatchReader, used: list[int]) -> None:
        """Copy rows into a table. used: the contents that the question needs, which stay. Raises QueryMemory."""
        try:
            self._main.register("incoming", rows)
            self._main.execute(f"CREATE TABLE kept.t{number} AS SELECT * FROM incoming")
        except (duckdb.OutOfMemoryException, MemoryError):
            raise QueryMemory(mb=self._memory_mb) from None
        finally:
            self._main.unregister("incoming")
        self._kept[number] = None
        self.forget(used)

    def forget(self, used: list[int], *, all_others: bool = False) -> bool:
        """Drop the least recently used tables until at most half of the memory is taken; returns whether it dropped
        any. used: stay in any case. all_others: drop all but these."""
        dropped = False
        for number in list(self._kept):
            if number in used or not (all_others or self._taken() > self._memory_mb << 19):
                continue
            self._main.execute(f"DROP TABLE kept.t{number}")
            del self._kept[number]
            dropped = True
        return dropped

    def run(self, request: Run) -> Done:
        """Answer a question whose tables are kept. Raises CallerError of errors.py."""
        asked = self.read(request.sql)
        used = [table.number for table in request.tables]
        try:
            return self._run(request, asked.sql)
        except QueryMemory:
            if not self.forget(used, all_others=True):
                raise
            return self._run(request, asked.sql)

    def _run(self, request: Run, sql: str) -> Done:
        cursor = self._main.cursor()
        try:
            with _interrupted(cursor, request.seconds) as expired:
                try:
                    self._name_tables(cursor, request)
                    return encode(cursor.sql(sql), request)
                except duckdb.InterruptException:
                    raise QueryTimeout(ms=round(request.seconds * 1000)) from None
                except MemoryError:
                    raise QueryMemory(mb=self._memory_mb) from None
                except (duckdb.Error, pa.ArrowException, OSError) as error:
                    # What fails after the first rows comes through Arrow's stream, with DuckDB's text.
                    if expired():
                        raise QueryTimeout(ms=round(request.seconds * 1000)) from None
                    raise self._placed(cursor, sql, error) from None
        finally:
            cursor.close()

    def _name_tables(self, cursor: duckdb.DuckDBPyConnection, request: Run) -> None:
        """Give the kept tables the names that the question uses, on this connection only."""
        cursor.execute(f"CREATE TEMP MACRO data_time() AS make_timestamp_ns({request.as_of})")
        named = dict[str, Table]()
        for table in request.tables:
            other = named.setdefault(folded(table.name), table)
            if other is not table:
                if other.number != table.number:
                    problem = f"{other.name} and {table.name} differ only in case, and SQL takes them for one"
                    raise BadSql(problem=problem)
                continue
            kept = f"kept.t{table.number}"
            columns = [name for name, *_ in cursor.execute(f"DESCRIBE {kept}").fetchall()]
            source = kept
            if columns[-1] == COPIES:
                source = f"(SELECT *, unnest(range({COPIES})) AS _copy FROM {kept})"
            listed = ", ".join(quoted(name) for name in columns if name != COPIES)
            cursor.execute(f"CREATE TEMP VIEW {quoted(table.name)} AS SELECT {listed} FROM {source}")

    def _taken(self) -> int:
        [(taken,)] = self._main.execute("SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()").fetchall()
        return int(taken)

    def _placed(self, cursor: duckdb.DuckDBPyConnection, sql: str, error: Exception) -> CallerError:
        """The error that a DuckDB error means, with its place: an error of binding has one only in EXPLAIN."""
        found = self._meaning(error, sql)
        if isinstance(found, BadSql) and found.line is None:
            try:
                cursor.execute(_EXPLAIN + sql)
            except duckdb.Error as again:
                return self._meaning(again, sql, len(_EXPLAIN))
        return found

    def _meaning(self, error: Exception, sql: str, before: int = 0) -> CallerError:
        """The error that a DuckDB error means. before: characters that DuckDB saw before the question."""
        kind, known, said = str(error).partition(" Error: ")
        if not known:
            return QueryFailed(problem=kind)
        at: int | None = None
        try:
            about = json.loads(said)
            kind, said = about["exception_type"], about["exception_message"]
            at = int(about["position"]) - before
        except (ValueError, KeyError, TypeError):
            pass
        if kind == "Out of Memory":
            return QueryMemory(mb=self._memory_mb)
        line, column = question.place(sql, at)
        problem = said.partition("\n\nLINE ")[0].strip().replace("!\n", "\n").replace("\n", "; ")
        leaf = BadSql if kind in _BAD else SqlRefused if kind in _REFUSED else QueryFailed
        return leaf(problem=problem[:1].lower() + problem[1:], line=line, column=column)


@contextmanager
def _interrupted(cursor: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[Any]:
    """Interrupt what runs on a connection after that time. Yields a function: whether the time is over."""
    timer = Timer(max(0.0, seconds), cursor.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield timer.finished.is_set
    finally:
        timer.cancel()


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
