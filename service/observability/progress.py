"""Shows people the progress of long work."""

from __future__ import annotations

import os
import sys
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as Remaining
from rich.text import Text


class Show(Protocol):
    """Receives the progress of a long piece of work."""

    def step(self, what: str) -> None:
        """A step of unknown size begins."""

    def done(self, what: str, count: int, total: int | None, unit: str) -> None:
        """`count` units of a step are done. total: None if unknown."""

    def clear(self) -> None:
        """Show nothing, because the work is over or other output follows."""


class Quiet:
    """Shows nothing."""

    def step(self, what: str) -> None:
        """See Show."""

    def done(self, what: str, count: int, total: int | None, unit: str) -> None:
        """See Show."""

    def clear(self) -> None:
        """See Show."""


class _Amount(ProgressColumn):
    def render(self, task: Task) -> Text:
        unit = task.fields["unit"]
        return Text(f"{task.completed:,.0f} {unit}" if unit else "")


class Bar:
    """A line at the bottom of the terminal, on standard error, that is erased at the end."""

    def __init__(self) -> None:
        # Uses its own descriptor, because standard error may be redirected while a noisy program starts.
        self._console = Console(file=os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8"))
        self._progress: Progress | None = None
        self._what = ""
        self._task = TaskID(0)

    def step(self, what: str) -> None:
        """See Show."""
        self._turn_to(what, None, "")

    def done(self, what: str, count: int, total: int | None, unit: str) -> None:
        """See Show."""
        self._turn_to(what, total, unit).update(self._task, completed=count)

    def clear(self) -> None:
        """See Show."""
        progress, self._progress, self._what = self._progress, None, ""
        if progress is not None:
            progress.stop()

    def _turn_to(self, what: str, total: int | None, unit: str) -> Progress:
        if self._progress is None:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _Amount(), Remaining())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.start()
        if what != self._what:
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._task, self._what = self._progress.add_task(what, total=total, unit=unit), what
        return self._progress


def on_terminal() -> Show:
    """A bar if standard error is a terminal, otherwise nothing."""
    return Bar() if sys.stderr.isatty() else Quiet()
