"""Called stages: the row-wise stages of a program that are Python's, for the kernel that runs slices.

The kernel calls them with the address of the rows, as it calls a check while it waits (operators/runtime/lanes.py).
Whatever a stage raises, the kernel gives the slice up, and the worker runs it step by step, where the stage raises the
proper error, or runs on smaller pieces. So a function of the program may be called twice for the same rows. A call
costs some microseconds, beside what the stage itself does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from vernier.operators.kernels import runs
from vernier.operators.physical.stages import Run, compile_stage
from vernier.operators.planning.stages import Stage
from vernier.operators.runtime.callback import Callback
from vernier.operators.runtime.operator import Operator
from vernier.storage.updates import Ints


class CalledStages:
    """called: the stages by number, each with its operator. run: the words of the run, which must not move."""

    def __init__(self, called: Sequence[tuple[int, Stage]], operators: Mapping[int, Operator], run: Ints) -> None:
        self._called, self._operators = called, operators
        self._functions: dict[int, Run] = {}
        words: memoryview[int] = memoryview(run)  # type: ignore[arg-type, assignment, unused-ignore]
        self._words = words
        self._callback = Callback(self._call, 4)
        self._made: Ints | None = None  # what the kernel still has to copy
        run[runs.STAGE], run[runs.STAGE_SAID] = self._callback.address, self._callback.said

    def fail(self) -> None:
        """Raise what must not wait for the slice to be run step by step, such as KeyboardInterrupt."""
        self._callback.fail()

    def _call(self, number: int, at: int, rows: int, width: int) -> int:
        """Run int64[rows, width] at an address through a stage. Returns whether it has left rows in the run."""
        try:
            # A copy, because a function of the program may keep what it is given.
            given = np.empty((rows, width), np.int64)
            ctypes.memmove(given.__array_interface__["data"][0], at, given.nbytes)
            made = np.ascontiguousarray(self._function(number)(given))
            self._words[runs.MADE_AT] = made.__array_interface__["data"][0]
            self._words[runs.MADE_ROWS], self._words[runs.MADE_WIDTH] = made.shape
            self._made = made
            return runs.STAGE_DONE
        except Exception:
            return 0

    def _function(self, number: int) -> Run:
        """A stage's function, compiled by its first call."""
        if number not in self._functions:
            op, stage = self._called[number]
            operator = self._operators[op]
            self._functions[number] = compile_stage(stage, operator.depth + 2, operator.scope)
        return self._functions[number]
