"""The oracle's plan language: small frozen nodes that say what a view is, and nothing of how to keep it up to date.

A collection is a multiset of tuples. Functions inside nodes are plain Python functions on those tuples. A plan is a
graph: a node may be used many times, and a node of an outer scope may be used inside a loop. Nothing of the product
is imported here.

    edges, roots = Source("edges"), Source("roots")
    (reach,) = fixpoint((roots,), lambda reach: (
        Distinct(Union((roots, Join(reach, edges, lambda r: r[0], lambda e: e[0], lambda r, e: (e[1],))))),
    ))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

Row = tuple[Any, ...]
Kind = Literal[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "arg_min",
    "arg_max",
    "mode",
    "count_distinct",
    "quantile",
    "collect_list",
    "collect_set",
]
Contents = Mapping[Row, int]
"""A collection at one time: row to multiplicity, never 0."""


@dataclass(frozen=True, eq=False)
class Node:
    """A collection. Two nodes are the same only if they are one object."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The collections that this one is made from."""
        return ()

    @cached_property
    def free(self) -> frozenset[Variable]:
        """The loop variables that this collection depends on and whose loops it is still inside of."""
        return frozenset().union(*(node.free for node in self.inputs))


@dataclass(frozen=True, eq=False)
class Source(Node):
    """What has been put into the input `name`."""

    name: str


@dataclass(frozen=True, eq=False)
class OneInput(Node):
    """A collection that is made from one other."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Project(OneInput):
    """Each row becomes `fn(row)`; multiplicities of rows that become equal add up."""

    fn: Callable[[Row], Row]


@dataclass(frozen=True, eq=False)
class Filter(OneInput):
    """The rows for which `predicate(row)` is true."""

    predicate: Callable[[Row], bool]


@dataclass(frozen=True, eq=False)
class Expand(OneInput):
    """Each row becomes all of `fn(row)`, pairs of a row and a factor that the multiplicity is multiplied with."""

    fn: Callable[[Row], Iterable[tuple[Row, int]]]


@dataclass(frozen=True, eq=False)
class Union(Node):
    """All rows of all parts; multiplicities add up."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts


@dataclass(frozen=True, eq=False)
class Negate(OneInput):
    """Every multiplicity with the other sign."""


@dataclass(frozen=True, eq=False)
class Distinct(OneInput):
    """Every present row once; a row is present when its multiplicity is greater than 0."""


@dataclass(frozen=True, eq=False)
class Join(Node):
    """`output(l, r)` for every pair with equal keys; multiplicities multiply. A key with a None in it equals no key."""

    left: Node
    right: Node
    left_key: Callable[[Row], Row]
    right_key: Callable[[Row], Row]
    output: Callable[[Row, Row], Row]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a group: `value(row)` is what is summed or compared; without it `count` counts every row.

    nullable: whether the result may be None; else a group without a result (min or max of no present row) is left out.
    by: what arg_min and arg_max compare. at: which quantile, from 0 to 1.
    """

    kind: Kind
    value: Callable[[Row], Any] | None = None
    nullable: bool = False
    by: Callable[[Row], Any] | None = None
    at: Fraction = Fraction(1, 2)


@dataclass(frozen=True, eq=False)
class Group(OneInput):
    """`key(row) + (aggregate, ...)` once for every group: of counts, sums and means alone while its vector of these is
    not zero, else while some row of it has a multiplicity other than 0."""

    key: Callable[[Row], Row]
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True, eq=False)
class PerKey(OneInput):
    """`key + row` for all that `rule` makes of each key's rows, with its multiplicities."""

    key: Callable[[Row], Row]
    rule: Callable[[Contents], Iterable[tuple[Row, int]]]


@dataclass(frozen=True, eq=False)
class Whole(Node):
    """What `rule` makes of the whole inputs as they are at one time."""

    parts: tuple[Node, ...]
    rule: Callable[..., Iterable[tuple[Row, int]]]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts


@dataclass(frozen=True, eq=False)
class Between(OneInput):
    """The rows that are valid at the data time T: `start(row) <= T < end(row)`; None is without a bound."""

    start: Callable[[Row], int | None]
    end: Callable[[Row], int | None]


