"""Changes: a cheap way to find that nothing has changed.

Before each small slice the interpreter must know whether something that a kernel was lent has become another thing.
Asking every trace costs more than a step of an operator, so those who change such things count it here.
"""

import itertools


class Changes:
    """`now` is another number after each change, whatever thread makes it."""

    __slots__ = ("_numbers", "now")

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.now = 0

    def add(self) -> None:
        """Something has changed."""
        self.now = next(self._numbers)
