"""The reductions: methods that compute rows from all rows of a key."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from vernier.operators.errors import NameClash, ProgramError, UnknownName, WrongType
from vernier.operators.group_functions.multiplicities import Multiplicities
from vernier.operators.group_functions.rows import ReduceRows, RowFunction
from vernier.operators.language.collection.reductions import ReduceNode, ThresholdNode
from vernier.operators.language.collection.rows import C
from vernier.operators.language.expr.arguments import checked_methods
from vernier.operators.language.expr.columns import named
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Column, Expr, ExprLike, Literal
from vernier.operators.language.expr.functions import check_function
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.logical import AggregateNode, DistinctNode, ProjectNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.plan.vectors import Vector
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import ALL_ROWS, Schema, check_name


def distinct(self: C) -> C:
    """Each row that is present (multiplicity above 0) exactly once."""
    # also checks that the loop of `self` is still open, even where no DistinctNode is needed
    made = DistinctNode(self.node)
    return self if self.node.is_set else self._of(made)


def threshold(self: C, copies: int | Callable[[Any], Any]) -> C:
    """Each row whose multiplicity is at least `copies`, once; or each row with a multiplicity that a function
    computes.

    A function gets an int64 array of multiplicities, none of them 0, and returns an array of as many integers; 0
    drops the row. It must be pure. An exception in it stops the epoch as UserCodeFailed.
    """
    if isinstance(copies, int):
        if isinstance(copies, bool) or not 1 <= copies < 2**63:
            raise WrongType(problem=f"threshold takes a number of copies from 1 on, not {copies}")
        return distinct(self) if copies == 1 else self._of(ThresholdNode(self.node, copies))
    check_function(copies, "threshold")
    return self._of(ReduceNode(self.node, self.columns, Multiplicities(copies)))


def group_by(self: C, *keys: str | Expr, **named_keys: str | ExprLike) -> "Grouped[C]":
    """Group rows by columns or named values, for `.agg(...)`. Nulls form one group. Without keys, all rows are one
    group."""
    self._check_texts(named_keys, "group_by")
    pairs = named(keys, named_keys, "group_by")
    for name, expr in pairs:
        check_name(name, "a key of group_by")
        bind(expr, self.schema)
    return Grouped(self, pairs)


def reduce(self: C, fn: RowFunction, *, keys: Sequence[str | Expr] | str | Expr = (), returns: type[Schema]) -> C:
    """The rows that a function computes from all rows of a key: `fn(key, rows)` is called for each key that
    changed.

    key: a tuple of the columns `keys`. rows: [(row, multiplicity), ...]; each row is a tuple of the other columns,
    in their order, and appears once, with a multiplicity of either sign. The function returns any number of tuples
    of the columns of `returns`, or of (tuple, multiplicity) pairs. The result has the columns of the keys, then
    those of `returns`. The function must be pure; an exception in it stops the epoch as UserCodeFailed. Cost:
    O(rows of the key) per call, one call for each data time at which the key changed.
    """
    given = (keys,) if isinstance(keys, (str, Expr)) else tuple(keys)
    return group_by(self, *given).reduce(fn, returns=returns)


@checked_methods
class Grouped(Generic[C]):
    """A collection with its grouping keys; `.agg(...)` and `.reduce(...)` turn it into a collection again."""

    unfinished = "add .agg(n=vn.count()), with the aggregates that it shows"

    def __init__(self, collection: C, keys: list[tuple[str, Expr]]) -> None:
        self._collection, self._keys = collection, keys

    def agg(self, *vector: Vector, **aggregates: Aggregation) -> C:
        """One row for each group: its keys, then the named aggregates, e.g. `.agg(n=vn.count(), low=vn.min("price"))`.

        A group of counts, sums and means alone is a vector of numbers: the number of its rows and, for each aggregate,
        the number of its values and their sum. It exists while one of these is not 0, so a group with rows may have the
        sum 0. A group with other aggregates exists while any of its rows has a multiplicity other than 0. A `vn.Vector`
        instead of aggregates is a vector of the program's own.
        """
        if len(vector) == 1 and isinstance(vector[0], Vector) and not aggregates:
            aggregates = vector[0].aggregations(self._collection.schema)
        elif vector or not aggregates:
            raise ProgramError(problem="agg takes named aggregates: .agg(n=vn.count()), or one vn.Vector")
        for name, aggregate in aggregates.items():
            check_name(name, "an aggregate")
            if not isinstance(aggregate, Aggregation):
                raise WrongType(problem=f"{name} must be an aggregate such as vn.count(), not {aggregate!r}")
        node, names = self._keyed()
        for name in aggregates:
            if name in names or name in dict(self._keys):
                raise NameClash(problem=f"{name!r} is a key and an aggregate; give one of them another name")
        grouped = AggregateNode(node, names, tuple(aggregates.items()))
        return self._shown(grouped, names, [(name, Column(name)) for name in aggregates])

    def reduce(self, fn: RowFunction, *, returns: type[Schema]) -> C:
        """The rows that `fn` computes from each group (see Collection.reduce): the keys, then the columns of
        `returns`."""
        check_function(fn, "reduce")
        if not (isinstance(returns, type) and issubclass(returns, Schema) and returns is not Schema):
            raise WrongType(problem=f"reduce needs returns=, a subclass of vn.Schema, not {returns!r}")
        for name in returns.row_type.names:
            if name in dict(self._keys):
                raise NameClash(problem=f"{name!r} is a key and a column of returns=; give one of them another name")
        node, names = self._keyed()
        reduced = ReduceNode(node, names, ReduceRows(fn, returns.row_type))
        return self._shown(reduced, names, [(name, Column(name)) for name in returns.row_type.names])

    def _keyed(self) -> tuple[Node, tuple[str, ...]]:
        """The rows with their keys as columns, and the names of the keys.

        Computed keys are added beside the existing columns: groups keep all columns, so rows that differ stay
        different.
        """
        node = self._collection.node
        pairs = self._keys or [(ALL_ROWS, Literal(0, Int64()))]
        if all(expr.column == name for name, expr in pairs):
            return node, tuple(name for name, _ in pairs)
        hidden = [(name if expr.column == name else f"key {name}", expr) for name, expr in pairs]
        kept = [(name, Column(name)) for name in node.schema.names]
        node = ProjectNode(node, (*(pair for pair in hidden if pair[0] not in node.schema.names), *kept))
        return node, tuple(name for name, _ in hidden)

    def _shown(self, grouped: Node, names: tuple[str, ...], values: list[tuple[str, Expr]]) -> C:
        """The groups, with their keys under the names that the program gave them."""
        outputs = [*((name, Column(key)) for (name, _), key in zip(self._keys, names)), *values]
        if tuple(name for name, _ in outputs) == grouped.schema.names:
            return self._collection._of(grouped)
        return self._collection._of(ProjectNode(grouped, tuple(outputs)))

    if not TYPE_CHECKING:  # type checkers report methods that do not exist themselves

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            hint = f".agg(n=vn.{name}(...))" if name in ("count", "sum", "min", "max", "avg") else ".agg(n=vn.count())"
            raise UnknownName(problem=f"a grouped collection has no {name!r}; it has agg and reduce: {hint}")