@dataclass(frozen=True, eq=False)
class Coarsen(OneInput):
    """At the data time T, the input as it was at the greatest multiple of `step` that is at most T."""

    step: int


@dataclass(frozen=True, eq=False)
class Delay(OneInput):
    """At the data time T, the input as it was at T - by. Outside of loops."""

    by: int


@dataclass(frozen=True, eq=False)
class Feedback(Node):
    """At the data time T, what `definition[0]` was at T - by; the definition may depend on this node."""

    by: int
    definition: list[Node] = field(default_factory=list)

    def define(self, node: Node) -> None:
        """Say what is fed back."""
        self.definition.append(node)


@dataclass(frozen=True, eq=False)
class Lookup(Node):
    """Each change of the left, joined with the right as it is at that time and never revised. Outside of loops."""

    left: Node
    right: Node
    left_key: Callable[[Row], Row]
    right_key: Callable[[Row], Row]
    output: Callable[[Row, Row], Row]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Variable(Node):
    """A loop's variable, seen from inside its body."""

    index: int

    @cached_property
    def free(self) -> frozenset[Variable]:
        return frozenset((self,))


@dataclass(frozen=True, eq=False)
class Loop:
    """X0 = initials; X(i+1) = bodies with variables = Xi. Stops when nothing changes, or at X(max_rounds)."""

    initials: tuple[Node, ...]
    variables: tuple[Variable, ...]
    bodies: tuple[Node, ...]
    max_rounds: int
    truncate: bool
    free: frozenset[Variable] = field(init=False)

    def __post_init__(self) -> None:
        if len(self.initials) != len(self.bodies):
            raise ValueError(f"a loop of {len(self.initials)} variables has {len(self.bodies)} bodies")
        if self.max_rounds < 1:
            raise ValueError(f"a loop of {self.max_rounds} rounds")
        inside = frozenset().union(*(body.free for body in self.bodies)) - frozenset(self.variables)
        object.__setattr__(self, "free", inside.union(*(node.free for node in self.initials)))


@dataclass(frozen=True, eq=False)
class LoopResult(Node):
    """The limit of one variable of a loop."""

    loop: Loop
    index: int

    @cached_property
    def free(self) -> frozenset[Variable]:
        return self.loop.free


@dataclass(frozen=True, eq=False)
class LoopRounds(LoopResult):
    """`(i, n)` for each round i in which n rows of one variable of a loop, n > 0, changed their multiplicity."""


def fixpoint(
    initials: Sequence[Node],
    body: Callable[..., Sequence[Node]],
    *,
    max_rounds: int = 1000,
    truncate: bool = False,
) -> tuple[LoopResult, ...]:
    """The limits of a loop: `body` is called once with a Variable for each of `initials` and gives the next values."""
    variables = tuple(Variable(index) for index in range(len(initials)))
    loop = Loop(tuple(initials), variables, tuple(body(*variables)), max_rounds, truncate)
    return tuple(LoopResult(loop, index) for index in range(len(initials)))


def without(body: Node, other: Node) -> Node:
    """The rows of `body` that are not present in `other` (an anti join on whole rows), from the other nodes."""
    return Union((body, Negate(Join(body, Distinct(other), whole, whole, lambda row, _: row))))


def nodes_of(*plans: Node) -> list[Node]:
    """Every node that these depend on, and they, inside of loops and of what is fed back as well."""
    found: dict[Node, None] = {}
    waiting = list(plans)
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found[node] = None
        waiting.extend(node.inputs)
        if isinstance(node, LoopResult):
            waiting.extend((*node.loop.initials, *node.loop.bodies))
        if isinstance(node, Feedback):
            waiting.extend(node.definition)
    return list(found)


def whole(row: Row) -> Row:
    """The row as its own key."""
    return row


def columns(*indexes: int) -> Callable[[Row], Row]:
    """A function that takes these columns of a row."""
    return lambda row: tuple(row[index] for index in indexes)


def item(index: int) -> Callable[[Row], Any]:
    """A function that takes one column's value of a row."""
    return lambda row: row[index]
