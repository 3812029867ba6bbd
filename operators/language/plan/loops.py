"""Loops of the logical plan: a fixpoint, its variables inside, and their limits and rounds outside."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

import xxhash

from vernier.operators.errors import BadLoop
from vernier.operators.language.plan.node import ROOT, Multiplicity, Node, Params, Scope
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.operators.location import Location


@dataclass(eq=False)
class Loop:
    """A fixpoint: variables X0 = initials, X(i+1) = bodies of Xi, in an inner scope. `bodies` is set once the body is
    traced.

    `max_rounds` bounds the round coordinate. At that round the loop raises an error or, with on_limit "truncate",
    stops.
    """

    scope: Scope
    name: str
    variables: tuple[str, ...]
    initials: tuple[Node, ...]
    max_rounds: int
    on_limit: str
    where: Location
    bodies: tuple[Node, ...] = ()
    _digests: dict[tuple[Scope, ...], str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """The structure's hash, like Node.fingerprint."""
        return self.digest(())

    def digest(self, bound: tuple[Scope, ...]) -> str:
        """The structure's hash as seen inside the loops `bound`."""
        if not self.bodies:
            raise BadLoop(problem=f"the body of fixpoint {self.name!r} is still being built", where=self.where)
        outside = self.scope.chain()[1:]
        bound = tuple(scope for scope in bound if scope in outside)
        if bound not in self._digests:
            inside = (*bound, self.scope)
            initials = tuple(node.digest(bound) for node in self.initials)
            bodies = tuple(node.digest(inside) for node in self.bodies)
            parts = ("loop", initials, bodies, self.max_rounds, self.on_limit)
            self._digests[bound] = xxhash.xxh3_128_hexdigest(repr(parts).encode())
        return self._digests[bound]


@dataclass(frozen=True, eq=False)
class VariableNode(Node):
    """The value of a loop's variable in the current round, inside the loop."""

    kind: ClassVar[str] = "variable"
    loop: Loop
    index: int

    def params(self) -> Params:
        return (self.index,)

    def key(self) -> Params:
        return (self.kind, self.index, self.loop.fingerprint)

    def _parts(self, bound: tuple[Scope, ...]) -> Params:
        if self.loop.scope in bound:
            return (bound.index(self.loop.scope),)
        return (self.loop.digest(bound),)

    def _scope(self) -> Scope:
        return self.loop.scope

    def _schema(self) -> RowType:
        return self.loop.initials[self.index].schema


@dataclass(frozen=True, eq=False)
class LoopResultNode(Node):
    """The limit of a loop's variable, outside the loop."""

    kind: ClassVar[str] = "loop_result"
    loop: Loop
    index: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.loop.initials

    @property
    def dependencies(self) -> tuple[Node, ...]:
        return (*self.inputs, *self.loop.bodies)

    def params(self) -> Params:
        return (self.index,)

    def key(self) -> Params:
        return (self.kind, self.index, self.loop.fingerprint)

    def _parts(self, bound: tuple[Scope, ...]) -> Params:
        return (self.loop.digest(bound),)

    def _scope(self) -> Scope:
        return self.loop.scope.parent or ROOT

    def _schema(self) -> RowType:
        return self.loop.initials[self.index].schema

    def _multiplicity(self) -> Multiplicity:
        return min(body.multiplicity for body in self.loop.bodies)

    def unique_by(self, keys: Collection[str]) -> bool:
        return self.loop.bodies[self.index].unique_by(keys)


@dataclass(frozen=True, eq=False)
class LoopRoundsNode(LoopResultNode):
    """How a variable changes from round to round, outside the loop: its rows with the round in the column `_round`.

    The multiplicity of a row in round i is its multiplicity in Xi less that in X(i-1); in round 0 that in X0.
    """

    kind: ClassVar[str] = "loop_rounds"

    def _schema(self) -> RowType:
        row = self.loop.initials[self.index].schema
        return RowType([*((f.name, f.type, f.nullable) for f in row.fields), (ROUND, Int64(), False)])

    def _multiplicity(self) -> Multiplicity:
        return Multiplicity.ANY

    def unique_by(self, keys: Collection[str]) -> bool:
        return False


ROUND = "_round"
"""The hidden column with the round."""
