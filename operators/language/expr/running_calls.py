"""Calls: which function of the program runs right now in which thread, and on what, for whoever watches from outside.

A function of the program may never come back, and then nothing else in its thread says so. So who calls one notes it
here first: one store for a call of columns, one for each row where a function is called by row. Nothing is measured:
who watches sees that it is still the same call, on the same input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Call:
    """A function of the program at work. operator, where, function: as in UserCodeFailed. given: its input, which
    changes with each row where it is called by row; shown: the input as a person reads it."""

    __slots__ = ("function", "given", "operator", "shown", "where")

    def __init__(self, operator: object, where: object, function: str, shown: Callable[[Any], str] = repr) -> None:
        self.operator, self.where, self.function, self.shown = operator, where, function, shown
        self.given: Any = None

    def describe(self) -> str:
        """Names the function and a sample of its input."""
        try:
            sample = self.shown(self.given)
        except Exception as error:  # the function has it right now, and may do with it what it likes
            sample = f"something that cannot be shown ({type(error).__name__})"
        if len(sample) > _LONGEST:
            sample = f"{sample[:_LONGEST]}…"
        return f"{self.operator} at {self.where}: the function {self.function}; its input is, for example, {sample}"


_LONGEST = 300
"""Characters of a sample."""

RUNNING: dict[int, Call] = {}
"""By thread."""


@contextmanager
def running(call: Call, given: Any = None) -> Iterator[Call]:
    """The thread is in this call."""
    call.given = given
    me = threading.get_ident()
    RUNNING[me] = call
    try:
        yield call
    finally:
        RUNNING.pop(me, None)
        call.given = None
