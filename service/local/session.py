"""A program in this process, for notebooks: insert, advance, and see what changed."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from vernier.operators import testing
from vernier.operators.errors import WrongType, listed
from vernier.operators.language.collection.app import App, load_program
from vernier.operators.language.types.scalars import Float64, Int64
from vernier.service.codec.instants import parse_instant
from vernier.service.files.updatefiles import read_updates
from vernier.service.local.chart import Chart
from vernier.service.local.table import Table, instant, instants
from vernier.service.toolchain.first_use import have_kernels
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import CLOSED, MIN_TIME

MOST_LINES = 8
"""How many lines a chart has; those of the greatest values."""

Row = Sequence[Any] | Mapping[str, Any]
Instant = int | str
"""Nanoseconds since 1970, or RFC 3339."""


def local(program: App | str | Path, *, workers: int = 1) -> Session:
    """Run a program in this process, for a notebook or Python's prompt, on empty inputs.

        live = vn.local(app)
        live.insert("edges", (1, 2), at=5)
        live.advance(10)          # what changed, as a table
        live.rows("reach")
        live.chart("reach")

    program: an App, or the path of a program. workers: how many share the data; each is a thread.
    """
    have_kernels(lambda line: print(line, file=sys.stderr))
    app = program if isinstance(program, App) else load_program(Path(program))
    return Session(app, workers)


class Session:
    """A program that runs in this process. Notebooks show it as a table of its sources and views."""

    def __init__(self, app: App, workers: int) -> None:
        self.app = app
        self._run = testing.run(app, workers=workers)
        self._last = MIN_TIME
        self._inserted = dict.fromkeys(app.sources, 0)

    @property
    def frontier(self) -> int:
        """All times before it are final; `advance` moves it."""
        return self._run.frontier

    def insert(self, source: str, *rows: Row, at: Instant | None = None) -> None:
        """Add one copy of each row at data time `at`, by default the frontier (0 before the first `advance`)."""
        self.update(source, [(row, self._time(at), 1) for row in rows])

    def delete(self, source: str, *rows: Row, at: Instant | None = None) -> None:
        """Remove one copy of each row at data time `at`, by default the frontier."""
        self.update(source, [(row, self._time(at), -1) for row in rows])

    def update(self, source: str, updates: Iterable[tuple[Row, Instant, int]]) -> None:
        """Add many updates (row, time, diff), in any order. They wait until `advance` passes their times."""
        changes = [(row, parse_instant(time), diff) for row, time, diff in updates]
        self._run.update(source, changes)
        self._inserted[source] += len(changes)
        self._last = max([self._last, *(time for _, time, _ in changes)])

    def load(self, *files: str | Path) -> None:
        """Add the updates of update files, as `vernier replay` reads them."""
        heap = Heap()
        schemas = {name: source.schema for name, source in self.app.sources.items()}
        for name, updates in read_updates([Path(file) for file in files], schemas, heap=heap).items():
            rows = schemas[name].decode_rows(updates.rows, heap)
            self.update(name, zip(rows, updates.time.tolist(), updates.diff.tolist(), strict=True))

    def advance(self, until: Instant | None = None) -> Table:
        """Declare all times before `until` final, by default all that were inserted; returns what changed.

        The table has the changes of every view since the last `advance`: view, row, time and diff.
        """
        before = self.frontier
        self._run.advance(max(self._last, self._now()) + 1 if until is None else parse_instant(until))
        new = [
            (view, row, time, diff)
            for view in self.app.views
            for row, time, diff in self._run.changes(view, since=before)
        ]
        return Table(["view", "row", "time", "diff"], sorted(new, key=lambda change: change[2]), ["time"])

    def finish(self) -> Table:
        """Declare that no more updates will arrive; returns what changed."""
        return self.advance(CLOSED)

    def changes(self, view: str, *, since: Instant = MIN_TIME, until: Instant = CLOSED) -> Table:
        """A view's final changes with since <= time < until: its columns, time and diff, in the order of time."""
        found = self._run.changes(view, since=parse_instant(since), until=parse_instant(until))
        schema = self.app.views[view].node.schema
        rows = ((*row, time, diff) for row, time, diff in found)
        return Table([*schema.names, "time", "diff"], rows, [*instants(schema), "time"])

    def rows(self, view: str, *, at: Instant | None = None) -> Table:
        """A view's rows at data time `at`, by default the last final one; a row of multiplicity 2 twice."""
        found = self._run.rows(view, at=None if at is None else parse_instant(at))
        schema = self.app.views[view].node.schema
        return Table(schema.names, found, instants(schema))

    def chart(self, view: str, value: str | None = None, *, by: str | None = None) -> Chart:
        """Draw a view over data time: the number of its rows, or the sum of the column `value`.

        by: a column, each of whose values gets a line; the eight with the greatest values are drawn.
        """
        changes = self._run.changes(view)
        schema = self.app.views[view].node.schema
        if value is not None and not isinstance(schema.field(value).type, (Int64, Float64)):
            numbers = [field.name for field in schema.fields if isinstance(field.type, (Int64, Float64))]
            raise WrongType(
                problem=f"a chart adds numbers, and column {value!r} has none (there are {listed(numbers)})"
            )
        weigh = None if value is None else schema.names.index(schema.field(value).name)
        split = None if by is None else schema.names.index(schema.field(by).name)
        totals: dict[str, float] = defaultdict(float)
        lines: dict[str, dict[int, float]] = defaultdict(dict)
        for row, time, diff in changes:
            name = "" if split is None else str(row[split])
            totals[name] += diff * (1 if weigh is None else row[weigh] or 0)
            lines[name][time] = totals[name]
        names = sorted(lines, key=lambda name: -max(lines[name].values()))[:MOST_LINES]
        title = f"{'rows' if value is None else value} of {view}" + ("" if by is None else f" by {by}")
        end = self._last if self.frontier == CLOSED else self.frontier
        return Chart(title, {name: list(lines[name].items()) for name in names}, end)

    def close(self) -> None:
        """Stop the workers."""
        self._run.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _now(self) -> int:
        return 0 if self.frontier == MIN_TIME else self.frontier

    def _time(self, at: Instant | None) -> int:
        return self._now() if at is None else parse_instant(at)

    def _summary(self) -> Table:
        parts: list[tuple[Any, ...]] = [
            ("source", name, str(source.schema), f"{self._inserted[name]} updates")
            for name, source in self.app.sources.items()
        ]
        parts += [
            ("view", name, str(view.node.schema), f"{len(self._run.rows(name))} rows")
            for name, view in self.app.views.items()
        ]
        return Table(["", self.app.name, "columns", f"final before {instant(self.frontier)}"], parts)

    def __repr__(self) -> str:
        return repr(self._summary())

    def _repr_html_(self) -> str:
        return self._summary()._repr_html_()
