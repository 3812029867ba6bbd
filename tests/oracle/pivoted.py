"""A small model of the pivoted order: for every round, every operator, all data times of a slice together.

It keeps differences like the product does, but in lists and dictionaries and without any cleverness. Two things depend
on it: the rules of the pivoted order are seen to be enough (it agrees with the oracle), and `flaws` plants the mistakes
that are easily made, so that tests can show that the programs of the property tests find each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from tests.oracle.model import NEVER, Change, accumulate, consolidate, groups
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
    Loop,
    LoopResult,
    Negate,
    Node,
    PerKey,
    Project,
    Row,
    Source,
    Variable,
    nodes_of,
)

Rounds = tuple[int, ...]
Delta = tuple[Row, int, Rounds, int]
"""Row, data time, rounds, diff."""
Flaw = Literal[
    "initial value is never taken back",
    "join counts a shared change twice",
    "join forgets other rounds",
    "no visits at later rounds",
    "visits from this slice's rounds only",
    "only this round's own times",
    "skips by the filter of single loops",
    "what ran before counts as earlier",
    "compaction folds rounds",
    "parent does not wait for inner loop",
    "truncates one round early",
    "truncates one round late",
    "factors replace diffs",
    "held updates are released a slice late",
    "held updates forget their rounds",
    "held updates are released again",
    "bounds are not raised to the update's time",
    "rows that end before they start are taken away",
    "coarsened times are rounded down",
    "multiples are coarsened to the next",
    "slices are wider than the delay",
]


def at_most(one: Rounds, two: Rounds) -> bool:
    """Whether one is less than or equal to two in every loop."""
    return all(a <= b for a, b in zip(one, two, strict=True))


def later(one: Rounds, two: Rounds) -> Rounds:
    """The least rounds that both are at most."""
    return tuple(map(max, one, two))


def merged(deltas: Iterable[Delta]) -> list[Delta]:
    """Equal rows at equal times and rounds made one, zeros dropped."""
    total = accumulate(((row, time, rounds), diff) for row, time, rounds, diff in deltas)
    return [(row, time, rounds, diff) for (row, time, rounds), diff in total.items()]


class Operator:
    """A node, what waits for it by port and round, and who reads it."""

    def __init__(self, node: Node, depth: int, flaws: Collection[Flaw]) -> None:
        self.node, self.depth, self.flaws = node, depth, flaws
        self.waiting: dict[Rounds, list[tuple[int, Delta]]] = {}
        self.readers: list[Callable[[list[Delta]], None]] = []
        self.lower = 0

    def receive(self, port: int, deltas: Iterable[Delta]) -> None:
        """Put deltas of this operator's depth into the buckets of their rounds; what cancels out is no work."""
        fresh = list(deltas)
        for delta in fresh:
            self.waiting.setdefault(delta[2], []).append((port, delta))
        for rounds in {delta[2] for delta in fresh}:
            bucket = self.waiting.pop(rounds)
            kept = [(at, one) for at in (0, 1) for one in merged(delta for place, delta in bucket if place == at)]
            if kept:
                self.waiting[rounds] = kept

    def pending(self) -> Iterator[Rounds]:
        """The rounds at which there is something to do."""
        yield from self.waiting

    def run(self, rounds: Rounds) -> None:
        """Do all that waits at exactly these rounds and tell the readers."""
        fresh = self.waiting.pop(rounds, [])
        result = merged(self.work(rounds, fresh))
        for reader in self.readers:
            reader(result)

    def work(self, rounds: Rounds, fresh: list[tuple[int, Delta]]) -> Iterable[Delta]:
        for _, (row, time, _, diff) in fresh:
            match self.node:
                case Project(_, fn):
                    yield fn(row), time, rounds, diff
                case Filter(_, predicate):
                    if predicate(row):
                        yield row, time, rounds, diff
                case Expand(_, logic):
                    for one, factor in logic(row):
                        yield one, time, rounds, factor if "factors replace diffs" in self.flaws else factor * diff
                case Negate():
                    yield row, time, rounds, -diff
                case _:
                    yield row, time, rounds, diff

    def close(self, upper: int) -> None:
        """End the slice: old times may be read as `upper` from now on."""
        self.lower = upper

    def settle(self, history: Iterable[Delta]) -> list[Delta]:
        """A history as the next slice reads it."""
        fold = "compaction folds rounds" in self.flaws
        return merged(
            (row, max(time, self.lower), tuple(min(one, 2) for one in rounds) if fold else rounds, diff)
            for row, time, rounds, diff in history
        )


