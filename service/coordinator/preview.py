"""What a change of programs would do to a state, without doing it: for people and for CI.

Reads the newest manifest and compiles the programs; writes nothing and takes no lock, so the service may run meanwhile.
Cost: compiling, and O(arrangements).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vernier.operators.engine.migrate import Held, Migration, shown, try_migration
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.former_columns import described
from vernier.operators.planning.plan import Plan, upstream
from vernier.service.config.programs import Program, Registry, compiled
from vernier.service.config.settings import Settings
from vernier.service.coordinator.bundle import Programs
from vernier.service.coordinator.opening import PLAN_FILE, check_app, held_in, stays_plain, with_columns
from vernier.service.coordinator.registry_check import verdicts
from vernier.service.ingest.former import former_columns, with_former
from vernier.storage.errors import FileMissing
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory

KEPT, RENAMED, CHANGED, FILLED, LOST, REFUSED = "kept", "renamed", "changed", "filled", "lost", "refused"
SCHEMA = "schema"
ROWS_A_SECOND = 200_000
"""A rough figure for how many rows a worker fills in a second: groups over a million rows took from 75,000 (`min` and
`max`) to 2,000,000 (counts and sums) for each second of CPU time, on an AMD EPYC with other work beside it."""


@dataclass(frozen=True)
class Line:
    """What happens to one view or arrangement. fate: one of the words above; about: why, or from what."""

    fate: str
    kind: str
    name: str
    columns: tuple[str, ...] = ()
    about: str = ""


@dataclass(frozen=True)
class Preview:
    """What happens to all of them. epoch: the newest commit. rows, seconds: what there is to fill, and about how long
    that takes beside the epochs."""

    epoch: int
    lines: tuple[Line, ...]
    rows: int
    seconds: float

    @property
    def unfit(self) -> bool:
        """Whether a schema registry is the only one to refuse the programs."""
        return {line.kind for line in self.lines if line.fate == REFUSED} == {SCHEMA}

    @property
    def refused(self) -> bool:
        """Whether the state, or a schema registry, refuses the programs."""
        return any(line.fate == REFUSED for line in self.lines)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        listed = [
            {"fate": one.fate, one.kind: one.name, "columns": list(one.columns), "about": one.about}
            for one in self.lines
        ]
        return {
            "epoch": self.epoch,
            "refused": self.refused,
            "rows": self.rows,
            "seconds": self.seconds,
            "changes": listed,
        }


def preview(settings: Settings) -> Preview:
    """What would happen if a service with these settings went on from its state. Raises ProgramErrors, WrongState,
    StorageErrors."""
    programs = [Program.of(path) for path in (settings.program, *settings.programs) if path is not None]
    directory = StateDirectory(settings.state.place)
    joined = Registry(directory.blob).joined()
    options = Programs(settings).planning
    _, plan = compiled([*programs, *joined], **options)
    newest = with_columns(directory, directory.latest())
    if newest is not None and plan.pushes:
        _, plain = compiled([*programs, *joined], **options, push=False)
        plan = plain if stays_plain(newest, plan, plain, settings.begins) else plan
    sources = with_former(plan.sources, former_columns(newest, plan.sources))
    schemas = list(_schemas(settings, sources))
    if newest is None:
        lines = [Line(FILLED, "view", name, _columns(view.schema.to_json())) for name, view in plan.views.items()]
        return Preview(0, (*schemas, *lines), 0, 0.0)
    check_app(directory, newest, plan)
    held = held_in(newest, plan, settings.begins)
    migration, refused = try_migration(plan, held)
    rows = _rows(newest, migration)
    labels = _labels(directory)
    lines = [
        *schemas,
        *_sources(plan, held),
        *_views(plan, newest, migration, refused),
        *_arrangements(plan, newest, migration, refused, labels),
    ]
    return Preview(newest.epoch, tuple(lines), rows, round(rows / newest.workers / ROWS_A_SECOND, 1))


def _rows(newest: Manifest, migration: Migration) -> int:
    """The rows that all workers have to read."""
    traces = [newest.traces[given.trace] for given in migration.given.values()]
    return sum(ref.updates for trace in traces for shard in trace.shards for ref in shard)


def _schemas(settings: Settings, sources: Mapping[str, RowType]) -> Iterator[Line]:
    """What schema registries say about the columns."""
    for one in verdicts(settings, sources):
        yield Line((CHANGED if one.asked else KEPT) if one.fits else REFUSED, SCHEMA, one.subject, (), one.about)


def _sources(plan: Plan, held: Held) -> Iterator[Line]:
    """The sources whose columns change."""
    refused = plan.evolve(held.columns).refused
    for name, row in plan.sources.items():
        was = held.columns.get(name, row)
        if name in refused:
            yield Line(REFUSED, "source", name, _columns(row.to_json()), refused[name])
        elif was != row:
            yield Line(CHANGED, "source", name, _columns(row.to_json()), described(was, row))


def _views(plan: Plan, newest: Manifest, migration: Migration, refused: Mapping[str, str]) -> Iterator[Line]:
    was = {entry.trace: name for name, entry in newest.views.items()}
    taken = set()
    for name, view in plan.views.items():
        columns = _columns(view.schema.to_json())
        old = newest.views.get(name)
        same = migration.renamed.get(view.trace)
        if view.trace in migration.kept:
            yield Line(KEPT, "view", name, columns)
        elif same is not None:
            taken.add(was.get(same, ""))
            if was.get(same) == name:
                yield Line(KEPT, "view", name, columns, "" if old is None else _renamed(_columns(old.schema), columns))
                continue
            yield Line(RENAMED, "view", name, columns, f"was {was[same]}" if same in was else "from an arrangement")
        elif view.trace in refused:
            yield Line(REFUSED, "view", name, columns, refused[view.trace])
        else:
            below = _refused_below(plan, view.trace, refused)
            if below is not None:
                yield Line(REFUSED, "view", name, columns, below)
                continue
            began = "new" if old is None else _difference(_columns(old.schema), columns)
            kept = plan.arrangements[view.trace].since(newest.upper)
            past = newest.upper - 1 - max(kept, migration.since[view.trace])
            history = f"history of {past / 1e9:g} s" if past > 0 else "history from the change on"
            yield Line(FILLED, "view", name, columns, f"{began}; {history}")
    for name, entry in newest.views.items():
        if name not in plan.views and name not in taken:
            yield Line(LOST, "view", name, _columns(entry.schema), "no program has it any more")


def _arrangements(
    plan: Plan, newest: Manifest, migration: Migration, refused: Mapping[str, str], labels: Mapping[str, str]
) -> Iterator[Line]:
    views = {view.trace for view in plan.views.values()} | {entry.trace for entry in newest.views.values()}
    sources = {given.trace for given in migration.given.values()}
    for name in (*migration.kept, *migration.renamed, *migration.fresh):
        if name in views:
            continue
        label = shown(plan, [name])
        if name in refused:
            yield Line(REFUSED, "arrangement", label, (), refused[name])
        elif name in migration.kept:
            yield Line(KEPT, "arrangement", label, (), "read to fill others" if name in sources else "")
        elif name in migration.renamed:
            yield Line(KEPT if labels.get(migration.renamed[name]) == label else RENAMED, "arrangement", label)
        else:
            yield Line(FILLED, "arrangement", label)
    for name in migration.dropped:
        if name not in views:
            about = "read to fill others, then dropped" if name in sources else "no program needs it any more"
            yield Line(LOST, "arrangement", labels.get(name, name), (), about)


def _refused_below(plan: Plan, trace: str, refused: Mapping[str, str]) -> str | None:
    """Why a view cannot be answered although its own trace can be filled: something that it depends on cannot."""
    ids = [op.id for op in plan.ops if trace in op.traces]
    below = upstream(plan, ids)
    names = (name for op in plan.ops if op.id in below for name in (*op.traces, *op.queues))
    return next((refused[name] for name in names if name in refused), None)


def _difference(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    """How the columns of a view change."""
    added, gone = [one for one in new if one not in old], [one for one in old if one not in new]
    said = [*(f"+ {one}" for one in added), *(f"- {one}" for one in gone)]
    return f"its meaning changes ({', '.join(said)})" if said else "its meaning changes"


def _renamed(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    """What readers notice of a view that keeps its rows: columns with other names."""
    return "" if old == new else f"its columns were {', '.join(old)}"


def _columns(schema: list[Any]) -> tuple[str, ...]:
    return tuple(f"{name} {spelled}" for name, spelled in schema)


def _labels(directory: StateDirectory) -> dict[str, str]:
    """What people call the arrangements of the running plan."""
    with contextlib.suppress(FileMissing, json.JSONDecodeError):
        plan = json.loads(bytes(directory.blob.get(PLAN_FILE)))
        return {one["trace"]: one["label"] for one in plan["arrangements"]}
    return {}
