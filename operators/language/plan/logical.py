"""The nodes that programs are made of: sources, projections, filters, unions, reductions and joins.

Other families have their own files: linear_nodes.py, loops.py, and those of the methods that make them
(operators/language/collection). node.py says what every node is.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vernier.operators.errors import NameClash, ProgramError, WrongType, listed
from vernier.operators.language.expr.evaluate import bind, predicate
from vernier.operators.language.expr.expression import Expr, Nullability
from vernier.operators.language.plan.aggregation import Aggregation, aggregate_type
from vernier.operators.language.plan.node import Multiplicity, Node, Params, UnaryNode, walk
from vernier.operators.language.types.scalars import spell
from vernier.operators.language.types.schema import RowType
from vernier.operators.location import NOWHERE, Location


@dataclass(frozen=True, eq=False)
class SourceNode(Node):
    """An input of the program. The configuration says where its updates come from."""

    kind: ClassVar[str] = "source"
    name: str
    row: RowType

    def params(self) -> Params:
        return (self.name, *map(tuple, self.row.to_json()))

    def _schema(self) -> RowType:
        return self.row


@dataclass(frozen=True, eq=False)
class ProjectNode(UnaryNode):
    """One output row for each input row: the named expressions, in order."""

    kind: ClassVar[str] = "project"
    exprs: tuple[tuple[str, Expr], ...]

    def params(self) -> Params:
        return tuple((name, expr.key()) for name, expr in self.exprs)

    def _schema(self) -> RowType:
        if not self.exprs:
            raise ProgramError(problem="a collection needs at least one column", where=self.where)
        bound = [(name, bind(expr, self.input.schema)) for name, expr in self.exprs]
        return RowType((name, part.type, part.nullable) for name, part in bound)

    def _multiplicity(self) -> Multiplicity:
        return min(Multiplicity.POSITIVE, self.input.multiplicity)

    def unique_by(self, keys: Collection[str]) -> bool:
        plain = {name: expr.part if isinstance(expr, Nullability) else expr for name, expr in self.exprs}
        columns = [plain[key].column for key in keys]
        return self.input.unique_by([column for column in columns if column is not None])


@dataclass(frozen=True, eq=False)
class FilterNode(UnaryNode):
    """The rows for which `predicate` is true."""

    kind: ClassVar[str] = "filter"
    predicate: Expr

    def params(self) -> Params:
        return (self.predicate.key(),)

    def _schema(self) -> RowType:
        predicate(self.predicate, self.input.schema)
        return self.input.schema

    def _multiplicity(self) -> Multiplicity:
        return self.input.multiplicity

    def unique_by(self, keys: Collection[str]) -> bool:
        return self.input.unique_by(keys)


@dataclass(frozen=True, eq=False)
class UnionNode(Node):
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

    def _multiplicity(self) -> Multiplicity:
        return min(Multiplicity.POSITIVE, *(node.multiplicity for node in self.inputs))


@dataclass(frozen=True, eq=False)
class NegateNode(UnaryNode):
    """Every multiplicity negated."""

    kind: ClassVar[str] = "negate"


@dataclass(frozen=True, eq=False)
class DistinctNode(UnaryNode):
    """Each row whose multiplicity is above 0, once."""

    kind: ClassVar[str] = "distinct"

    def _multiplicity(self) -> Multiplicity:
        return Multiplicity.SET

    def unique_by(self, keys: Collection[str]) -> bool:
        return set(self.schema.names) <= set(keys) or self.input.unique_by(keys)


@dataclass(frozen=True, eq=False)
class PresentNode(UnaryNode):
    """Each key with a present row (multiplicity above 0), once; `keys` are columns of the input."""

    kind: ClassVar[str] = "present"
    keys: tuple[str, ...]

    def params(self) -> Params:
        return (self.keys,)

    def _schema(self) -> RowType:
        return self.input.schema.take(self.keys)

    def _multiplicity(self) -> Multiplicity:
        return Multiplicity.SET

    def unique_by(self, keys: Collection[str]) -> bool:
        return set(self.keys) <= set(keys)


@dataclass(frozen=True, eq=False)
class AggregateNode(UnaryNode):
    """One row for each key: the key's columns, then the aggregates. `keys` are columns of the input, at least one.

    Without aggregates: each key with a row whose multiplicity is not 0, once.
    """

    kind: ClassVar[str] = "aggregate"
    keys: tuple[str, ...]
    aggs: tuple[tuple[str, Aggregation], ...]

    def params(self) -> Params:
        return (self.keys, tuple((name, agg.key()) for name, agg in self.aggs))

    def _schema(self) -> RowType:
        row = self.input.schema
        columns = [(f.name, f.type, f.nullable) for f in map(row.field, self.keys)]
        for name, agg in self.aggs:
            if agg.kind in Aggregation.hidden:
                continue
            args = [bind(expr, row) for expr in agg.args]
            columns.append((name, *aggregate_type(agg.kind, args, agg.option, str(agg))))
        return RowType(columns)

    def _multiplicity(self) -> Multiplicity:
        return Multiplicity.SET

    def unique_by(self, keys: Collection[str]) -> bool:
        return set(self.keys) <= set(keys)


@dataclass(frozen=True, eq=False)
class JoinNode(Node):
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

    def _multiplicity(self) -> Multiplicity:
        return min(Multiplicity.POSITIVE, self.left.multiplicity, self.right.multiplicity)


def sources_below(node: Node) -> Iterator[SourceNode]:
    """The sources from which a collection is computed."""
    return (below for below in walk([node]) if isinstance(below, SourceNode))


def pair_type(
    left: RowType,
    right: RowType,
    left_on: Sequence[str],
    right_on: Sequence[str],
    *,
    null_safe: bool = False,
    where: Location = NOWHERE,
) -> RowType:
    """The columns of a pair of rows (see JoinNode). Raises WrongType where keys do not fit together, and NameClash."""
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