class MovingOperator(Operator):
    """What moves updates to later times: those at or after the end of the slice are held until their slice comes."""

    def __init__(self, node: Node, depth: int, flaws: Collection[Flaw]) -> None:
        super().__init__(node, depth, flaws)
        self.held: list[Delta] = []
        self.upper = NEVER

    def open(self, upper: int) -> None:
        """Release what is due before `upper`, each at its own rounds."""
        late = self.upper if "held updates are released a slice late" in self.flaws else upper
        self.upper = upper
        due = [delta for delta in self.held if delta[1] < late]
        if "held updates are released again" not in self.flaws:
            self.held = [delta for delta in self.held if delta[1] >= late]
        forget = "held updates forget their rounds" in self.flaws
        self.receive(1, [(row, time, (0,) * self.depth if forget else at, diff) for row, time, at, diff in due])

    def receive(self, port: int, deltas: Iterable[Delta]) -> None:
        """What is fed back is held at once: this operator has run when the end of the plan is reached."""
        if port == 0 and isinstance(self.node, Feedback):
            fresh = self.moved(deltas)
            assert all(delta[1] >= self.upper for delta in fresh), "the slice is wider than the delay"
            self.held = merged([*self.held, *fresh])
        else:
            super().receive(port, deltas)

    def work(self, rounds: Rounds, fresh: list[tuple[int, Delta]]) -> Iterable[Delta]:
        moved = self.moved(delta for port, delta in fresh if port == 0)
        yield from (delta for port, delta in fresh if port == 1)
        yield from (delta for delta in moved if delta[1] < self.upper)
        self.held = merged([*self.held, *(delta for delta in moved if delta[1] >= self.upper)])

    def moved(self, deltas: Iterable[Delta]) -> list[Delta]:
        """The deltas at their later times; what is never is left out."""
        return [
            (row, at, rounds, factor * diff)
            for row, time, rounds, diff in deltas
            for at, factor in self.times(row, time)
            if at < NEVER
        ]

    def times(self, row: Row, time: int) -> list[tuple[int, int]]:
        """The times that an update takes effect at, with factors: the join of times."""
        match self.node:
            case Between(_, start, end):
                first, last = start(row), end(row)
                first = time if first is None else first
                last = NEVER if last is None else last
                if last <= first and "rows that end before they start are taken away" not in self.flaws:
                    return []
                if "bounds are not raised to the update's time" in self.flaws:
                    return [(first, 1), (last, -1)]
                return [(max(first, time), 1), (max(last, time), -1)]
            case Coarsen(_, step):
                rounded = time - time % step
                up = time % step or "multiples are coarsened to the next" in self.flaws
                if "coarsened times are rounded down" in self.flaws:
                    return [(rounded, 1)]
                return [(rounded + step if up else rounded, 1)]
            case Delay(_, by) | Feedback(by):
                return [(time + by, 1)]
        raise TypeError(f"the model does not move the times of a {type(self.node).__name__}")


