"""The oracle: what a plan's answer is, found from scratch with dictionaries and loops.

Slow and obvious on purpose. Multiplicities: a row is present when its multiplicity is greater than 0; `distinct`, `min`
and `max` see present rows, `count` and `sum` weigh by multiplicity, joins multiply. A group of counts, sums and means
exists while its vector of these is not zero, any other while one of its rows has a multiplicity other than 0. Loops
start from X0 at every time and, when they are inside another loop, at every round of it.

A collection is a function of the data time (and of the round, inside loops). Most nodes look at their inputs at the
same time. The others say which time they look at: a delay by d at T looks at T - d, a coarsened collection at the
multiple before T, a temporal filter compares T itself. A view is looked at whenever an input changes and whenever one
of those nodes may change by itself, which it announces: T + d, the next multiple, the bounds of the rows it sees.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from tests.oracle.aggregates import LINEAR, summary, weights
from tests.oracle.plan import (
    Between,
    Coarsen,
    Delay,
    Distinct,
    Expand,
    Feedback,
    Filter,
    Group,
    Join,
    Lookup,
    Loop,
    LoopResult,
    LoopRounds,
    Negate,
    Node,
    PerKey,
    Project,
    Row,
    Source,
    Union,
    Variable,
    Whole,
    nodes_of,
)
from tests.oracle.values import order

Collection = dict[Row, int]
"""Row to multiplicity, never 0."""

Change = tuple[Row, int, int]
"""Row, data time, diff."""


class NotSettled(Exception):
    """A loop still changed at its round `max_rounds`."""

    def __init__(self, rounds: int, changed: Iterable[Row]) -> None:
        super().__init__(f"a loop still changes at round {rounds}: {sorted(changed, key=order)[:5]}")
        self.rounds = rounds


class StillMoving(Exception):
    """What is fed back after a delay keeps changing for longer than anyone wants to look."""


class TooLarge(Exception):
    """A multiplicity or a time is so large that the product, which has 64 bits, may refuse what the oracle can do."""


LARGEST = 2**40
NEVER = 2**63 - 1
"""Every data time is less than this."""
LOOKS = 500
"""How many times of one plan are looked at."""


def accumulate(pairs: Iterable[tuple[Row, int]]) -> Collection:
    """The multiset of (row, diff) pairs."""
    total: Collection = {}
    for row, diff in pairs:
        total[row] = total.get(row, 0) + diff
    return {row: count for row, count in total.items() if count != 0}


def evaluate(plan: Node, sources: Mapping[str, Collection], time: int = 0) -> Collection:
    """The collection that `plan` is when the inputs have always been `sources`; an input without an entry is empty.

    Raises NotSettled when a loop that may not be truncated reaches its limit, TooLarge when a multiplicity leaves
    +-2**40.
    """
    updates = {name: [(row, time, count) for row, count in part.items()] for name, part in sources.items()}
    return History(updates).look(time).evaluate(plan)


def collection_at(updates: Iterable[Change], time: int) -> Collection:
    """The multiset of all updates at or before `time`."""
    return accumulate((row, diff) for row, at, diff in updates if at <= time)


def difference(after: Collection, before: Collection) -> Collection:
    """What has to be added to `before` to make it `after`."""
    return accumulate([*after.items(), *((row, -count) for row, count in before.items())])


def input_times(updates: Mapping[str, Iterable[Change]]) -> list[int]:
    """Every data time of the inputs, ascending."""
    return sorted({at for part in updates.values() for _, at, _ in part})


def changes(plan: Node, updates: Mapping[str, Iterable[Change]]) -> list[Change]:
    """All changes of the view `plan`; see changes_of."""
    return changes_of({"view": plan}, updates)["view"]


def changes_of(plans: Mapping[str, Node], updates: Mapping[str, Iterable[Change]]) -> dict[str, list[Change]]:
    """All changes of the views: recomputed at every time at which one may change, compared with the time before.

    Consolidated, sorted by time and then row. Costs one whole evaluation for every distinct time.
    """
    history = History({name: list(part) for name, part in updates.items()})
    everything = [node for node in nodes_of(*plans.values()) if not node.free]
    feedback = [node for node in everything if isinstance(node, Feedback)]
    history.wanted.update(input_times(history.updates))
    found: dict[str, list[Change]] = {name: [] for name in plans}
    while history.wanted:
        time = min(history.wanted)
        before, now = history.scopes[-1], history.look(time)
        for node in everything:
            now.evaluate(node)
        for node in feedback:
            if now.evaluate(node.definition[0]) != before.evaluate(node.definition[0]):
                history.move(time + node.by)
        for name, plan in plans.items():
            delta = difference(now.evaluate(plan), before.evaluate(plan))
            found[name].extend((row, time, delta[row]) for row in sorted(delta, key=order))
        if len(history.scopes) > LOOKS:
            raise StillMoving(f"still looking at {time}")
    return found


def consolidate(updates: Iterable[Change]) -> list[Change]:
    """Updates with equal rows and times summed and zeros dropped, sorted by time and then row."""
    total = accumulate(((row, at), diff) for row, at, diff in updates)
    return [(row, at, total[row, at]) for row, at in sorted(total, key=lambda key: (key[1], order(key[0])))]


class History:
    """A plan's collections at the times looked at so far, and the later times that a reader will look at."""

    def __init__(self, updates: Mapping[str, list[Change]]) -> None:
        self.updates = updates
        self.wanted: set[int] = set()
        self.scopes = [Scope(self, None, None, {})]

    def look(self, time: int) -> Scope:
        """The scope of a time after all those before."""
        self.wanted.discard(time)
        self.scopes.append(Scope(self, time, None, {}))
        return self.scopes[-1]

    def at(self, time: int) -> Scope:
        """The scope of the latest time looked at that is at most `time`; nothing has changed since then."""
        return next(one for one in reversed(self.scopes) if one.time is None or one.time <= time)

    def before(self, time: int) -> Scope:
        """The scope of the latest time looked at before `time`."""
        return self.at(time - 1)

    def move(self, time: int) -> None:
        """Look at this time later on, to which something is moved; TooLarge when there is no such time."""
        if time >= NEVER:
            raise TooLarge(f"{time} is beyond all data times")
        self.want(time)

    def want(self, time: int) -> None:
        """Look at this time later on, unless it has come already or never comes."""
        now = self.scopes[-1].time
        if time < NEVER and (now is None or time > now):
            self.wanted.add(time)


