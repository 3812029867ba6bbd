"""Row-wise methods: each output row is computed from one input row, and multiplicities multiply.

They are the linear operators; a chain of them runs as one pass.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vernier.operators.errors import BadLoop, ProgramError, WrongType, listed
from vernier.operators.language.collection.rows import C, Rows, check_collection, column_name, conform
from vernier.operators.language.expr.columns import named
from vernier.operators.language.expr.expression import Column, Expr, ExprLike, as_expr
from vernier.operators.language.plan.explode import Explode
from vernier.operators.language.plan.joinfunction import JoinFunction, Produced, check_times
from vernier.operators.language.plan.linear_nodes import ExpandNode
from vernier.operators.language.plan.logical import FilterNode, NegateNode, UnionNode
from vernier.operators.language.plan.node import ROOT
from vernier.operators.language.plan.rowcode import RowFunction
from vernier.operators.language.plan.tables import TableFunction, repeat_row
from vernier.operators.language.types.schema import RowType, Schema
from vernier.operators.location import here


def select(self: C, *columns: str | Expr, **named_columns: str | ExprLike) -> C:
    """One output row for each row: the given columns and values, in order. Text names a column; multiplicities
    stay."""
    self._check_texts(named_columns, "select")
    pairs = named(columns, named_columns, "select")
    if not pairs:
        raise ProgramError(problem=f"select needs at least one column (there are {listed(self.columns)})")
    return self._project(pairs)


def with_columns(self: C, *columns: Expr, **named_columns: str | ExprLike) -> C:
    """All columns plus the given ones, which are appended or, where the name exists, replace that column in its
    place."""
    self._check_texts(named_columns, "with_columns")
    new = dict(named(columns, named_columns, "with_columns"))
    kept = [(name, new.pop(name, Column(name))) for name in self.columns]
    return self._project([*kept, *new.items()])


def rename(self: C, mapping: Mapping[str, str] | None = None, /, **names: str) -> C:
    """Rename columns: `rename(old="new")` or `rename({"old": "new"})`. The order stays."""
    if mapping is not None and not isinstance(mapping, Mapping):
        raise WrongType(problem='rename takes rename(old="new") or rename({"old": "new"})')
    changes = {**(mapping or {}), **names}
    for old, new in changes.items():
        self.schema.field(old)
        if not isinstance(new, str):
            raise WrongType(problem=f"the new name of column {old!r} must be text, not {new!r}")
    return self._project([(changes.get(name, name), Column(name)) for name in self.columns])


def drop(self: C, *columns: str | Expr) -> C:
    """All columns but these. Rows that become equal keep all their copies."""
    dropped = [self.schema.field(column_name(name, "drop")).name for name in columns]
    return self._project([(name, Column(name)) for name in self.columns if name not in dropped])


def cast(self: C, mapping: Mapping[str, Any] | None = None, /, **types: Any) -> C:
    """Convert columns (see Expr.cast): `cast(a=vn.Float64)`. With `a=vn.Int64 | None` the column may hold nulls."""
    changes = {**(mapping or {}), **types}
    for name in changes:
        self.schema.field(name)
    exprs = [(name, Column(name).cast(changes[name]) if name in changes else Column(name)) for name in self.columns]
    return self._project(exprs)


def filter(self: C, *conditions: ExprLike) -> C:
    """The rows for which all conditions are true (not false, not null)."""
    if not conditions:
        raise ProgramError(problem='filter needs a condition: .filter(col("a") > 1)')
    result = self
    for condition in conditions:
        if isinstance(condition, str):
            raise WrongType(problem=f"filter takes an expression, not text; did you mean col({condition!r})?")
        result = result._of(FilterNode(result.node, as_expr(condition)))
    return result


def flat_map(
    self: C,
    function: TableFunction | Callable[[Any], Iterable[Any]],
    *,
    returns: type[Schema] | RowType | None = None,
) -> C:
    """The rows that `function` makes from each row. Multiplicities carry over (see repeat_row for one that
    multiplies).

    `function` is either a table function such as `vn.generate_series("low", "high")`, which adds a column to each
    row, or a function of the program. The latter is called with the row as a named tuple and returns an iterable of
    tuples or dicts with the columns of the schema `returns`. It must be deterministic. It runs in Python, once for
    each change of a row.
    """
    if isinstance(function, TableFunction):
        if returns is not None:
            raise WrongType(problem=f"flat_map({function.name}(...)) knows its columns; leave out returns=")
        return self._of(ExpandNode(self.node, function))
    row = _returned(returns, "flat_map")
    return self._of(ExpandNode(self.node, RowFunction(function, row, here())))


def join_function(
    self: C,
    function: Callable[[Any], Produced],
    *,
    returns: type[Schema] | RowType,
    times: str = "own",
) -> C:
    """The rows, times and diffs that `function` makes from each row, all at once: the general linear operator.

    `function` is called with many rows, as a named tuple of their columns. Int64, Float64 and Bool without nulls are
    numpy arrays, Date and TimestampNs numpy datetime64 arrays, other columns and those that may hold nulls Arrow
    arrays. It returns a vn.Produced: columns of the schema `returns`, and for each update the position of its input
    row, its diff and its time. Diffs are multiplied with the row's. With times="at", `time` is the data time from which
    the update counts (from the row's own time if that is later). With times="after", `after` is how much later than
    the row's own time it counts; not inside a fixpoint. With times="own" there are no times.

    The function must be deterministic, and what it makes of a row must not depend on the other rows of the call. Select
    the columns that it needs before: they are all decoded. Cost: a Python call per batch of changes, O(rows in and
    out); later updates are kept on disk, not only in memory. UserCodeFailed says where it raises or returns wrong
    shapes or a negative `after`; TimeOverflow and DiffOverflow where a time or a diff leaves 64 bits.
    """
    row = _returned(returns, "join_function")
    when = check_times(times)
    if when == "after" and self.node.scope is not ROOT:
        raise BadLoop(
            problem=f"join_function with times='after' inside the body of fixpoint {self.node.scope.name!r}: a loop is "
            "taken to its limit at each data time by itself; use it on what goes into the loop, or on what it returns"
        )
    return self._of(ExpandNode(self.node, JoinFunction(function, row, when, here())))


def _returned(returns: object, what: str) -> RowType:
    """The row type of the schema that a function says it returns. Raises WrongType."""
    row = returns if isinstance(returns, RowType) else getattr(returns, "row_type", None)
    if not isinstance(row, RowType) or not row.fields:
        raise WrongType(
            problem=f"{what}(function, returns=...) needs the schema of the rows that the function returns: "
            f"a subclass of vn.Schema, not {returns!r}"
        )
    return row


def explode(self: C, column: str, *, name: str | None = None, index_name: str | None = None) -> C:
    """One row for each element of the List in `column`, beside the other columns; no row for null and for [].

    The element takes the list's place, under the name `name` or else the list's own. `index_name` adds a column
    after it with the element's position, counted from 0.
    """
    column = column_name(column, "explode")
    return self._of(ExpandNode(self.node, Explode(column, name or column, index_name)))


def map_diff(self: C, factor: str | ExprLike) -> C:
    """The same rows, with each multiplicity multiplied by an integer or an Int64 expression (text names a column;
    null counts as 0)."""
    return self._of(ExpandNode(self.node, repeat_row(factor)))


def union(self: C, *others: Rows) -> C:
    """All rows of all collections; multiplicities add up. Columns are matched by name; their types must be
    equal."""
    everything: list[Rows] = [self, *others]
    for collection in everything:
        check_collection(collection, "union")
    if not others:
        return self
    fields = [
        (f.name, f.type, f.nullable or any(f.name in c.schema and c.schema.field(f.name).nullable for c in others))
        for f in self.schema.fields
    ]
    target = RowType(fields)
    return self._of(UnionNode(tuple(conform(collection.node, target, "the union") for collection in everything)))


def negate(self: C) -> C:
    """All rows with negated multiplicities: `a.union(b.negate())` subtracts."""
    return self._of(NegateNode(self.node))
