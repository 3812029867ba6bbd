"""Compares the views of a program with a count of the rows from scratch, time by time."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Log = Iterable[tuple[Any, int, int]]
"""Updates of the program's source, or changes of a view: row, time, diff."""


def check(found: Mapping[str, Log], log: Log, truth: Callable[[Counter[Any]], Mapping[str, Counter[Any]]]) -> None:
    """Compare all views at each time at which something changes. truth: the rows of each view, from those of the
    source."""

    def as_of(changes: Log, time: int) -> Counter[Any]:
        held: Counter[Any] = Counter()
        for row, at, diff in changes:
            held[row] += diff if at <= time else 0
        return held

    for time in sorted({at for _, at, _ in log}):
        for view, wanted in truth(as_of(log, time)).items():
            held = as_of(found[view], time)
            assert {row: n for row, n in held.items() if n} == dict(wanted), (view, time)
