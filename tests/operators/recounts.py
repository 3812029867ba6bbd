"""Compares the views of a program with a count of the rows from scratch, time by time; and makes rows that drift."""

import random
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


def drifting(
    choose: random.Random, event: Callable[[], Any], rows: int, times: int, most: int
) -> list[tuple[Any, int, int]]:
    """Changes of a collection that begins with `rows` rows at time 0: at each of the next times, one to `most` rows
    leave or come, some of them twice."""
    held = [event() for _ in range(rows)]
    log = [(row, 0, 1) for row in held]
    for at in range(1, times):
        for _ in range(choose.randrange(1, most + 1)):
            if choose.random() < 0.5:
                log.append((held.pop(choose.randrange(len(held))), at, -1))
            else:
                held.append(event())
                log.append((held[-1], at, choose.choice([1, 1, 2])))
    return log
