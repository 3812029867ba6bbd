"""The programs that one service runs together: its own, and those that have joined it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from vernier.operators.language.collection.app import App
from vernier.operators.planning.plan import Plan
from vernier.service.config.programs import Program, Registry, compiled
from vernier.service.config.settings import Settings
from vernier.service.coordinator.opening import stays_plain, with_columns
from vernier.service.errors import SparkFailed
from vernier.storage.errors import CallerError, StorageError, VernierError
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory

_RUNNING = "running.json"


class _Running(msgspec.Struct, frozen=True):
    """The contents of `running.json`: the programs that run, and the fingerprint of their plan."""

    fingerprint: str
    programs: list[tuple[str, str]]


_log = logging.getLogger("vernier.driver")


@dataclass(frozen=True)
class Bundle:
    """Programs, with their combined app and plan."""

    programs: list[Program]
    app: App
    plan: Plan


class Programs:
    """A service's own programs and the registry of those that join. planning: the planner's options."""

    def __init__(self, settings: Settings) -> None:
        if settings.program is None:
            raise SparkFailed(problem="there is no program to run: `vernier up PROGRAM.py`, or set `program`")
        self._own = [Program.of(path) for path in (settings.program, *settings.programs)]
        self._place = settings.state.place
        self._files = self._place.open()
        self._registry = Registry(self._files)
        self._begins = settings.begins
        self.planning: dict[str, Any] = {"keep_sources": settings.state.keep_sources, "upserts": settings.upserts}

    def bundle(self, check: Callable[[Plan], None] = lambda plan: None) -> Bundle:
        """The service's own programs and those that have joined and that `check` accepts. The others are refused with a
        reason. The first call decides whether temporal filters move below joins."""
        bundle = self._bundle(check)
        if "push" not in self.planning:
            newest = self._newest() if bundle.plan.pushes else None
            self.planning["push"] = False
            plain = None if newest is None else self._bundle(check)
            if newest is not None and plain is not None and stays_plain(newest, bundle.plan, plain.plan, self._begins):
                return plain
            self.planning["push"] = True
        return bundle

    def _bundle(self, check: Callable[[Plan], None]) -> Bundle:
        bundle = Bundle(list(self._own), *compiled(self._own, **self.planning))
        for one in self._registry.joined():
            try:
                tried = Bundle([*bundle.programs, one], *compiled([*bundle.programs, one], **self.planning))
                check(tried.plan)
            except VernierError as error:
                _log.warning("program %s cannot join: %s", one.name, error)
                self._registry.refuse(one, str(error))
                continue
            bundle = tried
        return bundle

    def _newest(self) -> Manifest | None:
        """The newest commit; None also for a state that cannot be read, which the committer then reports."""
        with suppress(StorageError, CallerError):
            directory = StateDirectory(self._place)
            return with_columns(directory, directory.latest())
        return None

    def remember(self, bundle: Bundle) -> None:
        """Keep the texts of the running programs, so that a later start with others can go on with them meanwhile."""
        kept = _Running(bundle.plan.fingerprint, [(one.name, one.text) for one in bundle.programs])
        self._files.put(_RUNNING, [msgspec.json.encode(kept)])

    def running(self, fingerprint: str) -> Bundle | None:
        """The programs with this plan, if their texts are known and still have it."""
        try:
            kept = msgspec.json.decode(bytes(self._files.get(_RUNNING)), type=_Running)
            if kept.fingerprint != fingerprint:
                return None
            programs = [Program(name, text) for name, text in kept.programs]
            bundle = Bundle(programs, *compiled(programs, **self.planning))
        except (VernierError, msgspec.MsgspecError) as error:
            _log.info("the earlier programs cannot go on meanwhile: %s", error)
            return None
        return bundle if bundle.plan.fingerprint == fingerprint else None

    def refuse(self, bundle: Bundle, running: Bundle, reason: str) -> bool:
        """Set aside the programs of `bundle` that have joined and do not run. False if there are none, so that a
        service's own program is at fault."""
        running_names = {one.name for one in running.programs}
        joining = [one for one in self._registry.joined() if one.name not in running_names and one in bundle.programs]
        for one in joining:
            _log.warning("program %s cannot join: %s", one.name, reason)
            self._registry.refuse(one, reason)
        return bool(joining)

    def still(self, bundle: Bundle, newest: Manifest | None) -> bool:
        """Whether these are the programs to go on with from a commit, none of which has joined or left since. Compiles
        nothing."""
        same = [*self._own, *self._registry.joined()] == bundle.programs
        return same and newest is not None and newest.program == bundle.plan.fingerprint

    def changed(self, running: Bundle, check: Callable[[Plan], None]) -> Bundle | None:
        """The programs to run from now on, if they differ from the running ones; else None."""
        if [*self._own, *self._registry.joined()] == running.programs:
            return None
        bundle = self.bundle(check)
        return None if bundle.programs == running.programs else bundle
