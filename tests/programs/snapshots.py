"""Hold a program against an independent implementation, at every data time of its inputs.

The other implementation sees plain tuples: what each source holds at one time. The program runs over all updates, cut
into epochs and spread over workers in several ways, which must not show.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import vernier as vn

Row = tuple[Any, ...]
Change = tuple[Row, int, int]
Inputs = Mapping[str, Sequence[Change]]
Held = dict[str, Counter[Row]]
Answer = Callable[[Held], Mapping[str, Iterable[Row]]]
"""The rows of each view, from what each source holds; a row that comes twice has multiplicity 2."""
AnswerAt = Callable[[Held, int], Mapping[str, Iterable[Row]]]
"""The same, for answers that depend on the data time, too."""

HERE = Path(__file__).parent


def load(name: str) -> vn.App:
    """The program of that name in this folder."""
    return vn.load_program(HERE / f"{name}.py")


def check(name: str, inputs: Inputs, answer: Answer, seed: int = 0) -> int:
    """Compare a program's views with `answer` at every time of the inputs; returns how many times that were."""
    return compare(load(name), inputs, lambda held, _: answer(held), seed=seed)


def compare(app: vn.App, inputs: Inputs, answer: AnswerAt, also: Iterable[int] = (), seed: int = 0) -> int:
    """Compare a program's views with `answer` at every time of the inputs, and at those of `also`; returns how many
    times that were.

    Three runs: one epoch and one worker; an epoch a time and two workers; random cuts, two workers.
    """
    times = sorted({time for changes in inputs.values() for _, time, _ in changes} | set(also))
    choose = random.Random(seed)
    some = sorted(choose.sample(times, min(len(times), 5)))
    expected = {time: _rows(answer(_held(inputs, time), time)) for time in times}
    for cuts, workers in (((), 1), (times, 2), (some, 2)):
        with vn.testing.run(app, epochs=cuts, workers=workers) as run:
            for source, changes in inputs.items():
                mixed = list(changes)
                choose.shuffle(mixed)
                run.update(source, mixed)
            run.finish()
            for time in times:
                for view, rows in expected[time].items():
                    found = run.counts(view, at=time)
                    assert found == rows, f"{app.name}.{view} at {time}, {workers} workers, {len(cuts)} cuts"
    return len(times)


def graph(
    seed: int,
    nodes: int,
    changes: int,
    *,
    edge: Callable[[random.Random], Row] | None = None,
    stay: float = 0.6,
) -> list[Change]:
    """Edges that come and go: `changes` of them at rising times, each edge inserted at most once at a time."""
    choose = random.Random(seed)
    make = edge or (lambda one: (one.randrange(nodes), one.randrange(nodes)))
    live: list[Row] = []
    found: list[Change] = []
    time = 1_700_000_000_000_000_000
    for _ in range(changes):
        time += choose.choice((0, 1, 1, 1_000))
        if live and choose.random() > stay:
            found.append((live.pop(choose.randrange(len(live))), time, -1))
        else:
            row = make(choose)
            if row not in live:
                live.append(row)
                found.append((row, time, 1))
    return found


def _held(inputs: Inputs, time: int) -> Held:
    held: Held = {}
    for source, changes in inputs.items():
        total: Counter[Row] = Counter()
        for row, at, diff in changes:
            if at <= time:
                total[row] += diff
        held[source] = Counter({row: count for row, count in total.items() if count})
    return held


def _rows(views: Mapping[str, Iterable[Row]]) -> dict[str, dict[Row, int]]:
    return {name: dict(Counter(rows)) for name, rows in views.items()}
