"""Nodes of the logical plan: what a program means, as an immutable graph that the planner compiles.

Nodes know their row type, the loop scope in which they live, and the user's line. A node of an inner scope may use
nodes of outer scopes, which brings these into the loop. Equal structure has an equal `fingerprint`, whatever the
process and the lines of the program. The planner therefore builds one arrangement for all nodes that mean the same, and
a restart finds it again.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

import xxhash

from vernier.operators.errors import BadLoop
from vernier.operators.language.types.schema import RowType
from vernier.operators.location import Location, here

Params = tuple[Any, ...]


@dataclass(eq=False)
class Scope:
    """A nesting level of loops; depth 0 is outside all loops. `closed` is set once the loop's body has been built."""

    parent: "Scope | None"
    depth: int
    name: str = ""
    closed: bool = False

    def chain(self) -> "tuple[Scope, ...]":
        """This scope and all enclosing ones, innermost first."""
        return (self, *self.parent.chain()) if self.parent is not None else (self,)


ROOT = Scope(None, 0)

_planning: ContextVar[bool] = ContextVar("planning", default=False)


@contextmanager
def planning() -> Iterator[None]:
    """A context in which a planner rewrites a program in simpler nodes: it may create nodes in loops whose bodies are
    closed."""
    token = _planning.set(True)
    try:
        yield
    finally:
        _planning.reset(token)


class Multiplicity(IntEnum):
    """What the structure of a plan guarantees about the multiplicities of a collection; a greater value says more."""

    ANY = 0
    POSITIVE = 1
    """None is negative."""
    SET = 2
    """Each is 0 or 1, so that a distinct would change nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """A collection. `schema`, `scope` and `multiplicity` follow from the inputs; `where` is the user's line that
    created the node."""

    kind: ClassVar[str] = "node"
    schema: RowType = field(init=False)
    scope: Scope = field(init=False)
    multiplicity: Multiplicity = field(init=False, repr=False)
    where: Location = field(default_factory=here)
    _digests: dict[tuple[Scope, ...], str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", self._scope())
        object.__setattr__(self, "schema", self._schema())
        object.__setattr__(self, "multiplicity", self._multiplicity())

    @property
    def inputs(self) -> "tuple[Node, ...]":
        """The collections that this one is computed from directly."""
        return ()

    @property
    def dependencies(self) -> "tuple[Node, ...]":
        """All collections that must be computed for this one: its inputs, and the bodies of a loop."""
        return self.inputs

    @property
    def is_positive(self) -> bool:
        """Whether the structure rules out negative multiplicities."""
        return self.multiplicity >= Multiplicity.POSITIVE

    @property
    def is_set(self) -> bool:
        """Whether the structure rules out multiplicities other than 0 and 1."""
        return self.multiplicity is Multiplicity.SET

    def unique_by(self, keys: Collection[str]) -> bool:
        """Whether the structure guarantees at most one row per key: these columns determine all others, and
        multiplicities are 0 or 1."""
        return False

    def params(self) -> Params:
        """What distinguishes this node from others of its kind with the same inputs; hashable, without locations."""
        return ()

    def key(self) -> Params:
        """A cheap, hashable form of the structure below this node, equal exactly when the structure is equal."""
        return (self.kind, self.params(), *(node.fingerprint for node in self.inputs))

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits, a 128-bit hash of the structure: the same in every process. O(1) after the first call.

        Raises BadLoop inside a fixpoint's body, whose meaning is not known before it returns.
        """
        return self.digest(())

    def digest(self, bound: tuple[Scope, ...]) -> str:
        """The structure's hash as seen inside the loops `bound`, whose variables are identified by position, not by
        meaning."""
        inside = self.scope.chain()
        bound = tuple(scope for scope in bound if scope in inside)
        if bound not in self._digests:
            parts = (self.kind, self.params(), self._parts(bound))
            self._digests[bound] = xxhash.xxh3_128_hexdigest(repr(parts).encode())
        return self._digests[bound]

    def _parts(self, bound: tuple[Scope, ...]) -> Params:
        return tuple(node.digest(bound) for node in self.inputs)

    def _scope(self) -> Scope:
        deepest = max((node.scope for node in self.inputs), key=lambda scope: scope.depth, default=ROOT)
        inside = deepest.chain()
        for scope in [deepest, *(node.scope for node in self.inputs)]:
            if (scope.closed and not _planning.get()) or scope not in inside:
                loop = scope.name or deepest.name
                raise BadLoop(
                    problem=f"a collection from inside the body of fixpoint {loop!r} is used outside of it; "
                    "return it from the body and use what the fixpoint returns",
                    where=self.where,
                )
        return deepest

    def _schema(self) -> RowType:
        return self.inputs[0].schema

    def _multiplicity(self) -> Multiplicity:
        # also of a loop's variable, since its body is not known before the loop is built
        return Multiplicity.ANY


@dataclass(frozen=True, eq=False)
class UnaryNode(Node):
    """A collection that is computed from one other."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """Every node below `nodes`, including loops' initials and bodies: each once, inputs before users except for
    feedback."""
    seen: set[int] = set()
    stack = [(node, False) for node in reversed(nodes)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.dependencies))
