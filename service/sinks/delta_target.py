"""A view's changes as a Delta table, through the package deltalake.

The way of the data: a turn's changes are one commit of the table, which appends them with `_time` and `_diff`. The
commit carries the position as transaction versions of the Delta protocol: the frontier, the view's meaning, the number
of changes. So position and changes are one atomic entry of Delta's log. Failure in the middle: files without a commit,
which Delta's readers never see and its vacuum removes. Two writers: a commit is never tried again on a newer version of
the table, so the one that lost reads the position anew and continues behind the other. A snapshot that replaces the
table's rows overwrites the table; Delta's history keeps the old rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from vernier.service.config.streams import Sink
from vernier.service.sinks.position import Position
from vernier.service.sinks.table import change_batches
from vernier.service.sinks.target import Steps, TargetFailed
from vernier.storage.errors import CallerError
from vernier.storage.state.state import StateDirectory

try:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import DeltaError, TableNotFoundError
except ImportError as missing:

    class NoDelta(CallerError):
        """The package is missing."""

        message = "a sink to delta needs the package deltalake: pip install 'vernier[delta]'"

    raise NoDelta() from missing

_SIGN = 1 << 63


class Delta:
    """A Delta table. path: a folder or a URI; name: whose position it is."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name
        self._table: DeltaTable | None = None
        self._position: Position | None = None

    def position(self) -> Position | None:
        """The position in the newest version of the table. Raises TargetFailed."""
        try:
            self._table = DeltaTable(self._path)
            versions = [self._table.transaction_version(one) for one in self._ids()]
        except TableNotFoundError:
            self._table = None
            return None
        except (DeltaError, OSError) as error:
            raise self._failed(error) from error
        frontier, meaning, changes = versions
        self._position = None
        if frontier is not None and meaning is not None:
            counts = {"updates": changes or 0}
            self._position = Position(self._path, "delta", frontier, f"{meaning % (1 << 64):016x}", counts)
        return self._position

    def write(self, steps: Steps) -> Position:
        """Commit the steps' changes. Raises TargetFailed."""
        begins = max((number for number, step in enumerate(steps) if step.restarts), default=None)
        wanted = steps if begins is None else steps[begins:]
        last = steps[-1]
        batches = [one for one in change_batches(wanted) if one.num_rows]
        before = 0 if self._position is None else self._position.messages["updates"]
        count = before + sum(one.num_rows for one in batches)
        position = Position(self._path, "delta", last.upper, last.view.meaning, {"updates": count}, last.view.name)
        if batches or begins is not None or self._table is None:
            self._commit(batches or list(change_batches(wanted))[:1], position, begins is not None)
        self._position = position
        return position

    def close(self) -> None:
        """Forget the table's version."""
        self._table = None

    # --- inside -------------------------------------------------------------------------------------------------------

    def _commit(self, batches: Sequence[pa.RecordBatch], position: Position, overwrite: bool) -> None:
        meaning = int(position.meaning, 16)
        versions = (
            position.frontier,
            meaning - 2 * _SIGN if meaning >= _SIGN else meaning,
            position.messages["updates"],
        )
        transactions = [Transaction(one, version) for one, version in zip(self._ids(), versions, strict=True)]
        about: dict[str, Any] = {"mode": "overwrite", "schema_mode": "overwrite"} if overwrite else {"mode": "append"}
        try:
            if self._table is None:
                self._table = DeltaTable.create(self._path, pa.Table.from_batches(batches).schema, mode="error")
            write_deltalake(
                self._table,
                pa.Table.from_batches(batches),
                commit_properties=CommitProperties(max_commit_retries=0, app_transactions=transactions),
                **about,
            )
        except (DeltaError, OSError) as error:
            raise self._failed(error) from error

    def _ids(self) -> tuple[str, str, str]:
        """The names of the transaction versions."""
        return f"{self._name}:frontier", f"{self._name}:meaning", f"{self._name}:changes"

    def _failed(self, error: BaseException) -> TargetFailed:
        return TargetFailed(place=self._path, problem=str(error).splitlines()[0])


def open_table(name: str, given: Sink, app: str, state: StateDirectory) -> Delta:
    """The table of a sink."""
    assert given.path is not None
    return Delta(given.path, f"vernier:{app}.{name}")
