"""Methods that leave the rows as they are: arranging, naming, inspecting and checking a collection, and loops as a
method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from vernier.operators.errors import BadLoop, ProgramError, WrongType
from vernier.operators.language.collection.rows import C, Rows, column_name
from vernier.operators.language.expr.expression import Column
from vernier.operators.language.expr.functions import function_name
from vernier.operators.language.plan.aggregates import count
from vernier.operators.language.plan.logical import AggregateNode, ProjectNode
from vernier.operators.language.plan.loops import ROUND, LoopResultNode, LoopRoundsNode
from vernier.operators.language.plan.node import ROOT, Node, Params, UnaryNode
from vernier.operators.language.plan.owners import owner_of
from vernier.operators.language.plan.titles import give_name
from vernier.storage.time.lattice import MIN_TIME


@dataclass(frozen=True, eq=False)
class ArrangedNode(UnaryNode):
    """The same rows, arranged by the columns `keys`."""

    kind: ClassVar[str] = "arranged"
    keys: tuple[str, ...]

    def params(self) -> Params:
        return self.keys


@dataclass(frozen=True, eq=False)
class ConsolidatedNode(UnaryNode):
    """The same rows, consolidated: at each time, changes that cancel disappear, and equal rows become one change."""

    kind: ClassVar[str] = "consolidated"


@dataclass(frozen=True, eq=False)
class InspectedNode(UnaryNode):
    """The same rows; a function sees each change."""

    kind: ClassVar[str] = "inspected"
    function: Callable[..., Any]
    name: str

    def params(self) -> Params:
        return (self.name,)


@dataclass(frozen=True, eq=False)
class CheckedNode(UnaryNode):
    """The same rows; the program asserts that there are none."""

    kind: ClassVar[str] = "checked"
    name: str

    def params(self) -> Params:
        return (self.name,)


class Probe:
    """How far a collection is complete, for runs in this process (vn.testing.run, a notebook).

    frontier: all times before it are final. Before the first epoch it is the least time.
    """

    def __init__(self) -> None:
        self.frontier = MIN_TIME

    def reached(self, time: int) -> bool:
        """Whether the collection is final at `time`."""
        return time < self.frontier


@dataclass(frozen=True, eq=False)
class ProbedNode(UnaryNode):
    """The same rows; `probe` records how far they are complete."""

    kind: ClassVar[str] = "probed"
    probe: Probe

    def params(self) -> Params:
        return (id(self.probe),)


def arrange_by(self: C, *keys: str) -> C:
    """The same rows, kept by these columns (an arrangement), which joins and reductions by these columns share.

    Operators already share the arrangements that they build themselves; use this for rows that are expensive to
    compute and have several readers. Cost: memory for each row.
    """
    names = tuple(self.schema.field(column_name(key, "arrange_by")).name for key in keys)
    if not names or len(set(names)) < len(names):
        raise ProgramError(problem="arrange_by needs at least one column, each once")
    return self._of(ArrangedNode(self.node, names))


def named(self: C, name: str) -> C:
    """The same collection; its operator has this name in plans, errors, metrics and on the console.

    The name is for people only. It is no part of the program's meaning, so it may change while state is kept.
    """
    if not isinstance(name, str) or not name.strip():
        raise WrongType(problem=f"named takes a text, not {name!r}")
    give_name(self.node, name.strip())
    return self


def consolidate(self: C) -> C:
    """The same rows with equal changes combined: at each time, each row has one change or none.

    No answer depends on it. It saves work downstream of operators whose output largely cancels. Cost: a sort, and
    an exchange of the rows between workers.
    """
    return self._of(ConsolidatedNode(self.node))


def inspect(self: C, function: Callable[[Any, Any, int], object], *, name: str | None = None) -> C:
    """The same rows; `function(row, time, diff)` is called for each change, on the worker that holds it.

    row is a tuple; time is in nanoseconds or, inside loops, a tuple of the data time and the rounds. This is for
    looking at a program: an epoch that is repeated shows its changes again. Only runs if a view depends on the
    result. An exception in the function stops the epoch with an error that shows the row.
    """
    if not callable(function):
        raise WrongType(problem=f"inspect takes a function of (row, time, diff), not {function!r}")
    return self._of(InspectedNode(self.node, function, name or function_name(function)))


def assert_empty(self: Rows, name: str) -> None:
    """Stop with an error that shows rows, the first time that this collection has any. `name` says what such rows
    are, for example "orders without a customer". The check runs whether or not a view shows the collection."""
    if not isinstance(name, str) or not name:
        raise WrongType(problem=f"assert_empty takes a name for the rows that must not exist, not {name!r}")
    _require(self, CheckedNode(self.node, name), "assert_empty")


def probe(self: Rows) -> Probe:
    """A handle that says how far this collection is complete, for runs in this process."""
    probe = Probe()
    _require(self, ProbedNode(self.node, probe), "probe")
    return probe


def iterate(self: C, body: Callable[[C], C], *, max_rounds: int | None = None, on_limit: str = "error") -> C:
    """The limit of applying `body` to this collection again and again: a fixpoint of one variable, see
    vn.fixpoint."""
    # The two modules need each other, because a loop's variable is a collection; hence the late import.
    from vernier.operators.language.collection.fixpoint import DEFAULT_ROUNDS, fixpoint

    rounds = DEFAULT_ROUNDS if max_rounds is None else max_rounds
    loop: Callable[..., C] = fixpoint(max_rounds=rounds, on_limit=on_limit)(body)
    return loop(self)


def rounds(self: C) -> C:
    """How a loop came to its limit: for each round in which rows changed, (round, changed), both Int64.

    For the limit that a fixpoint or `iterate` returned. At each data time, round 0 has the number of rows that the loop
    starts from, and round i the number of rows whose multiplicity differs between round i - 1 and round i, when the
    loop runs from its start. Rounds without changes have no row. It belongs to the loop that returned the collection:
    inside the body of an outer loop it is a collection of the outer round. With several variables each has its own.
    Cost: an arrangement with one fact for each row and round in which the row changed.
    """
    node = self.node
    if type(node) is not LoopResultNode:
        raise BadLoop(
            problem="rounds() is a method of what a fixpoint or iterate returned, and of nothing computed from it: "
            "reached = reach(roots, edges=edges); reached.rounds()"
        )
    # A row is counted in a round if its multiplicity changed, by any number.
    changed = AggregateNode(LoopRoundsNode(node.loop, node.index), (*node.schema.names, ROUND), ())
    only = ProjectNode(changed, (("round", Column(ROUND)),))
    return self._of(AggregateNode(only, ("round",), (("changed", count()),)))


def _require(rows: Rows, node: Node, what: str) -> None:
    if node.scope is not ROOT:
        raise BadLoop(
            problem=f"{what} inside the body of fixpoint {node.scope.name!r}: it would see the loop's rounds; use "
            "what the fixpoint returns"
        )
    owner_of(node, what).require(node)
