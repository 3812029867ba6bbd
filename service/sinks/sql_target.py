"""A view as a table of a database, through SQLAlchemy: one row per key, upserted.

The way of the data: of a turn's changes only the newest row of each key counts. One transaction of the database deletes
the changed keys, inserts their rows, and sets the position in the table `vernier_positions`, so a reader of the
database sees the view as of a frontier, always. The row of the position is also the fence: it carries the writer that
last started, and an update that does not find itself there changes nothing and ends. Failure in the middle: the
database rolls back. A table that is gone although there is a position: a start forgets the position and writes the
whole view again; a process that is at work fails at its next rows, which makes it start. Cost: a delete and an insert
per changed key, sent in bulk.

Times are integers of nanoseconds; lists and structs are JSON texts. A database that has no type for a value (SQLite: a
decimal, which becomes text; a NaN, which becomes null) holds what is nearest.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import Field
from vernier.operators.language.types.texts import Binary
from vernier.service.config.streams import Sink
from vernier.service.sinks.position import Position
from vernier.service.sinks.table import newest_rows
from vernier.service.sinks.target import Steps, TargetFailed, TargetTaken
from vernier.service.views.view_type import ViewType
from vernier.storage.errors import CallerError
from vernier.storage.state.state import StateDirectory

try:
    import sqlalchemy as sql
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as missing:

    class NoSqlAlchemy(CallerError):
        """The package is missing."""

        message = "a sink to sql needs SQLAlchemy: pip install 'vernier[sql]', and the database's driver"

    raise NoSqlAlchemy() from missing

POSITIONS = "vernier_positions"
_log = logging.getLogger("vernier.publisher")


class SqlTable:
    """A table of a database. url: as SQLAlchemy writes it; name: the sink's, by which the position is found."""

    def __init__(self, url: str, table: str, name: str) -> None:
        self._name, self._table_name = name, table
        self._writer = os.urandom(6).hex()
        self._continues = False
        self._engine = sql.create_engine(url, pool_pre_ping=True)
        self._place = self._engine.url.render_as_string(hide_password=True) + f" table {table}"
        self._catalog = sql.MetaData()
        self._tables: dict[str, sql.Table] = {}
        self._positions = sql.Table(
            POSITIONS,
            self._catalog,
            sql.Column("sink", sql.String(200), primary_key=True),
            sql.Column("frontier", sql.BigInteger),
            sql.Column("meaning", sql.String(40)),
            sql.Column("messages", sql.Text),
            sql.Column("writer", sql.String(40)),
        )

    def position(self) -> Position | None:
        """Fence other writers, and return how far the table is: None if it is gone. Raises TargetFailed."""
        try:
            self._catalog.create_all(self._engine, [self._positions])
            mine = self._positions.c.sink == self._name
            with self._engine.begin() as connection:
                if not connection.execute(self._positions.update().where(mine).values(writer=self._writer)).rowcount:
                    connection.execute(self._positions.insert().values(sink=self._name, writer=self._writer))
                if not sql.inspect(connection).has_table(self._table_name):
                    # In this transaction: a table that somebody makes meanwhile must not pass for this one.
                    held = mine & self._positions.c.frontier.is_not(None)
                    if connection.execute(self._positions.update().where(held).values(frontier=None)).rowcount:
                        _log.warning("%s is gone and is written again from the beginning", self._place)
                found = connection.execute(sql.select(self._positions).where(mine)).one()
        except SQLAlchemyError as error:
            raise self._failed(error) from error
        self._continues = found.frontier is not None
        if found.frontier is None:
            return None
        return Position(self._table_name, "sql", found.frontier, found.meaning, json.loads(found.messages))

    def write(self, steps: Steps) -> Position:
        """Bring the table to the end of the steps. Raises TargetFailed, TargetTaken, NotOneRow."""
        begins = max((number for number, step in enumerate(steps) if step.restarts), default=None)
        wanted = steps if begins is None else steps[begins:]
        last = steps[-1]
        rows = newest_rows(wanted, "sql")
        table = self._table(last.view)
        try:
            with self._engine.begin() as connection:
                position = self._advance(connection, last, len(rows))
                if begins is not None:
                    table.drop(connection, checkfirst=True)
                if begins is not None or not self._continues:
                    table.create(connection, checkfirst=True)
                self._replace(connection, table, last.view, rows)
        except SQLAlchemyError as error:
            raise self._failed(error) from error
        self._continues = True
        return position

    def close(self) -> None:
        """Close the connections; a transaction that was open is rolled back."""
        self._engine.dispose()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _advance(self, connection: sql.Connection, last: Any, count: int) -> Position:
        """Set the position, if this process is still the writer. It comes first, so two writers wait for each other
        here.
        """
        table = self._positions
        mine = (table.c.sink == self._name) & (table.c.writer == self._writer)
        before = connection.execute(sql.select(table.c.messages).where(mine)).scalar()
        counts = json.loads(before) if before else {}
        counts["updates"] = counts.get("updates", 0) + count
        position = Position(self._table_name, "sql", last.upper, last.view.meaning, counts, last.view.name)
        values = {"frontier": last.upper, "meaning": last.view.meaning, "messages": json.dumps(counts)}
        if not connection.execute(table.update().where(mine).values(values)).rowcount:
            raise TargetTaken(place=self._place)
        return position

    def _replace(self, connection: sql.Connection, table: sql.Table, view: ViewType, rows: Mapping[Any, Any]) -> None:
        if not rows:
            return
        conditions = []
        for name in view.key:
            given = sql.bindparam(f"key_{name}", type_=table.c[name].type)
            column = table.c[name]
            conditions.append(column.is_not_distinct_from(given) if _nullable(view, name) else column == given)
        keys = [{f"key_{name}": self._fit(part) for name, part in zip(view.key, key, strict=True)} for key in rows]
        connection.execute(table.delete().where(sql.and_(*conditions)), keys)
        added = [{name: self._fit(value) for name, value in row.items()} for row in rows.values() if row is not None]
        if added:
            connection.execute(table.insert(), added)

    def _fit(self, value: Any) -> Any:
        """The value as the database's driver takes it."""
        if self._engine.dialect.name == "sqlite" and type(value).__name__ == "Decimal":
            return f"{value:f}"
        return value

    def _table(self, view: ViewType) -> sql.Table:
        """The table of a view; a column for each of the view's, and its key as the primary key if it cannot be null."""
        if view.meaning not in self._tables:
            keyed = not any(_nullable(view, name) for name in view.key)
            sqlite = self._engine.dialect.name == "sqlite"
            catalog = sql.MetaData()
            columns = []
            for field in view.schema.fields:
                key, nullable = keyed and field.name in view.key, _nullable(view, field.name)
                columns.append(sql.Column(field.name, _kind(field, sqlite), primary_key=key, nullable=nullable))
            self._tables[view.meaning] = sql.Table(self._table_name, catalog, *columns)
        return self._tables[view.meaning]

    def _failed(self, error: SQLAlchemyError) -> TargetFailed:
        return TargetFailed(place=self._place, problem=str(getattr(error, "orig", None) or error).splitlines()[0])


def _nullable(view: ViewType, name: str) -> bool:
    """Whether a column of the table may have nulls. A NaN is a null to some databases."""
    field = view.schema.field(name)
    return field.nullable or isinstance(field.type, Float64)


def _kind(field: Field, sqlite: bool) -> Any:
    """The column's type; None as for any other type is text."""
    match field.type:
        case Int64() | TimestampNs():
            return sql.BigInteger()
        case Float64():
            return sql.Double()
        case Bool():
            return sql.Boolean()
        case Date():
            return sql.Date()
        case Binary():
            return sql.LargeBinary()
        case Decimal() as kind if not sqlite:
            return sql.Numeric(kind.precision, kind.scale)
        case _:
            return sql.Text()


def open_table(name: str, given: Sink, app: str, state: StateDirectory) -> SqlTable:
    """The table of a sink."""
    return SqlTable(given.address(), given.table or given.view or name, f"{app}.{name}")
