"""The kinds of targets besides output topics, by the name that `sinks.NAME.to` has. A new kind gets its line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vernier.service.config.streams import Sink
from vernier.service.sinks.target import Alone, Destination, Target
from vernier.storage.state.state import StateDirectory


@dataclass(frozen=True)
class Kind:
    """A kind of target. module, function: what opens a place; they are loaded at first use, because some need packages
    that are extras. place: how the place is called in messages. seconds: from one turn to the next, by default. most:
    about how many changes go out in one turn.
    """

    module: str
    function: str
    place: Callable[[str, Sink], str]
    seconds: float = 0.0
    most: int = 50_000

    def open(self, name: str, given: Sink, app: str, state: StateDirectory) -> Destination:
        """The place of a sink. Raises TargetFailed."""
        opened: Any = getattr(import_module(f"vernier.service.sinks.{self.module}"), self.function)
        place: Destination = opened(name, given, app, state)
        return place


def _path(name: str, given: Sink) -> str:
    return given.path or ""


KINDS = {
    "parquet": Kind("parquet_target", "open_folder", _path, 10.0, 1_000_000),
    "delta": Kind("delta_target", "open_table", _path, 10.0, 1_000_000),
    "sql": Kind("sql_target", "open_table", lambda name, given: given.table or given.view or name),
    "webhook": Kind("webhook_target", "open_address", lambda name, given: given.url or str(given.url_file)),
}


def open_target(name: str, given: Sink, app: str, state: StateDirectory) -> Target:
    """The target of a sink that is no output topic."""
    return Alone(name, KINDS[given.to].open(name, given, app, state))
