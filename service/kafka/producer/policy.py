"""Policies: how coarse message times are. Data times stay as they are.

A producer's *common time* grows with its clock. The message time follows it in steps, because each new message time is
announced to every partition. Source: "Differential dataflow roadmap", sections
"Millisecond resolution" and "Variable resolution".
"""

from __future__ import annotations

from dataclasses import dataclass

from vernier.operators.errors import WrongArguments, WrongType
from vernier.operators.language.types.duration import nanoseconds


@dataclass(frozen=True, slots=True)
class Every:
    """The message time is the common time rounded down to `width` nanoseconds, the same for every producer."""

    width: int

    def following(self, at: int | None, common: int, rows: int) -> int:
        """The message time at a common time. at: the present one; rows: taken since it began."""
        return common - common % self.width


@dataclass(frozen=True, slots=True)
class Records:
    """After `count` rows the message time leaps to the common time."""

    count: int

    def following(self, at: int | None, common: int, rows: int) -> int:
        """The message time at a common time. at: the present one; rows: taken since it began."""
        return common if at is None or rows >= self.count else at


Policy = Every | Records


def records(count: int) -> Records:
    """The policy of a producer that announces a new message time after `count` rows, or after its `linger`."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise WrongArguments(problem=f"records needs a number of rows from 1, not {count!r}")
    return Records(count)


def as_policy(given: str | Records) -> Policy:
    """The policy that a program has written: a duration ("1ms"), or `records(n)`. Raises WrongType."""
    if isinstance(given, Records):
        return given
    width = nanoseconds(given, "the policy") if isinstance(given, str) else 0
    if width < 1:
        raise WrongType(problem=f'the policy must be a duration like "1ms", or vn.records(1024), not {given!r}')
    return Every(width)
