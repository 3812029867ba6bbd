"""What the demonstration's program must answer, recomputed from scratch with dictionaries and loops; imports none of
our code."""

from collections import Counter
from collections.abc import Iterable, Iterator

Change = tuple[str, tuple[int, ...], int, int]
"""(source, row, time, diff)."""
Answers = dict[str, set[tuple[int, ...]]]


class Truth:
    """All updates that were ever sent, and the answers at any time."""

    def __init__(self) -> None:
        self.log: list[Change] = []

    def answers(self, time: int) -> Answers:
        """The rows of every view as of `time`, from all updates at or before it."""
        edges, roots = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
        for source, row, at, diff in self.log:
            if at <= time:
                (edges if source == "edges" else roots)[row] += diff
        return recompute(edges, roots)

    def changes(self, until: int) -> Iterator[tuple[int, str, tuple[int, ...], int]]:
        """(time, view, row, diff) of every change of every view before `until`, one recomputation for each data
        time."""
        edges, roots = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
        before: Answers = {"reach": set(), "distances": set(), "histogram": set()}
        ordered = sorted((change for change in self.log if change[2] < until), key=lambda change: change[2])
        for index, (source, row, time, diff) in enumerate(ordered):
            (edges if source == "edges" else roots)[row] += diff
            if index + 1 < len(ordered) and ordered[index + 1][2] == time:
                continue
            now = recompute(edges, roots)
            for view in now:
                yield from ((time, view, gone, -1) for gone in before[view] - now[view])
                yield from ((time, view, come, 1) for come in now[view] - before[view])
            before = now


def recompute(edges: Counter[tuple[int, ...]], roots: Counter[tuple[int, ...]]) -> Answers:
    """Breadth-first search from all roots over the edges that are there."""
    out: dict[int, list[int]] = {}
    for (src, dst), count in edges.items():
        if count > 0:
            out.setdefault(src, []).append(dst)
    found = {root: 0 for (root,), count in roots.items() if count > 0}
    ring: Iterable[int] = list(found)
    depth = 0
    while ring:
        depth += 1
        following = []
        for node in ring:
            for dst in out.get(node, ()):
                if dst not in found:
                    found[dst] = depth
                    following.append(dst)
        ring = following
    return {
        "reach": {(node,) for node in found},
        "distances": set(found.items()),
        "histogram": set(Counter(found.values()).items()),
    }
