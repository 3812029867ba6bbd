"""Test a program without Spark or Kafka: insert updates, advance time, and read the views' changes and rows.

    import vernier as vn
    from my_program import app

    def test_reach() -> None:
        with vn.testing.run(app) as t:
            t.insert("roots", (1,), at=1)
            t.insert("edges", (1, 2), at=5)
            t.delete("edges", (1, 2), at=8)
            t.advance(10)
            assert t.changes("reach") == [((1,), 1, +1), ((2,), 5, +1), ((2,), 8, -1)]
            assert t.rows("reach", at=7) == [(1,), (2,)]

Times are integers of nanoseconds. Answers do not depend on where epochs end or on the number of workers; `epochs=` and
`workers=` let a test verify that.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from vernier.operators.engine.local import LocalEngine
from vernier.operators.errors import BadValue, ProgramError, UnknownName, listed, meant
from vernier.operators.language.collection.app import App
from vernier.operators.planning.planner import compile_app
from vernier.operators.tables import format_changes, format_rows, parse_changes, parse_rows
from vernier.storage.updates import CLOSED, MIN_TIME, Updates

Row = tuple[Any, ...]
Change = tuple[Row, int, int]

ROWS = 1_000_000
"""The most rows, with their copies, that `Run.rows` lists."""


def run(app: App, *, epochs: Sequence[int] = (), workers: int = 1) -> Run:
    """Start a program on empty inputs, for use in a `with` statement.

    epochs: data times at which an epoch must end; an `advance` past several of them runs as many epochs. workers: how
    many workers share the data; each is a thread.
    """
    return Run(app, sorted(set(epochs)), workers)


class Run:
    """A program that runs in this process. `frontier`: all times before it are final; `advance` moves it."""

    def __init__(self, app: App, epochs: list[int], workers: int) -> None:
        self.app = app
        self.frontier = MIN_TIME
        self._epochs = epochs
        self._engine = LocalEngine(compile_app(app), workers)
        self._waiting: dict[str, list[Updates]] = {name: [] for name in app.sources}
        self._changes: dict[str, list[Change]] = {name: [] for name in app.views}

    def insert(self, source: str, row: Sequence[Any] | Mapping[str, Any], *, at: int) -> None:
        """Add one copy of a row at data time `at`. The row is a tuple in the order of the schema, or a dict."""
        self.update(source, [(row, at, 1)])

    def delete(self, source: str, row: Sequence[Any] | Mapping[str, Any], *, at: int) -> None:
        """Remove one copy of a row at data time `at`."""
        self.update(source, [(row, at, -1)])

    def update(self, source: str, updates: Iterable[tuple[Sequence[Any] | Mapping[str, Any], int, int]]) -> None:
        """Add many updates (row, time, diff), in any order. They wait until `advance` passes their times.

        An update before the frontier is refused or, in an app with on_late="advance", moved to the frontier.
        """
        self._check_source(source)
        changes = list(updates)
        times = [time for _, time, _ in changes]
        for time in times:
            if not MIN_TIME <= time < CLOSED:
                raise BadValue(
                    column="time", problem=f"{time} is not a data time: it must be in [{MIN_TIME}, {CLOSED})"
                )
            if time < self.frontier and self.app.on_late != "advance":
                raise ProgramError(problem=f"an update at {time} is late: the frontier is {self.frontier} already")
        if changes:
            words = self.app.sources[source].schema.encode_rows(
                (row for row, _, _ in changes), self._engine.heap, whole=False
            )
            times = [max(time, self.frontier) for time in times]
            self._waiting[source].append(Updates.of(words, times, [diff for _, _, diff in changes]))

    def given(self, source: str, table: str) -> None:
        """Add the updates of a table: the source's columns, then `time` and, where it is not +1, `diff`.

            t.given("edges", '''
                src  dst  time  diff
                1    2    5
                1    2    8     -1
            ''')

        Cells are separated by blanks, or by | as in Markdown. A text with blanks is in double quotes, lists and structs
        are JSON, null is `null`; nullable columns may be left out.
        """
        self._check_source(source)
        self.update(source, parse_changes(table, self.app.sources[source].schema))

    def advance(self, until: int) -> None:
        """Declare that all updates before time `until` have arrived, and bring the views up to that time."""
        if until < self.frontier:
            raise ProgramError(problem=f"time cannot go back from {self.frontier} to {until}")
        for cut in [*(cut for cut in self._epochs if self.frontier < cut < until), until]:
            self._run_epoch(cut)

    def finish(self) -> None:
        """Declare that no more updates will arrive, and bring the views to their final state."""
        self.advance(CLOSED)

    def changes(self, view: str, *, since: int = MIN_TIME, until: int = CLOSED) -> list[Change]:
        """A view's final changes (row, time, diff) with since <= time < until, consolidated, sorted by time and then
        row."""
        return [change for change in self._of(view) if since <= change[1] < until]

    def rows(self, view: str, *, at: int | None = None) -> list[Row]:
        """A view's rows that are present at data time `at` (default: the last final time), in order.

        A row of multiplicity 2 appears twice. Raises ProgramError when `at` is not final yet, or if these are more than
        a million rows with their copies.
        """
        counts = self._counts(view, at)
        copies = sum(max(count, 0) for _, count in counts.values())
        if copies > ROWS:
            raise ProgramError(
                problem=f"view {view!r} has {copies} rows, counting copies; rows() lists at most {ROWS}, "
                "but counts() has each row once with its multiplicity"
            )
        rows = sorted(counts.values(), key=lambda counted: _order(counted[0]))
        return [row for row, count in rows for _ in range(count)]

    def counts(self, view: str, *, at: int | None = None) -> dict[Row, int]:
        """The multiplicity of each row of a view at data time `at`, including negative ones, without zeros.

        Lists and structs in rows are returned as tuples, so that rows can be dict keys.
        """
        return {row: count for row, (_, count) in self._counts(view, at).items()}

    def _counts(self, view: str, at: int | None) -> dict[Row, tuple[Row, int]]:
        """The row and its multiplicity, by the row in a hashable form."""
        if at is not None and at >= self.frontier:
            final = "no time is yet" if self.frontier == MIN_TIME else f"the frontier is {self.frontier}"
            raise ProgramError(problem=f"time {at} is not final: {final}; advance past it first")
        total: dict[Row, tuple[Row, int]] = {}
        for row, time, diff in self._of(view):
            if at is None or time <= at:
                key = _fixed(row)
                total[key] = (row, diff + total.get(key, (row, 0))[1])
        return {key: counted for key, counted in total.items() if counted[1]}

    def expect(self, view: str, table: str, *, at: int | None = None) -> None:
        """Compare a view with a table, and raise AssertionError with both if they differ.

        Without `at` the table has all final changes of the view: its columns, `time` and `diff`. With `at` it has the
        rows that are present then, a row of multiplicity 2 twice. Lines may be in any order.
        """
        __tracebackhide__ = True
        changes = self._of(view)
        schema = self.app.views[view].node.schema
        if at is None:
            wanted = sorted(parse_changes(table, schema), key=lambda change: (change[1], _order(change[0])))
            same, what = wanted == changes, f"the changes of {view}"
            texts = [format_changes(one, schema) for one in (wanted, changes)]
        else:
            rows, present = sorted(parse_rows(table, schema), key=_order), self.rows(view, at=at)
            same, what = rows == present, f"the rows of {view} at {at}"
            texts = [format_rows(one, schema) for one in (rows, present)]
        if not same:
            raise AssertionError(f"{what} are not as expected\n" + _difference(*texts))

    def close(self) -> None:
        """Stop the workers."""
        self._engine.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check_source(self, source: str) -> None:
        if source not in self._waiting:
            hint = meant(source, self._waiting)
            raise UnknownName(problem=f"no source {source!r}{hint} (there are {listed(self._waiting)})")

    def _of(self, view: str) -> list[Change]:
        if view not in self._changes:
            hint = meant(view, self._changes)
            raise UnknownName(problem=f"no view {view!r}{hint} (there are {listed(self._changes)})")
        return self._changes[view]

    def _run_epoch(self, upper: int) -> None:
        inputs = {}
        for name, waiting in self._waiting.items():
            updates = Updates.concat(waiting, self.app.sources[name].schema.width)
            now = updates.time < upper
            inputs[name] = updates.take(now.nonzero()[0])
            self._waiting[name] = [updates.take((~now).nonzero()[0])]
        changes = self._engine.run_epoch(self.frontier, upper, inputs)
        self.frontier = upper
        for name, updates in changes.items():
            rows = self.app.views[name].node.schema.decode_rows(updates.rows, self._engine.heap)
            new = zip(rows, updates.time.tolist(), updates.diff.tolist(), strict=True)
            # Epochs follow one another in time, so sorting each one keeps all changes sorted.
            self._changes[name] += sorted(new, key=lambda change: (change[1], _order(change[0])))


def _fixed(value: Any) -> Any:
    """The value with tuples in place of lists and structs, so that it can be a dict key."""
    if isinstance(value, dict):
        return tuple(map(_fixed, value.values()))
    return tuple(map(_fixed, value)) if isinstance(value, (list, tuple)) else value


def _difference(wanted: str, found: str) -> str:
    """Both tables: lines that are missing begin with -, lines that were not expected with +."""
    before, after = wanted.splitlines(), found.splitlines()
    lines = list(difflib.unified_diff(before, after, n=len(before), lineterm=""))[3:]
    return "\n".join(f"{line[0]} {line[1:]}" for line in lines)


def _order(value: Any) -> Any:
    """A sort key with nulls before values and NaN after them, as in Spark, at every level of the row."""
    if isinstance(value, (dict, list, tuple)):
        parts = value.values() if isinstance(value, dict) else value
        return (True, False, tuple(map(_order, parts)))
    return (value is not None, value != value, 0 if value is None or value != value else value)