class JoinOperator(Operator):
    """dA with B as it was, then A as it is now with dB: whatever the rounds of the partner, in either order."""

    def __init__(self, node: Join, depth: int, flaws: Collection[Flaw]) -> None:
        super().__init__(node, depth, flaws)
        self.join = node
        self.seen: tuple[list[Delta], list[Delta]] = ([], [])

    def work(self, rounds: Rounds, fresh: list[tuple[int, Delta]]) -> Iterable[Delta]:
        left, right = ([delta for port, delta in fresh if port == side] for side in (0, 1))
        twice = self.join.left is self.join.right and "join counts a shared change twice" in self.flaws
        yield from self.pairs(left, self.seen[1] + right if twice else self.seen[1])
        self.seen[0].extend(left)
        yield from self.pairs(self.seen[0], right)
        self.seen[1].extend(right)

    def pairs(self, left: list[Delta], right: list[Delta]) -> Iterator[Delta]:
        for row, time, rounds, diff in left:
            for other, at, others, factor in right:
                key = self.join.left_key(row)
                if key == self.join.right_key(other) and None not in key:
                    if "join forgets other rounds" in self.flaws and not (
                        at_most(rounds, others) or at_most(others, rounds)
                    ):
                        continue
                    yield self.join.output(row, other), max(time, at), later(rounds, others), diff * factor

    def close(self, upper: int) -> None:
        super().close(upper)
        self.seen = (self.settle(self.seen[0]), self.settle(self.seen[1]))


class ReduceOperator(Operator):
    """distinct, groups and rules: at every visit, wanted output minus the output so far, at every time touched."""

    def __init__(self, node: Distinct | Group | PerKey, depth: int, flaws: Collection[Flaw]) -> None:
        super().__init__(node, depth, flaws)
        self.reduce = node
        self.inputs: dict[Row, list[Delta]] = {}
        self.outputs: dict[Row, list[Delta]] = {}
        self.fresh: dict[Row, list[Delta]] = {}
        self.visits: dict[Rounds, set[Row]] = {}

    def key(self, row: Row) -> Row:
        return row if isinstance(self.reduce, Distinct) else self.reduce.key(row)

    def pending(self) -> Iterator[Rounds]:
        yield from self.waiting
        yield from self.visits

    def logic(self, key: Row, rows: Mapping[Row, int]) -> dict[Row, int]:
        if isinstance(self.reduce, Distinct):
            return {row: 1 for row, count in rows.items() if count > 0}
        if isinstance(self.reduce, PerKey):
            return accumulate((key + row, count) for row, count in self.reduce.rule(rows))
        return accumulate(groups(self.reduce, rows))

    def work(self, rounds: Rounds, fresh: list[tuple[int, Delta]]) -> Iterable[Delta]:
        keys = self.visits.pop(rounds, set())
        for _, delta in fresh:
            key = self.key(delta[0])
            keys.add(key)
            self.inputs.setdefault(key, []).append(delta)
            self.fresh.setdefault(key, []).append(delta)
        for key in sorted(keys):
            self.schedule(key, rounds)
            yield from self.visit(key, rounds)

    def schedule(self, key: Row, rounds: Rounds) -> None:
        if "no visits at later rounds" in self.flaws:
            return
        old = "visits from this slice's rounds only" not in self.flaws
        for _, _, others, _ in merged((self.inputs if old else self.fresh).get(key, [])):
            if not at_most(others, rounds):
                self.visits.setdefault(later(rounds, others), set()).add(key)

    def visit(self, key: Row, rounds: Rounds) -> Iterator[Delta]:
        def before(others: Rounds) -> bool:
            if "what ran before counts as earlier" in self.flaws:
                return others <= rounds
            return at_most(others, rounds)

        history, given = self.inputs.get(key, []), self.outputs.setdefault(key, [])
        touched = {time for _, time, others, _ in self.fresh.get(key, []) if at_most(others, rounds)}
        if "only this round's own times" in self.flaws:
            touched = {time for _, time, others, _ in self.fresh.get(key, []) if others == rounds}
        for time in sorted(touched):
            if "skips by the filter of single loops" in self.flaws and not (
                self.total(history, time, lambda others: others == rounds)
                or self.total(given, time, lambda others: others == rounds)
            ):
                continue

            wanted = self.logic(key, self.total(history, time, before))
            so_far = self.total(given, time, before)
            correction = accumulate([*wanted.items(), *((row, -count) for row, count in so_far.items())])
            made = [(row, time, rounds, diff) for row, diff in correction.items()]
            given.extend(made)
            yield from made

    def total(self, history: list[Delta], time: int, counts: Callable[[Rounds], bool]) -> dict[Row, int]:
        return accumulate((row, diff) for row, at, others, diff in history if at <= time and counts(others))

    def close(self, upper: int) -> None:
        super().close(upper)
        assert not self.visits, "a visit outlived its slice"
        self.inputs = {key: self.settle(history) for key, history in self.inputs.items()}
        self.outputs = {key: self.settle(history) for key, history in self.outputs.items()}
        self.fresh = {}


