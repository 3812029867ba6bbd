"""The logical plan: what a program means, as an immutable graph of nodes that the planner compiles.

Nodes know their row type, the loop scope in which they live, and the user's line. A node of an inner scope may use
nodes of outer scopes, which brings these into the loop. Equal structure has an equal `fingerprint`, whatever the
process and the lines of the program. The planner therefore builds one arrangement for all nodes that mean the same, and
a restart finds it again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

import xxhash

from vernier.operators.errors import BadLoop, NameClash, ProgramError, WrongType, listed
from vernier.operators.language.expr.evaluate import bind, predicate
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.plan.aggregation import aggregate_type
from vernier.operators.language.types.scalars import spell
from vernier.operators.language.types.schema import RowType
from vernier.operators.location import NOWHERE, Location, here

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """A collection. `schema` and `scope` follow from the inputs; `where` is the user's line that created the node."""

    kind: ClassVar[str] = "node"
    schema: RowType = field(init=False)
    scope: Scope = field(init=False)
    where: Location = field(default_factory=here)
    _digests: dict[tuple[Scope, ...], str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", self._scope())
        object.__setattr__(self, "schema", self._schema())

    @property
    def inputs(self) -> "tuple[Node, ...]":
        """The collections that this one is computed from directly."""
        return ()

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


@dataclass(frozen=True, eq=False)
class Source(Node):
    """An input of the program. The configuration says where its updates come from."""

    kind: ClassVar[str] = "source"
    name: str
    row: RowType

    def params(self) -> Params:
        return (self.name, *map(tuple, self.row.to_json()))

    def _schema(self) -> RowType:
        return self.row


@dataclass(frozen=True, eq=False)
class Project(Node):
    """One output row for each input row: the named expressions, in order."""

    kind: ClassVar[str] = "project"
    input: Node
    exprs: tuple[tuple[str, Expr], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def params(self) -> Params:
        return tuple((name, expr.key()) for name, expr in self.exprs)

    def _schema(self) -> RowType:
        if not self.exprs:
            raise ProgramError(problem="a collection needs at least one column", where=self.where)
        bound = [(name, bind(expr, self.input.schema)) for name, expr in self.exprs]
        return RowType((name, part.type, part.nullable) for name, part in bound)


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """The rows for which `predicate` is true."""

    kind: ClassVar[str] = "filter"
    input: Node
    predicate: Expr

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def params(self) -> Params:
        return (self.predicate.key(),)

    def _schema(self) -> RowType:
        predicate(self.predicate, self.input.schema)
        return self.input.schema


@dataclass(frozen=True, eq=False)
class Union(Node):
    """All rows of all inputs; multiplicities add up. All inputs have the same row type."""

    kind: ClassVar[str] = "union"
    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def _schema(self) -> RowType:
        for other in self.inputs[1:]:
            if other.schema != self.inputs[0].schema:
                raise WrongType(
                    problem=f"a union needs equal columns, but has {self.inputs[0].schema} and {other.schema}",
                    where=self.where,
                )
        return self.inputs[0].schema


@dataclass(frozen=True, eq=False)
class Negate(Node):
    """Every multiplicity negated."""

    kind: ClassVar[str] = "negate"
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Distinct(Node):
    """Each row whose multiplicity is above 0, once."""

    kind: ClassVar[str] = "distinct"
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Present(Node):
    """Each key with a present row (multiplicity above 0), once; `keys` are columns of the input."""

    kind: ClassVar[str] = "present"
    input: Node
    keys: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def params(self) -> Params:
        return (self.keys,)

    def _schema(self) -> RowType:
        return self.input.schema.take(self.keys)


@dataclass(frozen=True, eq=False)
class Aggregation:
    """One aggregate. `kind` as in aggregates.py; `expr` is its argument, None to count rows; `more` are further
    arguments; `option` is a further parameter, with a key() where str() does not determine it."""

    belongs_in: ClassVar[str] = 'an aggregate belongs in .group_by("key").agg(name=...)'
    """The hint for an aggregate that is used as a value of each row."""

    kind: str
    expr: Expr | None = None
    more: tuple[Expr, ...] = ()
    option: Any = None

    @property
    def args(self) -> tuple[Expr, ...]:
        """All expressions that it reads."""
        return (() if self.expr is None else (self.expr,)) + self.more

    def key(self) -> Params:
        """A hashable form, equal for equal meaning."""
        option = self.option.key() if hasattr(self.option, "key") else str(self.option)
        return (self.kind, tuple(expr.key() for expr in self.args), option)

    def __repr__(self) -> str:
        option = () if self.option is None else (self.option,)
        return f"{self.kind}({', '.join(map(str, (*self.args, *option)))})"


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """One row for each key: the key's columns, then the aggregates. `keys` are columns of the input, at least one.

    Without aggregates: each key with a row whose multiplicity is not 0, once.
    """

    kind: ClassVar[str] = "aggregate"
    input: Node
    keys: tuple[str, ...]
    aggs: tuple[tuple[str, Aggregation], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def params(self) -> Params:
        return (self.keys, tuple((name, agg.key()) for name, agg in self.aggs))

    def _schema(self) -> RowType:
        row = self.input.schema
        columns = [(f.name, f.type, f.nullable) for f in map(row.field, self.keys)]
        for name, agg in self.aggs:
            args = [bind(expr, row) for expr in agg.args]
            columns.append((name, *aggregate_type(agg.kind, args, agg.option, str(agg))))
        return RowType(columns)


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Pairs of rows with equal keys, with multiplicities multiplied. Key columns have equal types without nulls.

    With `null_safe`, key columns may hold nulls, which equal one another; both sides must have the same nullability.
    When left_on == right_on, the keys appear once, then the other left and the other right columns; otherwise all left
    columns and then all right columns. Column names must not clash.
    """

    kind: ClassVar[str] = "join"
    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    null_safe: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def params(self) -> Params:
        return (self.left_on, self.right_on)

    @property
    def merged(self) -> bool:
        """Whether the key columns appear once in the output."""
        return self.left_on == self.right_on

    def _schema(self) -> RowType:
        return pair_type(
            self.left.schema, self.right.schema, self.left_on, self.right_on, null_safe=self.null_safe, where=self.where
        )


def pair_type(
    left: RowType,
    right: RowType,
    left_on: Sequence[str],
    right_on: Sequence[str],
    *,
    null_safe: bool = False,
    where: Location = NOWHERE,
) -> RowType:
    """The columns of a pair of rows (see Join). Raises WrongType where keys do not fit together, and NameClash."""
    for one, two in zip(left_on, right_on, strict=True):
        a, b = left.field(one, "the left side of the join"), right.field(two, "the right side of the join")
        fits = a.nullable == b.nullable if null_safe else not (a.nullable or b.nullable)
        if a.type != b.type or not fits:
            found = f"{one} is {spell(a.type, a.nullable)} and {two} is {spell(b.type, b.nullable)}"
            raise WrongType(problem=f"join keys have different types: {found}; cast one of them", where=where)
    merged = tuple(left_on) == tuple(right_on)
    keys = left.take(left_on).fields if merged else ()
    rest = [f for row in (left, right) for f in row.fields if not (merged and f.name in left_on)]
    clash = [f.name for f in rest if [g.name for g in rest].count(f.name) > 1]
    if clash:
        raise NameClash(
            problem=f"both sides of the join have a column {clash[0]!r} (left: {listed(left.names)}; right: "
            f'{listed(right.names)}); rename one of them first, e.g. .rename({clash[0]}="{clash[0]}_2")',
            where=where,
        )
    return RowType((f.name, f.type, f.nullable) for f in (*keys, *rest))


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
class Variable(Node):
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
class LoopResult(Node):
    """The limit of a loop's variable, outside the loop."""

    kind: ClassVar[str] = "loop_result"
    loop: Loop
    index: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.loop.initials

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
            below = (*node.inputs, *(node.loop.bodies if isinstance(node, LoopResult) else ()))
            stack.extend((child, False) for child in reversed(below))
