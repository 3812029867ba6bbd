"""Opening a state: its lock, and whether a plan can continue from what it contains."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable

import msgspec

from vernier.operators.engine.migrate import Held, plan_migration, try_migration
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.plan import Plan, Whole
from vernier.service.errors import WrongState
from vernier.storage.errors import FileMissing, StateInUse
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory

PLAN_FILE = "plan.json"

_LOOK_AGAIN_MS = 250


def _begins_empty(_: str) -> bool:
    return False


_log = logging.getLogger("vernier.epochs")


def acquire(directory: StateDirectory) -> Manifest | None:
    """Acquire the directory; returns its newest commit. As long as the holder of a lock in an object store is silent,
    wait until it counts as dead. Raises StateInUse, NoIntactManifest and other StorageErrors."""
    least: int | None = None
    while True:
        try:
            return directory.acquire()
        except StateInUse as error:
            left = error.left_ms
            if left is None or (least is not None and left >= least):
                raise
            least = left
            time.sleep(min(left, _LOOK_AGAIN_MS) / 1000)


def check_app(directory: StateDirectory, newest: Manifest, plan: Plan) -> None:
    """Raises WrongState if the state is that of another app."""
    if newest.app != plan.app:
        found, wanted = f"app {newest.app!r}", f"app {plan.app!r}"
        raise WrongState(path=directory.path, found=found, wanted=wanted)


def check_plan(newest: Manifest | None, plan: Plan, begins: Callable[[str], bool] = _begins_empty) -> None:
    """Check that a plan can continue from a commit. begins: whether a source begins with a snapshot. Raises
    NeedsHistory."""
    if newest is not None and newest.program != plan.fingerprint:
        migration = plan_migration(plan, held_in(newest, plan, begins))
        _log.info(
            "kept: %d arrangements, new: %s, dropped: %s", len(migration.kept), migration.fresh, migration.dropped
        )


def stays_plain(newest: Manifest, pushed: Plan, plain: Plan, begins: Callable[[str], bool] = _begins_empty) -> bool:
    """Whether a service goes on from a commit by its programs' plan that moves no temporal filters below joins.

    A state of a release that moved none has other arrangements, and its views other traces. It goes on as it is as long
    as more of it can be kept so; a view would lose its history otherwise. pushed, plain: the plans to choose from.
    """
    if newest.program == pushed.fingerprint:
        return False
    found = [
        (_continues(newest, plan, begins), len(plan.arrangements.keys() & newest.traces)) for plan in (pushed, plain)
    ]
    return found[1] > found[0]


def _continues(newest: Manifest, plan: Plan, begins: Callable[[str], bool]) -> bool:
    return not try_migration(plan, held_in(newest, plan, begins))[1]


def held_in(newest: Manifest, plan: Plan, begins: Callable[[str], bool] = _begins_empty) -> Held:
    """What the state of a commit has for a plan. begins: whether a source begins with a snapshot."""
    since = newest.sinces()
    return Held(
        newest.upper,
        {name: since.get(name, newest.upper) for name in newest.traces},
        frozenset(name for name in newest.held if ":" in name),  # source names contain no colon
        {name: Whole(one.whole.of, tuple(one.whole.words)) for name, one in newest.traces.items() if one.whole},
        {name: one.key_width for name, one in newest.traces.items()},
        frozenset(newest.sources),
        {name: RowType.from_json(one.columns) for name, one in newest.sources.items() if one.columns},
        frozenset(name for name in plan.sources if name not in newest.sources and begins(name)),
    )


def with_columns(directory: StateDirectory, newest: Manifest | None) -> Manifest | None:
    """The commit with the columns of its sources, which older releases wrote only into the plan's file."""
    if newest is None or all(one.columns for one in newest.sources.values()):
        return newest
    with contextlib.suppress(FileMissing, json.JSONDecodeError, KeyError):
        plan = json.loads(bytes(directory.blob.get(PLAN_FILE)))
        if plan["fingerprint"] == newest.program:
            columns: dict[str, list[list[str]]] = plan["sources"]
            entries = {
                name: one if one.columns else msgspec.structs.replace(one, columns=columns.get(name, []))
                for name, one in newest.sources.items()
            }
            return msgspec.structs.replace(newest, sources=entries)
    return newest


def show_plan(directory: StateDirectory, plan: Plan) -> None:
    """Write a plan to a file in the state directory, where readers find it."""
    directory.blob.put(PLAN_FILE, [json.dumps(plan.explain()).encode()])
