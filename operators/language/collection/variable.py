"""Delayed variables: a collection that is used before it is defined, and holds what its definition held a while ago.

They feed an answer back into its own input, outside loops: at each time the variable holds its definition as of `delay`
earlier, so the definition may depend on the variable. With this, a program can say which rows of its input it no longer
needs, and for how long they may still be read. Source:
"Managing memory with differential dataflow".

    gone = vn.Variable("gone", Reading, delay="1s")
    latest = readings.union(gone.negate()).group_by("sensor").agg(at=vn.max("at"))
    gone.set(readings.union(latest.negate()))           # what is not the latest goes, one second later
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vernier.operators.errors import BadLoop, NameClash, ProgramError, WrongType
from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.collection.fixpoint import open_loop
from vernier.operators.language.collection.rows import conform
from vernier.operators.language.expr.arguments import checked_methods
from vernier.operators.language.plan.node import ROOT, Node, Params, walk
from vernier.operators.language.types.duration import nanoseconds
from vernier.operators.language.types.schema import RowType, Schema, check_name

MAX_STEPS = 10_000


@dataclass(eq=False)
class Definition:
    """The definition of a variable, once the program has set it."""

    body: Node | None = None


@dataclass(frozen=True, eq=False)
class DelayedNode(Node):
    """What the definition held `ns` ago. The key of this node leaves out the structure of the definition, which may
    contain the node itself; variables are distinguished by name."""

    kind: ClassVar[str] = "delayed"
    name: str
    row: RowType
    ns: int
    max_steps: int
    definition: Definition = field(default_factory=Definition)

    def params(self) -> Params:
        return (self.name, self.ns, *map(tuple, self.row.to_json()))

    def _schema(self) -> RowType:
        return self.row

    @property
    def body(self) -> Node:
        """The definition. Raises ProgramError when the program has not set it."""
        if self.definition.body is None:
            raise ProgramError(
                problem=f"the variable {self.name!r} is used but never set; say what it is: .set(collection)",
                where=self.where,
            )
        return self.definition.body


@checked_methods
class Variable(Collection):
    """A collection that is defined later, by `set`, and holds what its definition held `delay` ago; before that,
    nothing.

    name: for errors and the plan, unique in a program. schema: a subclass of vn.Schema. delay: above 0, e.g. "1s" or
    nanoseconds. The engine works through time in steps no wider than the smallest delay, so 1 ns is legal and slow.
    max_steps: after this many steps in which only variables change, the epoch stops with an error that names them,
    since a cycle need not settle.
    """

    def __init__(
        self, name: str, schema: type[Schema] | RowType, *, delay: str | int, max_steps: int = MAX_STEPS
    ) -> None:
        check_name(name, "a variable")
        row = schema if isinstance(schema, RowType) else getattr(schema, "row_type", None)
        if not isinstance(row, RowType) or not row.fields:
            raise WrongType(problem=f"variable {name!r} needs a subclass of vn.Schema, not {schema!r}")
        ns = nanoseconds(delay, f"the delay of variable {name!r}")
        if ns == 0:
            raise WrongType(problem=f"variable {name!r} needs a delay above 0: at its own time it would define itself")
        if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
            raise WrongType(problem=f"max_steps must be a positive integer, not {max_steps!r}")
        loop = open_loop()
        if loop is not ROOT:
            raise BadLoop(
                problem=f"variable {name!r} in the body of fixpoint {loop.name!r}: a loop is taken to its limit at "
                "each data time by itself, without a delay; the loop's own variables are its parameters"
            )
        super().__init__(DelayedNode(name, row, ns, max_steps))

    def _of(self, node: Node) -> Collection:  # type: ignore[override]
        return Collection(node)

    def set(self, collection: Collection) -> None:
        """Define the variable once, by a collection with its columns (in any order). Raises subclasses of
        ProgramError."""
        node = self.node
        assert isinstance(node, DelayedNode)
        if not isinstance(collection, Collection):
            raise WrongType(problem=f"variable {node.name!r} is set to a collection, not to {collection!r}")
        if node.definition.body is not None:
            raise ProgramError(problem=f"variable {node.name!r} is set already, at {node.definition.body.where}")
        if collection.node.scope is not ROOT:
            raise BadLoop(
                problem=f"variable {node.name!r} is set to a collection from inside the body of fixpoint "
                f"{collection.node.scope.name!r}; use what the fixpoint returns"
            )
        node.definition.body = conform(collection.node, node.schema, f"variable {node.name!r}")


def delayed_below(nodes: Sequence[Node]) -> list[DelayedNode]:
    """The delayed variables that collections depend on, through definitions too, in a fixed order.

    Raises ProgramError for a variable that is never set, NameClash for two with the same name.
    """
    found: dict[str, DelayedNode] = {}
    seen: set[int] = set()
    todo = list(nodes)
    while todo:
        for node in walk(todo):
            if isinstance(node, DelayedNode) and id(node) not in seen:
                seen.add(id(node))
                if node.name in found:
                    raise NameClash(
                        problem=f"two variables have the name {node.name!r}, the other at {found[node.name].where}",
                        where=node.where,
                    )
                found[node.name] = node
        todo = [node.body for node in found.values() if id(node.body) not in seen]
        seen.update(id(node) for node in todo)
    return list(found.values())