class Scope:
    """The collections at one data time and, inside a loop, in one round; what does not depend on it is outside.

    The scope without a time is before all inputs, when every collection is empty.
    """

    def __init__(
        self,
        history: History,
        time: int | None,
        loop: Rounds | None,
        values: dict[Variable, Collection],
        round: int = 0,
    ) -> None:
        self.history, self.time, self.loop, self.values, self.round = history, time, loop, values, round
        self.known: dict[Node, Collection] = {}
        self.loops: dict[Loop, Rounds] = {}

    def evaluate(self, node: Node) -> Collection:
        if self.loop is not None and node.free.isdisjoint(self.values):
            return self.loop.outer.evaluate(node)
        if node not in self.known:
            self.known[node] = result = self.recompute(node)
            if any(abs(count) > LARGEST for count in result.values()):
                raise TooLarge(f"a {type(node).__name__} has multiplicities beyond {LARGEST}")
        return self.known[node]

    def recompute(self, node: Node) -> Collection:
        match node:
            case Source(name):
                time = self.time
                return {} if time is None else collection_at(self.history.updates.get(name, ()), time)
            case Variable():
                return self.values[node]
            case Project(input, fn):
                return accumulate((fn(row), count) for row, count in self.evaluate(input).items())
            case Filter(input, predicate):
                return {row: count for row, count in self.evaluate(input).items() if predicate(row)}
            case Expand(input, logic):
                return accumulate(
                    (one, count * factor) for row, count in self.evaluate(input).items() for one, factor in logic(row)
                )
            case Union(parts):
                return accumulate(pair for part in parts for pair in self.evaluate(part).items())
            case Negate(input):
                return {row: -count for row, count in self.evaluate(input).items()}
            case Distinct(input):
                return {row: 1 for row, count in self.evaluate(input).items() if count > 0}
            case Join(left, right):
                return accumulate(pairs(node, self.evaluate(left), self.evaluate(right)))
            case Group(input):
                return accumulate(groups(node, self.evaluate(input)))
            case PerKey(input, key, rule):
                return accumulate(
                    (one + row, count)
                    for one, rows in by_key(self.evaluate(input), key).items()
                    for row, count in rule(rows)
                )
            case Whole(parts, rule):
                return accumulate(rule(*(self.evaluate(part) for part in parts)))
            case LoopRounds(loop, index):
                values = [{}, *(value[index] for value in self.rounds(loop).course())]
                steps = (difference(after, before) for before, after in itertools.pairwise(values))
                return {(round, len(changed)): 1 for round, changed in enumerate(steps) if changed}
            case LoopResult(loop, index):
                return self.rounds(loop).limit()[index]
        return {} if self.time is None else self.move(node, self.time)

    def move(self, node: Node, time: int) -> Collection:
        """The nodes that look at another time, or at the time itself."""
        history = self.history
        match node:
            case Between(input, start, end):
                kept: Collection = {}
                for row, count in self.evaluate(input).items():
                    first, last = start(row), end(row)
                    for bound in (first, last):
                        if bound is not None:
                            history.want(bound)
                    if (first is None or first <= time) and (last is None or time < last):
                        kept[row] = count
                return kept
            case Coarsen(input, step):
                now = self.evaluate(input)
                if time % step == 0:
                    return now
                history.move(time - time % step + step)
                return self.then(time - time % step).evaluate(input)
            case Delay(input, by):
                if self.evaluate(input) != history.before(time).evaluate(input):
                    history.move(time + by)
                return history.at(time - by).evaluate(input)
            case Feedback(by, definition):
                return history.at(time - by).evaluate(definition[0])
            case Lookup(left, right):
                before = history.before(time)
                fresh = difference(self.evaluate(left), before.evaluate(left))
                made = pairs(node, fresh, self.evaluate(right))
                return accumulate([*before.evaluate(node).items(), *made])
        raise TypeError(f"the oracle has no rule for {type(node).__name__}")

    def then(self, time: int) -> Scope:
        """The same round at another, earlier time."""
        if self.loop is None:
            return self.history.at(time)
        rounds = self.loop.outer.then(time).rounds(self.loop.loop)
        self.loop.follows.append(rounds)
        return rounds.scope(self.round)

    def rounds(self, loop: Loop) -> Rounds:
        """A loop of this scope."""
        if loop not in self.loops:
            self.loops[loop] = Rounds(loop, self)
        return self.loops[loop]


