"""Locations in the user's program: file, line and the text of the line.

Errors about a program and the plan's explanations name the user's line, never ours. `here()` walks up the stack out of
Vernier's own modules and takes the first frame outside them.
"""

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_ROOT = Path(__file__).absolute().parents[1]
_FACADE = ("vernier.py", "__init__.py", "__main__.py")
_OURS = (
    *(f"{_ROOT / part}/" for part in ("operators", "storage", "service")),
    *(str(_ROOT / name) for name in _FACADE),
)


@dataclass(frozen=True)
class Location:
    """A line of a user's program: `line` counts from 1, `text` is the stripped source line ("" when it is unknown).
    column: from 1, in programs whose parts have one (SQL), else 0."""

    file: str
    line: int
    text: str
    column: int = 0

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}" if self.line else self.file


NOWHERE = Location("<unknown>", 0, "")


_given: ContextVar[Location | None] = ContextVar("location", default=None)


@contextmanager
def located(where: Location) -> Iterator[None]:
    """A context in which the program's line is this one: for programs that do not run as Python code."""
    token = _given.set(where)
    try:
        yield
    finally:
        _given.reset(token)


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs Vernier's own code. Generated code (dataclasses) belongs to the module that holds it."""
    return is_ours_file(str(frame.f_globals.get("__file__") or ""))


def is_ours_file(file: str) -> bool:
    """Whether a file is one of Vernier's own modules."""
    return file.startswith(_OURS)


def here() -> Location:
    """The innermost line of the user's program on the stack (O(depth of the stack)); NOWHERE when there is none."""
    given = _given.get()
    if given is not None:
        return given
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_ours(frame):
            return at_frame(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return NOWHERE


def at_frame(file: str, line: int) -> Location:
    """The location of a line, given file name and number, with its text when the source can be found."""
    return Location(file, line, linecache.getline(file, line).strip())
