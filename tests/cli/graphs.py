"""A random graph in motion as an update file, and what reachability and bfs must answer: plain Python alone.

At every data time all edges and roots are taken as they then are, and the answers are worked out from nothing.
"""

import json
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

NODES, EDGES = 90, 170


class Update(NamedTuple):
    """One line of an update file."""

    input: str
    row: tuple[int, ...]
    time: int
    diff: int


Rows = Mapping[tuple[int, ...], int]
Answers = dict[str, Counter[tuple[int, ...]]]


def updates(count: int, seed: int = 1) -> list[Update]:
    """`count` updates in time order: edges and roots come and go, some twice, several at one time, none below zero."""
    draw = random.Random(seed)
    made: list[Update] = []
    edges: list[tuple[int, int]] = []
    roots: list[int] = []
    time = 1_700_000_000_000_000_000
    while len(made) < count:
        # Mostly a nanosecond apart, sometimes at once, sometimes far off.
        time += draw.choices((0, 1, 1_000_003), (3, 10, 1))[0]
        if draw.random() < 0.02 or not roots:
            if len(roots) > 2 or (roots and draw.random() < 0.5):
                made.append(Update("roots", (roots.pop(draw.randrange(len(roots))),), time, -1))
            else:
                roots.append(draw.randrange(NODES))
                made.append(Update("roots", (roots[-1],), time, 1))
        elif len(edges) > EDGES + 5 or (len(edges) >= EDGES and draw.random() < 0.5):
            made.append(Update("edges", edges.pop(draw.randrange(len(edges))), time, -1))
        elif edges and draw.random() < 0.02:
            # Another copy of an edge that is there.
            edges.append(draw.choice(edges))
            made.append(Update("edges", edges[-1], time, 1))
        else:
            edges.append((draw.randrange(NODES), draw.randrange(NODES)))
            made.append(Update("edges", edges[-1], time, 1))
    return made


def write(path: Path, made: Iterable[Update], seed: int = 2) -> None:
    """The updates as lines in any order, in all the ways in which a line may be written."""
    draw = random.Random(seed)
    lines = []
    for update in made:
        names = ("src", "dst") if update.input == "edges" else ("node",)
        line: dict[str, object] = {"input": update.input, "data": update.row, "time": update.time, "diff": update.diff}
        if draw.random() < 0.1:
            line["data"] = dict(zip(names, update.row))
        if draw.random() < 0.1:
            line["time"] = str(update.time)
        if update.diff == 1 and draw.random() < 0.5:
            del line["diff"]
        lines.append(json.dumps(line, separators=draw.choice(((",", ":"), (", ", ": ")))))
    draw.shuffle(lines)
    path.write_text("\n".join(lines) + "\n")


def distances(edges: Rows, roots: Rows) -> dict[int, int]:
    """How far each node is from the nearest root that is present, over present edges."""
    following: dict[int, list[int]] = {}
    for src, dst in edges:
        following.setdefault(src, []).append(dst)
    found = {node: 0 for (node,) in roots}
    waiting = deque(found)
    while waiting:
        node = waiting.popleft()
        for after in following.get(node, ()):
            if after not in found:
                found[after] = found[node] + 1
                waiting.append(after)
    return found


def reachability(edges: Rows, roots: Rows) -> Answers:
    """The views of tests/programs/reachability.py."""
    reached = distances(edges, roots)
    degrees: Counter[int] = Counter()
    for (src, _), copies in edges.items():
        if src in reached:
            degrees[src] += copies
    return {
        "reach": Counter((node,) for node in reached),
        "by_out_degree": Counter((node, degree) for node, degree in degrees.items()),
    }


def bfs(edges: Rows, roots: Rows) -> Answers:
    """The views of tests/programs/bfs.py."""
    found = distances(edges, roots)
    return {
        "distances": Counter(found.items()),
        "histogram": Counter((distance, nodes) for distance, nodes in Counter(found.values()).items()),
    }


def change_file(made: Iterable[Update], answer: Callable[[Rows, Rows], Answers]) -> str:
    """The change file that a program with these answers must write."""
    held: dict[str, Counter[tuple[int, ...]]] = {"edges": Counter(), "roots": Counter()}
    before: Answers = {}
    lines = []
    for time, now in groupby(sorted(made, key=lambda update: update.time), key=lambda update: update.time):
        for update in now:
            held[update.input][update.row] += update.diff
            if not held[update.input][update.row]:
                del held[update.input][update.row]
        after = answer(held["edges"], held["roots"])
        for view in sorted(after):
            was, is_ = before.get(view, Counter()), after[view]
            for row in sorted(was.keys() | is_.keys()):
                diff = is_[row] - was[row]
                if diff:
                    change = {"view": view, "data": row, "time": time, "diff": diff}
                    lines.append(json.dumps(change, separators=(",", ":")))
        before = after
    return "".join(f"{line}\n" for line in lines)