class Scope:
    """The items of a loop's body (or of the whole plan, depth 0) in topological order: operators and inner scopes."""

    def __init__(self, depth: int, loop: Loop | None, flaws: Collection[Flaw]) -> None:
        self.depth, self.loop, self.flaws = depth, loop, flaws
        self.items: list[Operator | Scope] = []

    def pending(self) -> Iterator[Rounds]:
        """Rounds of this scope's depth at which an item, however deep, has something to do."""
        for item in self.items:
            yield from (rounds[: self.depth] for rounds in item.pending())

    def run(self, prefix: Rounds) -> None:
        """Run every round that begins with the parent's rounds `prefix`, the least first, until none is left."""
        last: Rounds | None = None
        while True:
            now = min((rounds for rounds in self.pending() if rounds[: len(prefix)] == prefix), default=None)
            if now is None:
                return
            assert last is None or now > last, f"round {now} after {last}"
            last = now
            for item in self.items:
                item.run(now)
            if "parent does not wait for inner loop" in self.flaws and self.depth > 1:
                return


class Pivoted:
    """A plan with its state between slices."""

    def __init__(self, views: Sequence[Node], flaws: Collection[Flaw] = ()) -> None:
        self.flaws = flaws
        self.root = Scope(0, None, flaws)
        self.scopes: dict[Loop, Scope] = {}
        self.owners: dict[Variable, Loop] = {}
        self.operators: dict[Node, Operator] = {}
        self.sources: dict[str, list[Operator]] = {}
        self.moving: list[MovingOperator] = []
        self.found: list[list[Delta]] = [[] for _ in views]
        for view, found in zip(views, self.found, strict=True):
            self.operator(view).readers.append(found.extend)
        for node in nodes_of(*views):
            if isinstance(node, Feedback):
                self.connect(self.operator(node.definition[0]), self.operator(node), 0)

    def slice(self, upper: int, updates: Mapping[str, Iterable[Change]]) -> None:
        """Take the updates of a slice; all of them are before `upper` and not before the last slice's."""
        for moving in self.moving:
            moving.open(upper)
        for name, part in updates.items():
            for source in self.sources.get(name, []):
                source.receive(0, [(row, time, (), diff) for row, time, diff in part])
        self.root.run(())
        for operator in self.operators.values():
            operator.close(upper)

    def changes(self) -> list[list[Change]]:
        """The changes of all views so far, each consolidated."""
        return [consolidate((row, time, diff) for row, time, _, diff in found) for found in self.found]

    def scope(self, free: Iterable[Variable]) -> Scope:
        """The innermost scope of these variables."""
        return max((self.scopes[self.owners[one]] for one in free), key=lambda one: one.depth, default=self.root)

    def operator(self, node: Node) -> Operator:
        """The operator of a node, made with all that it reads; what is made first comes first in its scope."""
        if node in self.operators:
            return self.operators[node]
        if isinstance(node, LoopResult) and node.loop not in self.scopes:
            self.enter(node.loop)
        inputs = [(port, self.operator(one)) for port, one in enumerate(node.inputs)]
        home = self.scope(node.free)
        made: Operator
        match node:
            case Join():
                made = JoinOperator(node, home.depth, self.flaws)
            case Distinct() | Group() | PerKey():
                made = ReduceOperator(node, home.depth, self.flaws)
            case Between() | Coarsen() | Delay() | Feedback():
                made = moving = MovingOperator(node, home.depth, self.flaws)
                self.moving.append(moving)
            case _:
                made = Operator(node, home.depth, self.flaws)
        self.operators[node] = made
        home.items.append(made)
        for port, one in inputs:
            self.connect(one, made, port if isinstance(node, Join) else 0)
        if isinstance(node, Source):
            self.sources.setdefault(node.name, []).append(made)
        if isinstance(node, LoopResult):
            body = self.operator(node.loop.bodies[node.index])
            inside = self.scopes[node.loop].depth
            body.readers.append(lambda deltas: made.receive(0, self.leave(body.depth, inside, deltas)))
        return made

    def connect(self, source: Operator, target: Operator, port: int) -> None:
        """Deltas go on to the target; entering a loop they are at its round 0."""
        zeros = (0,) * (target.depth - source.depth)
        source.readers.append(
            lambda deltas: target.receive(port, [(row, time, (*at, *zeros), diff) for row, time, at, diff in deltas])
        )

    def leave(self, depth: int, inside: int, deltas: Iterable[Delta]) -> list[Delta]:
        """Deltas of a body, which may be made outside of the loop, without the loop's own round."""
        return merged(
            (row, time, at[: inside - 1] if depth == inside else at + (0,) * (inside - 1 - depth), diff)
            for row, time, at, diff in deltas
        )

    def enter(self, loop: Loop) -> None:
        """Make the scope of a loop: its variables first, then its bodies, which are fed back one round later."""
        initials = [self.operator(node) for node in loop.initials]
        parent = self.scope(loop.free)
        scope = self.scopes[loop] = Scope(parent.depth + 1, loop, self.flaws)
        limit = (
            loop.max_rounds + ("truncates one round late" in self.flaws) - ("truncates one round early" in self.flaws)
        )
        for variable, initial in zip(loop.variables, initials, strict=True):
            self.owners[variable] = loop
            made = self.operator(variable)
            self.start(initial, made, limit)
        for variable, node in zip(loop.variables, loop.bodies, strict=True):
            self.feed_back(self.operator(node), self.operators[variable], limit)
        parent.items.append(scope)

    def start(self, initial: Operator, variable: Operator, limit: int) -> None:
        """X0 is there at round 0 and gone at round 1."""
        zeros = (0,) * (variable.depth - 1 - initial.depth)

        def reader(deltas: list[Delta]) -> None:
            for row, time, at, diff in deltas:
                variable.receive(0, [(row, time, (*at, *zeros, 0), diff)])
                if limit > 1 and "initial value is never taken back" not in self.flaws:
                    variable.receive(0, [(row, time, (*at, *zeros, 1), -diff)])

        initial.readers.append(reader)

    def feed_back(self, body: Operator, variable: Operator, limit: int) -> None:
        """What the body gives at a round is the variable at the next; what reaches the limit is dropped."""
        zeros = (0,) * (variable.depth - body.depth)

        def reader(deltas: list[Delta]) -> None:
            moved = [(row, time, (*at, *zeros), diff) for row, time, at, diff in deltas]
            moved = [(row, time, (*at[:-1], at[-1] + 1), diff) for row, time, at, diff in moved]
            variable.receive(0, [delta for delta in moved if delta[2][-1] < limit])

        body.readers.append(reader)


def changes_in_slices(
    views: Sequence[Node],
    updates: Mapping[str, Sequence[Change]],
    cuts: Iterable[int],
    flaws: Collection[Flaw] = (),
) -> list[list[Change]]:
    """All changes of the views when the updates come in slices that end at `cuts`.

    When something is fed back, no slice is wider than the smallest delay.
    """
    model = Pivoted(views, flaws)
    delays = [node.by for node in nodes_of(*views) if isinstance(node, Feedback)]
    widest = NEVER if not delays or "slices are wider than the delay" in flaws else min(delays)
    waiting = [(time, name, row, diff) for name, part in updates.items() for row, time, diff in part]
    for end in [*sorted(cuts), NEVER]:
        while True:
            held = [delta[1] for operator in model.moving for delta in operator.held]
            first = min((time for time in [*held, *(one[0] for one in waiting)] if time < end), default=None)
            upper = end if first is None else min(end, first + widest)
            inside: dict[str, list[Change]] = {}
            for time, name, row, diff in waiting:
                if time < upper:
                    inside.setdefault(name, []).append((row, time, diff))
            waiting = [one for one in waiting if one[0] >= upper]
            model.slice(upper, inside)
            if upper == end:
                break
    return model.changes()
