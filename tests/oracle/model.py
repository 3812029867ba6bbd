"""The oracle: what a plan's answer is, found from scratch with dictionaries and loops.

Slow and obvious on purpose. Multiplicities: a row is present when its multiplicity is greater than 0; `distinct`, `min`
and `max` see present rows, `count` and `sum` weigh by multiplicity, joins multiply, a group exists while any of its
rows has a multiplicity other than 0. Loops start from X0 at every time and, when they are inside another loop, at every
round of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.oracle.plan import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Join,
    Loop,
    LoopResult,
    Negate,
    Node,
    Project,
    Row,
    Source,
    Union,
    Variable,
)

Collection = dict[Row, int]
"""Row to multiplicity, never 0."""

Change = tuple[Row, int, int]
"""Row, data time, diff."""


class NotSettled(Exception):
    """A loop still changed at its round `max_rounds`."""

    def __init__(self, rounds: int, changed: Iterable[Row]) -> None:
        super().__init__(f"a loop still changes at round {rounds}: {sorted(changed, key=order)[:5]}")
        self.rounds = rounds


class TooLarge(Exception):
    """A multiplicity is so large that the product, which counts in 64 bits, may refuse what the oracle can do."""


LARGEST = 2**40


def order(row: Row) -> tuple[tuple[bool, Any], ...]:
    """A sort key for rows that may hold None, which sorts first."""
    return tuple((value is not None, value if value is not None else 0) for value in row)


def accumulate(pairs: Iterable[tuple[Row, int]]) -> Collection:
    """The multiset of (row, diff) pairs."""
    total: Collection = {}
    for row, diff in pairs:
        total[row] = total.get(row, 0) + diff
    return {row: count for row, count in total.items() if count != 0}


def evaluate(plan: Node, sources: Mapping[str, Collection]) -> Collection:
    """The collection that `plan` is when the inputs are `sources`; an input without an entry is empty.

    Raises NotSettled when a loop that may not be truncated reaches its limit, TooLarge when a multiplicity leaves
    +-2**40.
    """
    return _Scope(None, sources, {}).evaluate(plan)


def collection_at(updates: Iterable[Change], time: int) -> Collection:
    """The multiset of all updates at or before `time`."""
    return accumulate((row, diff) for row, at, diff in updates if at <= time)


def input_times(updates: Mapping[str, Iterable[Change]]) -> list[int]:
    """Every data time of the inputs, ascending."""
    return sorted({at for part in updates.values() for _, at, _ in part})


def changes(plan: Node, updates: Mapping[str, Iterable[Change]]) -> list[Change]:
    """All changes of the view `plan`: recomputed at every data time of the inputs and compared with the time before.

    Consolidated, sorted by time and then row. Costs one whole evaluation for every distinct time.
    """
    found: list[Change] = []
    before: Collection = {}
    for time in input_times(updates):
        after = evaluate(plan, {name: collection_at(part, time) for name, part in updates.items()})
        difference = accumulate([*after.items(), *((row, -count) for row, count in before.items())])
        found.extend((row, time, difference[row]) for row in sorted(difference, key=order))
        before = after
    return found


def consolidate(updates: Iterable[Change]) -> list[Change]:
    """Updates with equal rows and times summed and zeros dropped, sorted by time and then row."""
    total = accumulate(((row, at), diff) for row, at, diff in updates)
    return [(row, at, total[row, at]) for row, at in sorted(total, key=lambda key: (key[1], order(key[0])))]


class _Scope:
    """The values of a loop's variables in one round; nodes that do not depend on them belong to the scope outside."""

    def __init__(
        self, outer: _Scope | None, sources: Mapping[str, Collection], values: dict[Variable, Collection]
    ) -> None:
        self.outer = outer
        self.sources = sources
        self.values = values
        self.known: dict[Node, Collection] = {}
        self.limits: dict[Loop, tuple[Collection, ...]] = {}

    def evaluate(self, node: Node) -> Collection:
        if self.outer is not None and node.free.isdisjoint(self.values):
            return self.outer.evaluate(node)
        if node not in self.known:
            self.known[node] = result = self.recompute(node)
            if any(abs(count) > LARGEST for count in result.values()):
                raise TooLarge(f"a {type(node).__name__} has multiplicities beyond {LARGEST}")
        return self.known[node]

    def recompute(self, node: Node) -> Collection:
        match node:
            case Source(name):
                return accumulate(self.sources.get(name, {}).items())
            case Variable():
                return self.values[node]
            case Project(input, fn):
                return accumulate((fn(row), count) for row, count in self.evaluate(input).items())
            case Filter(input, predicate):
                return {row: count for row, count in self.evaluate(input).items() if predicate(row)}
            case Union(parts):
                return accumulate(pair for part in parts for pair in self.evaluate(part).items())
            case Negate(input):
                return {row: -count for row, count in self.evaluate(input).items()}
            case Distinct(input):
                return {row: 1 for row, count in self.evaluate(input).items() if count > 0}
            case Join():
                return accumulate(self.pairs(node))
            case Group():
                return accumulate(self.groups(node))
            case LoopResult(loop, index):
                if loop not in self.limits:
                    self.limits[loop] = self.limit(loop)
                return self.limits[loop][index]
        raise TypeError(f"the oracle has no rule for {type(node).__name__}")

    def pairs(self, join: Join) -> Iterator[tuple[Row, int]]:
        partners: dict[Row, list[tuple[Row, int]]] = {}
        for two, times in self.evaluate(join.right).items():
            partners.setdefault(join.right_key(two), []).append((two, times))
        for one, count in self.evaluate(join.left).items():
            key = join.left_key(one)
            if None not in key:
                for two, times in partners.get(key, []):
                    yield join.output(one, two), count * times

    def groups(self, group: Group) -> Iterator[tuple[Row, int]]:
        members: dict[Row, Collection] = {}
        for row, count in self.evaluate(group.input).items():
            members.setdefault(group.key(row), {})[row] = count
        for key, rows in members.items():
            results = [(aggregate, summary(aggregate, rows)) for aggregate in group.aggregates]
            if all(one is not None or aggregate.nullable for aggregate, one in results):
                yield key + tuple(one for _, one in results), 1

    def limit(self, loop: Loop) -> tuple[Collection, ...]:
        current = tuple(self.evaluate(node) for node in loop.initials)
        for _ in range(loop.max_rounds):
            inside = _Scope(self, self.sources, dict(zip(loop.variables, current, strict=True)))
            following = tuple(inside.evaluate(body) for body in loop.bodies)
            if following == current:
                return current
            previous, current = current, following
        if loop.truncate:
            return current
        raise NotSettled(
            loop.max_rounds, (row for old, new in zip(previous, current) for row, _ in old.items() ^ new.items())
        )


def summary(aggregate: Aggregate, rows: Collection) -> Any:
    """One aggregate over a group's rows. Nulls as in SQL: not counted, summed or compared; None if nothing is left."""
    value = aggregate.value
    if value is None:
        if aggregate.kind != "count":
            raise ValueError(f"{aggregate.kind} needs a value")
        return sum(rows.values())
    weighed = [(value(row), count) for row, count in rows.items() if value(row) is not None]
    present = [one for one, count in weighed if count > 0]
    match aggregate.kind:
        case "count":
            return sum(count for _, count in weighed)
        case "sum":
            return sum(one * count for one, count in weighed) if weighed else None
        case "min":
            return min(present, default=None)
        case "max":
            return max(present, default=None)
