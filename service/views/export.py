"""Writes a view's rows as of a data time, or its changes in an interval, as Parquet.

The way of the data: the view is read in parts (part.py), each of about a million updates, so memory holds one part
whatever the view's size; the changes of a part are in the order of time, then row. The result appears as a whole: what
is written lies beside it until it is complete. A part that is read from a later epoch than the others is the same,
because the data times were final.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vernier.service.codec.plain_times import plain_times
from vernier.service.views.part import ViewPart
from vernier.service.views.view import Compacted, NotYetFinal, UnknownView
from vernier.service.views.view_type import ViewType
from vernier.storage.errors import CallerError
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME

PART_UPDATES = 1_000_000


class CannotExport(CallerError):
    """The output cannot be written at its path."""

    message = "cannot write {out}: {reason}"
    out: str
    reason: str


@dataclass(frozen=True)
class Exported:
    """What an export has written: rows, or changes with since <= time < until."""

    view: str
    rows: int
    files: int
    bytes: int
    as_of: int | None
    since: int
    until: int


@dataclass(frozen=True)
class _Plan:
    """What to read of a view: rows as of a time if `as_of` is given, else changes; in `of` parts of one epoch."""

    view: ViewType
    as_of: int | None
    since: int
    until: int
    of: int
    epoch: int


def export(
    state: StateDirectory,
    view: str,
    out: Path,
    *,
    as_of: int | None = None,
    since: int | None = None,
    until: int | None = None,
    show: Callable[[int, int], None] = lambda done, all_: None,
) -> Exported:
    """Write a view's rows as of a time, or, by default, its changes with since <= time < until: from the first that is
    kept to the last that is final.

    out: a file if its name ends in .parquet, else a folder with a file for each part; it must not exist. Columns are
    the view's, `_time` for changes, and `_diff`; times are int64 nanoseconds. show: called with the parts done and all
    of them. Raises UnknownView, Compacted, NotYetFinal, CannotExport, StorageErrors.
    """
    plan = _plan(state, view, as_of, since, until)
    if out.exists():
        raise CannotExport(out=str(out), reason="it exists already; remove it, or choose another name")
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        rows, files = _write(state, plan, partial, out.suffix == ".parquet", show)
        size = sum(one.stat().st_size for one in ([partial] if partial.is_file() else partial.iterdir()))
        partial.rename(out)
    except OSError as error:
        raise CannotExport(out=str(out), reason=(error.strerror or str(error)).lower()) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        partial.unlink(missing_ok=True)
    return Exported(view, rows, files, size, plan.as_of, plan.since, plan.until)


def _plan(state: StateDirectory, name: str, as_of: int | None, since: int | None, until: int | None) -> _Plan:
    with state.lease() as lease:
        manifest = lease.manifest
        entry = manifest.views.get(name)
        if entry is None:
            raise UnknownView.of(name, list(manifest.views))
        updates = sum(ref.updates for refs in manifest.traces[entry.trace].shards for ref in refs)
        compacted = entry.since > MIN_TIME
        first = entry.since + 1 if compacted else MIN_TIME
        last = manifest.upper if until is None else until
        lower = first if since is None else since
        final = last - 1 if as_of is None else as_of
        if final >= manifest.upper:
            raise NotYetFinal(view=name, as_of=final, frontier=manifest.upper)
        if as_of is None and lower < first:
            raise Compacted(view=name, as_of=lower, since=first)
        if as_of is not None and compacted and as_of < entry.since:
            raise Compacted(view=name, as_of=as_of, since=entry.since)
        view, of = ViewType.of(name, entry), -(-updates // PART_UPDATES) or 1
        return _Plan(view, as_of, lower, last, of, lease.epoch)


def _write(
    state: StateDirectory, plan: _Plan, path: Path, single: bool, show: Callable[[int, int], None]
) -> tuple[int, int]:
    """Write all parts; returns the number of rows and of files."""
    rows = 0
    writer: pq.ParquetWriter | None = None
    if not single:
        path.mkdir(parents=True)
    try:
        for index in range(plan.of):
            batch = _read(state, plan, index)
            rows += batch.num_rows
            if writer is None:
                file = path if single else path / f"part-{index:05d}.parquet"
                schema = batch.schema.with_metadata({"vernier.view": plan.view.name})
                writer = pq.ParquetWriter(file, schema, compression="zstd")
            writer.write_batch(batch)
            if not single:
                writer.close()
                writer = None
            show(index + 1, plan.of)
    finally:
        if writer is not None:
            writer.close()
    return rows, 1 if single else plan.of


def _read(state: StateDirectory, plan: _Plan, index: int) -> pa.RecordBatch:
    with ViewPart(state, plan.view.name, index, plan.of, epoch=plan.epoch, meaning=plan.view.meaning) as part:
        codec = part.codec()
        if plan.as_of is not None:
            run = part.rows(plan.as_of).flat()
            return plain_times(codec.arrow(run.rows, run.counts, counted=True))
        changes = part.changes(plan.since, plan.until)
        rows = np.ascontiguousarray(changes.rows)
        return plain_times(codec.arrow(rows, changes.diff, counted=True, times=changes.time))
