"""Truth: the correct content of every view of the chaos program, recomputed from scratch with dictionaries and loops.

It imports none of the engine's code. Rows are tuples of plain values: integers (times are nanoseconds), texts, None,
and decimals as texts of two decimals. A collection is a Counter of rows; none of its counts is 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Row = tuple[Any, ...]
Rows = Counter[Row]
Answers = dict[str, Rows]


@dataclass(frozen=True, slots=True)
class Update:
    """A row of a source that is inserted (diff 1) or deleted (-1) at a data time."""

    source: str
    row: Row
    time: int
    diff: int


@dataclass(frozen=True, slots=True)
class View:
    """reads: the sources that it depends on. compute: its rows. key: how many of its first columns are its key."""

    columns: tuple[str, ...]
    reads: tuple[str, ...]
    compute: Callable[[Mapping[str, Rows]], Rows]
    key: int = 0


def components(sources: Mapping[str, Rows]) -> Rows:
    """Each node with the least node of its strongly connected component (Tarjan's, without recursion)."""
    ahead: dict[int, list[int]] = {}
    for (src, dst), count in sources["links"].items():
        if count > 0:
            ahead.setdefault(src, []).append(dst)
            ahead.setdefault(dst, [])
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    is_open: set[int] = set()
    found: Rows = Counter()
    for root in ahead:
        if root in number:
            continue
        path: list[tuple[int, Iterator[int]]] = []

        def enter(node: int, path: list[tuple[int, Iterator[int]]] = path) -> None:
            number[node] = low[node] = len(number)
            open_.append(node)
            is_open.add(node)
            path.append((node, iter(ahead[node])))

        enter(root)
        while path:
            node, following = path[-1]
            for target in following:
                if target not in number:
                    enter(target)
                    break
                if target in is_open:
                    low[node] = min(low[node], number[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    members = []
                    while True:
                        member = open_.pop()
                        is_open.discard(member)
                        members.append(member)
                        if member == node:
                            break
                    least = min(members)
                    found.update((member, least) for member in members)
    return found


def purchases(sources: Mapping[str, Rows]) -> Rows:
    """All orders with their person, and persons without an order; nulls for what is missing."""
    found: Rows = Counter()
    for order, person, count in _paired(sources["orders"], 1, sources["people"], 0, outer="full"):
        who = order[1] if order is not None else person[0] if person is not None else None
        id_, item, amount = (order[0], order[2], order[3]) if order is not None else (None, None, None)
        name, city = person[1:] if person is not None else (None, None)
        found[who, id_, item, amount, name, city] += count
    return found


def billing(sources: Mapping[str, Rows]) -> Rows:
    """Each order with the methods by which it was paid."""
    found: Rows = Counter()
    for order, payment, count in _paired(sources["orders"], 0, sources["payments"], 1, outer="left"):
        assert order is not None
        found[order[0], order[2], payment[2] if payment is not None else None] += count
    return found


def quoted(sources: Mapping[str, Rows]) -> Rows:
    """Notes whose text is the page of a click, notes without such clicks, and clicks without such notes."""
    found: Rows = Counter()
    for note, click, count in _paired(sources["notes"], 1, sources["clicks"], 1, outer="full"):
        author, text, stars = note if note is not None else (None, None, None)
        reader, page = (click[0], click[1]) if click is not None else (None, None)
        found[author, text, stars, reader, page] += count
    return found


def cities(sources: Mapping[str, Rows]) -> Rows:
    """How many persons and orders a city has, what they sum up to, and the first and the last of their items."""
    groups: dict[Any, Rows] = defaultdict(Counter)
    for person, order, count in _paired(sources["people"], 0, sources["orders"], 1, outer="left"):
        assert person is not None
        groups[person[2]][order[2:] if order is not None else (None, None)] += count
    found: Rows = Counter()
    for city, group in groups.items():
        amounts = [Decimal(amount) * count for (_, amount), count in group.items() if amount is not None]
        items = {item for (item, _), count in group.items() if item is not None and count > 0}
        total = str(sum(amounts)) if amounts else None
        least, greatest = (min(items), max(items)) if items else (None, None)
        found[city, sum(group.values()), total, least, greatest, len(items)] += 1
    return found


def best(sources: Mapping[str, Rows]) -> Rows:
    """The two dearest orders of each person; on a tie the first in the order of all columns, nulls first."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for order, count in sources["orders"].items():
        groups[order[1]] += [order] * count
    found: Rows = Counter()
    for group in groups.values():
        # Descending, nulls come last.
        group.sort(
            key=lambda order: (
                order[3] is None,
                -Decimal(order[3] or 0),
                *((value is not None, value if value is not None else 0) for value in order),
            )
        )
        found.update(group[:2])
    return found


TEN_SECONDS = 10_000_000_000
PAUSE = 2_000_000_000


def tens(sources: Mapping[str, Rows]) -> Rows:
    """Clicks and different pages in each ten seconds."""
    counts: Counter[int] = Counter()
    pages: dict[int, set[str]] = defaultdict(set)
    for (_, page, at), count in sources["clicks"].items():
        start = at // TEN_SECONDS * TEN_SECONDS
        counts[start] += count
        if page is not None:
            pages[start].add(page)
    return Counter({(start, count, len(pages[start])): 1 for start, count in counts.items()})


def visits(sources: Mapping[str, Rows]) -> Rows:
    """How many clicks each session of a person has; a session ends after two seconds without a click."""
    mine: dict[int, Counter[int]] = defaultdict(Counter)
    for (person, _, at), count in sources["clicks"].items():
        mine[person][at] += count
    found: Rows = Counter()
    for person, clicks in mine.items():
        start = last = None
        n = 0
        for at in sorted(clicks):
            if last is None or at - last > PAUSE:
                if start is not None:
                    found[person, start, n] += 1
                start, n = at, 0
            last = at
            n += clicks[at]
        found[person, start, n] += 1
    return found


def _paired(
    left: Rows, mine: int, right: Rows, theirs: int, outer: str
) -> Iterator[tuple[Row | None, Row | None, int]]:
    """Pairs whose columns `mine` and `theirs` are equal and not null, and rows without a partner."""
    by: dict[Any, list[tuple[Row, int]]] = defaultdict(list)
    for row, count in right.items():
        by[row[theirs]].append((row, count))
    met = set()
    for row, count in left.items():
        value = row[mine]
        partners = by.get(value, ()) if value is not None else ()
        met.add(value)
        for partner, times in partners:
            yield row, partner, count * times
        if not partners:
            yield row, None, count
    if outer == "full":
        for value, rows in by.items():
            if value is None or value not in met:
                for row, count in rows:
                    yield None, row, count


def _as_it_came(source: str) -> Callable[[Mapping[str, Rows]], Rows]:
    return lambda sources: sources[source]


VIEWS: dict[str, View] = {
    "components": View(("node", "component"), ("links",), components, 1),
    "purchases": View(("person", "id", "item", "amount", "name", "city"), ("orders", "people"), purchases),
    "billing": View(("id", "item", "method"), ("orders", "payments"), billing),
    "quoted": View(("author", "text", "stars", "reader", "page"), ("notes", "clicks"), quoted),
    "cities": View(("city", "n", "total", "least", "greatest", "items"), ("people", "orders"), cities, 1),
    "best": View(("id", "person", "item", "amount"), ("orders",), best),
    "tens": View(("window_start", "n", "pages"), ("clicks",), tens, 1),
    "visits": View(("person", "window_start", "n"), ("clicks",), visits, 2),
    "odd_now": View(("id", "note"), (), lambda _: Counter()),
    "people_now": View(("id", "name", "city"), ("people",), _as_it_came("people"), 1),
    "clicks_now": View(("person", "page", "at"), ("clicks",), _as_it_came("clicks")),
    "notes_now": View(("person", "text", "stars"), ("notes",), _as_it_came("notes")),
}
SOURCES = ("links", "people", "orders", "payments", "clicks", "notes")


@dataclass
class Truth:
    """The sources as of a time that advances, and the views at that time. updates: in the order of time."""

    updates: list[Update]
    sources: dict[str, Rows] = field(default_factory=lambda: {name: Counter() for name in SOURCES})
    views: Answers = field(default_factory=lambda: {name: Counter() for name in VIEWS})
    _next: int = 0

    def __post_init__(self) -> None:
        self.updates.sort(key=lambda update: update.time)

    def steps(self) -> Iterator[tuple[int, Answers, Answers]]:
        """(time, the views before, the views at it) for every data time at which updates happen; only views that may
        change are named."""
        while self._next < len(self.updates):
            time = self.updates[self._next].time
            touched = set()
            while self._next < len(self.updates) and self.updates[self._next].time == time:
                update = self.updates[self._next]
                self._next += 1
                touched.add(update.source)
                rows = self.sources[update.source]
                rows[update.row] += update.diff
                if not rows[update.row]:
                    del rows[update.row]
            before, after = {}, {}
            for name, view in VIEWS.items():
                if touched.intersection(view.reads):
                    before[name] = self.views[name]
                    after[name] = Counter(view.compute(self.sources))
            self.views.update(after)
            yield time, before, after


def changes(before: Rows, after: Rows) -> Iterable[tuple[Row, int]]:
    """(row, diff) of the differences."""
    for row in before.keys() | after.keys():
        diff = after[row] - before[row]
        if diff:
            yield row, diff