class Rounds:
    """A loop at one time (and one round of the loop around it): the rounds that were read so far."""

    def __init__(self, loop: Loop, outer: Scope) -> None:
        self.loop, self.outer = loop, outer
        self.follows: list[Rounds] = []
        """The same loop at the times that its body looks at besides its own: it settles no earlier than they."""
        self.values = [tuple(outer.evaluate(node) for node in loop.initials)]
        self.scopes: list[Scope] = []

    def value(self, round: int) -> tuple[Collection, ...]:
        """The variables in this round."""
        while len(self.values) <= round:
            inside = self.scope(len(self.values) - 1)
            self.values.append(tuple(inside.evaluate(body) for body in self.loop.bodies))
        return self.values[round]

    def scope(self, round: int) -> Scope:
        """The scope of this round."""
        while len(self.scopes) <= round:
            count = len(self.scopes)
            values = dict(zip(self.loop.variables, self.value(count), strict=True))
            self.scopes.append(Scope(self.outer.history, self.outer.time, self, values, count))
        return self.scopes[round]

    def settled(self, round: int) -> bool:
        """Whether nothing changes any more after this round."""
        same = self.value(round) == self.value(round + 1)
        return same and all(one.settled(round) for one in self.follows)

    def limit(self) -> tuple[Collection, ...]:
        """The variables when nothing changes any more, or in the last round that the loop may have."""
        return self.course()[-1]

    def course(self) -> list[tuple[Collection, ...]]:
        """The variables round by round, as far as `limit`."""
        last = self.loop.max_rounds
        for round in range(last):
            if self.settled(round):
                return self.values[: round + 1]
        if self.loop.truncate:
            self.value(last)
            return self.values[: last + 1]
        both = zip(self.value(last - 1), self.value(last), strict=True)
        raise NotSettled(last, (row for old, new in both for row, _ in old.items() ^ new.items()))


def by_key(rows: Mapping[Row, int], key: Callable[[Row], Row]) -> dict[Row, Collection]:
    """The rows of each key."""
    members: dict[Row, Collection] = {}
    for row, count in rows.items():
        members.setdefault(key(row), {})[row] = count
    return members


def pairs(join: Join | Lookup, left: Mapping[Row, int], right: Mapping[Row, int]) -> Iterator[tuple[Row, int]]:
    """The join's rows. A key with a None in it equals no key."""
    partners = by_key(right, join.right_key)
    for one, count in left.items():
        key = join.left_key(one)
        if None not in key:
            for two, times in partners.get(key, {}).items():
                yield join.output(one, two), count * times


def groups(group: Group, rows: Mapping[Row, int]) -> Iterator[tuple[Row, int]]:
    """A row for each group, unless one of its aggregates has no result and may not be None.

    A group of counts, sums and means alone exists while its vector is not zero: the number of its rows and, for each
    aggregate, the number and the sum of its values.
    """
    linear = bool(group.aggregates) and all(one.kind in LINEAR for one in group.aggregates)
    for key, members in by_key(rows, group.key).items():
        if linear:
            vectors = [weights(aggregate, members) for aggregate in group.aggregates]
            if not sum(members.values()) and not any(part != 0 for vector in vectors for part in vector):
                continue
        results = [(aggregate, summary(aggregate, members, linear)) for aggregate in group.aggregates]
        if all(one is not None or aggregate.nullable for aggregate, one in results):
            yield key + tuple(one for _, one in results), 1
