"""The front end: a program in SQL becomes an App, statement by statement, and `app.sql` a collection.

A name is declared before it is used, as in SQL scripts. The text of a program may bring its plans (`packed`), so that
other processes, on other hosts, build the same App without Java.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vernier.operators.errors import NameClash, ProgramError, UnknownColumn, meant
from vernier.operators.language.collection.app import App
from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.collection.sql import MARK
from vernier.operators.language.plan.logical import SourceNode
from vernier.operators.language.plan.owners import own
from vernier.operators.language.types.duration import nanoseconds
from vernier.operators.language.types.schema import RowType, check_name
from vernier.operators.location import Location, here, located
from vernier.operators.sql.columns import columns_of
from vernier.operators.sql.queries import Leaf, Queries
from vernier.operators.sql.statements import CreateTable, CreateView, Query, Setting, Source, read_statements
from vernier.operators.sql.trees import compact
from vernier.service.sql.kept import Kept, folder_of, key_of
from vernier.service.sql.planner import PLANNER, Planner


class Front:
    """Builds programs and queries with a planner. See operators/language/collection/sql.py."""

    def __init__(self, planner: Planner = PLANNER) -> None:
        self._planner = planner

    def program(self, text: str, file: str) -> App:
        """The app of a program's text; `file` names it. Raises ProgramError with line and column."""
        plain, brought = _unpacked(text)
        return self._build(plain, file, _Plans(self._planner, file, brought))

    def packed(self, text: str, file: str) -> str:
        """The text with its plans, for other processes."""
        plain, brought = _unpacked(text)
        plans = _Plans(self._planner, file, brought)
        self._build(plain, file, plans)
        return plain.rstrip("\n") + "\n" + MARK + _written(plans.used) + "\n"

    def query(self, app: App, text: str, collections: Mapping[str, Collection]) -> Collection:
        """The collection of a query in a program in Python. Raises ProgramError with the line of the call, and line and
        column of the query."""
        where = here()
        names = {name.lower(): _leaf(Collection(node)) for name, node in app.sources.items()}
        names |= {name.lower(): _leaf(Collection(view.node)) for name, view in app.views.items()}
        names |= {name.lower(): _leaf(one) for name, one in collections.items()}
        plain = text.rstrip().rstrip(";")
        source = Source(plain, where.file)
        begin = len(plain) - len(plain.lstrip())
        try:
            return (
                Queries(_Plans(self._planner, where.file, {})).leaf(Query(source, begin, len(plain)), names).collection
            )
        except ProgramError as error:
            at = error.where
            inside = (
                f" (line {at.line}, column {at.column} of the query)" if at.column and at.file == where.file else ""
            )
            raise ProgramError(problem=error.problem + inside, where=where) from error

    def _build(self, text: str, file: str, plans: _Plans) -> App:
        source = Source(text, file)
        statements = read_statements(source)
        settings = {one.name: one for one in statements if isinstance(one, Setting)}
        start = Location(file, 1, text.split("\n", 1)[0].strip())
        app = _app(settings, statements, file, start)
        names: dict[str, Leaf] = {}
        queries = Queries(plans)
        for one in statements:
            if isinstance(one, Setting):
                continue
            with located(one.where):
                if one.name.lower() in names:
                    raise NameClash(
                        problem=f"the name {one.name!r} is declared twice; names ignore upper and lower case"
                    )
                if isinstance(one, CreateTable):
                    names[one.name.lower()] = _declared(app, one)
                else:
                    names[one.name.lower()] = found = queries.leaf(one.query, names, one.columns)
                    if one.served:
                        _serve(app, one, found)
        for one in statements:
            if isinstance(one, CreateTable) and one.name in queries.relied:
                app.relied_keys[one.name] = (_key(one) or (), one.where)
        if not app.views:
            raise ProgramError(
                problem="the program has no view: CREATE MATERIALIZED VIEW name AS SELECT …", where=start
            )
        return app


