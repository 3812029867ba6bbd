"""The programs that one service runs together: its own, and those that have joined it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vernier.operators.language.collection.app import App
from vernier.operators.planning.plan import Plan
from vernier.service.config.programs import Program, Registry, compiled
from vernier.service.config.settings import Settings
from vernier.service.errors import SparkFailed
from vernier.storage.errors import VernierError

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
        self._registry = Registry(settings.state.place.open())
        self.planning: dict[str, Any] = {"keep_sources": settings.state.keep_sources, "upserts": settings.upserts}

    def bundle(self, check: Callable[[Plan], None] = lambda plan: None) -> Bundle:
        """The service's own programs and those that have joined and that `check` accepts. The others are refused with a
        reason."""
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

    def changed(self, running: Bundle, check: Callable[[Plan], None]) -> Bundle | None:
        """The programs to run from now on, if they differ from the running ones; else None."""
        if [*self._own, *self._registry.joined()] == running.programs:
            return None
        bundle = self.bundle(check)
        return None if bundle.programs == running.programs else bundle
