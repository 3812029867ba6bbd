"""Callbacks: functions of Python that kernels call at an address.

A signal that comes while a kernel runs, such as Ctrl-C, raises its error where Python's code runs next: at the first
line of a function that the kernel calls, before any `try` in it. ctypes only prints such an error, and the function's
result is undefined. So a callback says in memory what it returns, where the kernel looks, and the error is kept until
Python has control again.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


class Callback:
    """function: takes `numbers` int64 numbers and returns one, which is not 0; kernels call it at `address`. The word
    at `said` is to be 0 before a call. After it, it is what the function has returned, or still 0 if it has raised.
    """

    def __init__(self, function: Callable[..., int], numbers: int) -> None:
        self._function = function
        self._said = np.zeros(1, np.int64)
        self._failure: BaseException | None = None
        self._entry = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * numbers)(self._enter)
        self.address = ctypes.cast(self._entry, ctypes.c_void_p).value or 0
        self.said: int = self._said.ctypes.data
        _hear_what_is_printed()

    def fail(self) -> None:
        """Raise what the function has raised since this was asked."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def keep(self, failure: BaseException | None) -> None:
        """Keep an error until `fail`."""
        self._failure = failure

    def _enter(self, *numbers: int) -> None:
        try:
            self._said[0] = self._function(*numbers)
        except BaseException as failure:
            self._failure = failure


def _hear_what_is_printed() -> None:
    """From now on, what ctypes would print of a callback is kept by it."""
    before = sys.unraisablehook
    if getattr(before, "keeps", False):
        return

    def hook(unraisable: Any) -> None:
        callback = getattr(unraisable.object, "__self__", None)
        if isinstance(callback, Callback):
            callback.keep(unraisable.exc_value)
        else:
            before(unraisable)

    hook.keeps = True  # type: ignore[attr-defined]
    sys.unraisablehook = hook