class _Plans:
    """Plans for one program: those that its text brings, those that are kept, and Catalyst's."""

    def __init__(self, planner: Planner, file: str, brought: Mapping[str, Any]) -> None:
        self._planner, self._brought = planner, brought
        self._kept = Kept(folder_of(file))
        self.used: dict[str, Any] = {}

    def __call__(self, text: str, leaves: Mapping[str, Any]) -> Mapping[str, Any]:
        key = key_of(text, leaves)
        found = self._brought.get(key)
        if found is None:
            found = self._planner.plan(text, leaves, self._kept)
        if "plan" in found:
            self.used[key] = found
        return found


def _leaf(collection: Collection) -> Leaf:
    return Leaf(collection, columns_of(collection.schema))


def _app(settings: Mapping[str, Setting], statements: list[Any], file: str, start: Location) -> App:
    name = settings["name"].value if "name" in settings else re.sub(r"[^A-Za-z0-9_-]", "_", Path(file).stem)
    if not name[:1].isalpha():
        name = f"sql_{name}"
    retains = [
        (_duration(one.options["retain"], one.where))
        for one in statements
        if isinstance(one, CreateView) and "retain" in one.options
    ]
    if "retain" in settings:
        retains.append(_duration(settings["retain"].value, settings["retain"].where))
    with located(settings["name"].where if "name" in settings else start):
        late = settings["on_late"].value if "on_late" in settings else "dead_letter"
        return App(name, retain=max(retains, default=nanoseconds("10m")), on_late=late)


_WORDS = {
    "nanosecond": "ns",
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "d",
}


def _duration(text: str, where: Location) -> int:
    """'10 minutes', or '10m', in nanoseconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµ]+)\s*", text)
    with located(where):
        if found is None:
            raise ProgramError(problem=f"a duration is like '10 minutes', not {text!r}")
        unit = found[2].lower()
        return nanoseconds(f"{found[1]}{_WORDS.get(unit.removesuffix('s') if len(unit) > 2 else unit, unit)}", "retain")


def _declared(app: App, table: CreateTable) -> Leaf:
    for column in table.columns:
        check_name(column.name, f"table {table.name!r}")
    row = RowType((one.name, one.type, one.nullable) for one in table.columns)
    node = SourceNode(table.name, row)
    app.sources[table.name] = node
    own(node, app)
    if "retain" in table.options:
        app.kept_sources[table.name] = _duration(table.options["retain"], table.where)
    return Leaf(Collection(node), table.columns, _key(table), frozenset({table.name}))


def _key(table: CreateTable) -> tuple[str, ...] | None:
    """The columns in which no two rows of a table agree: those that its messages are keyed by."""
    key = table.options.get("key")
    if key is None or table.options.get("format") not in ("upsert", "debezium"):
        return None
    return tuple(one.strip() for one in key.split(","))


def _serve(app: App, view: CreateView, found: Leaf) -> None:
    key: list[str] | None = None
    if "key" in view.options:
        by_lower = {one.name.lower(): one.name for one in found.columns}
        key = []
        for part in view.options["key"].split(","):
            name = by_lower.get(part.strip().lower())
            if name is None:
                columns = [one.name for one in found.columns]
                raise UnknownColumn(
                    problem=f"the key of view {view.name!r} names {part.strip()!r}, which is no column of it"
                    f"{meant(part.strip(), columns)} (it has {', '.join(columns)})"
                )
            key.append(name)
    app.view(view.name, found.collection, key=key)


def _written(plans: Mapping[str, Any]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(compact(dict(plans)), sort_keys=True).encode(), 9)).decode()


def _unpacked(text: str) -> tuple[str, Mapping[str, Any]]:
    """The text without the plans that it brings, and these."""
    plain, mark, rest = text.partition(MARK)
    if not mark:
        return text, {}
    found: Mapping[str, Any] = json.loads(zlib.decompress(base64.b64decode(rest.strip())))
    return plain, found


FRONT = Front()
