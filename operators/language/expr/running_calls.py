"""Calls in progress: which function of the program each thread is running, and on what input, for monitors outside.

A function of the program may never return, and then nothing else in its thread can report it. The caller therefore
records the call here first: one store for a call on columns, one per row where a function is called row by row. Nothing
is timed; a monitor sees that it is still the same call, on the same input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Call:
    """A call of a function of the program. operator, where, function: as in UserCodeFailed. given: its input, which
    changes with each row where the function is called row by row; shown: formats the input for messages."""

    __slots__ = ("function", "given", "operator", "shown", "where")

    def __init__(self, operator: object, where: object, function: str, shown: Callable[[Any], str] = repr) -> None:
        self.operator, self.where, self.function, self.shown = operator, where, function, shown
        self.given: Any = None

    def describe(self) -> str:
        """Names the function and a sample of its input."""
        try:
            sample = self.shown(self.given)
        except Exception as error:  # the function is using its input right now and may be changing it
            sample = f"something that cannot be shown ({type(error).__name__})"
        if len(sample) > _LONGEST:
            sample = f"{sample[:_LONGEST]}…"
        return f"{self.operator} at {self.where}: the function {self.function}; its input is, for example, {sample}"


_LONGEST = 300
"""The most characters of a sample."""

RUNNING: dict[int, Call] = {}
"""The call in progress in each thread, by thread id."""


@contextmanager
def running(call: Call, given: Any = None) -> Iterator[Call]:
    """Record that the current thread is in this call, for the duration of a `with` statement."""
    call.given = given
    me = threading.get_ident()
    RUNNING[me] = call
    try:
        yield call
    finally:
        RUNNING.pop(me, None)
        call.given = None
