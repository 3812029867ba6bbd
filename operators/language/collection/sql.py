"""`app.sql` and programs in SQL: the front end lies above the language, and `vernier` itself provides it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vernier.operators.language.collection.app import App
    from vernier.operators.language.collection.collection import Collection

MARK = "-- vernier plans: "
"""The line of a program's text behind which its plans follow, when it travels to another process."""


class Front(Protocol):
    """Builds programs and queries in SQL."""

    def program(self, text: str, file: str) -> App:
        """The app of a program's text. Raises ProgramError."""
        ...

    def packed(self, text: str, file: str) -> str:
        """The text of a program with its plans, so that other processes build it without Java. Raises ProgramError."""
        ...

    def query(self, app: App, text: str, collections: Mapping[str, Collection]) -> Collection:
        """The collection of a query over an app's sources and views and these collections. Raises ProgramError."""
        ...


def front() -> Front:
    """The front end, which `vernier` loads with the first SQL."""
    found: Front = import_module("vernier")._sql_front()
    return found


def is_sql(name: str, text: str) -> bool:
    """Whether a program is in SQL, by the name of its file or the plans that it brings."""
    return name.lower().endswith(".sql") or MARK in text
