"""Methods on ordered groups: the first rows, ranks, neighbours, running sums and extremes.

All of them take `by`, the order (columns as text, `col("a").desc()`, or a list of several), and `within`, the columns
whose values make a group (none: all rows are one group). They see present rows, and treat a row of multiplicity n as n
copies. Ascending order has nulls first, descending order last. Rows that are equal in the order are sorted by all their
columns, ascending, so answers never depend on the order of arrival. Outside loops, a change of all but sums of Float64
costs the rows of the output that change, unless the order begins with a text; else O(rows of its group). Running
extremes need an ascending order without texts for that, or one by all columns in one direction.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from vernier.operators.errors import ProgramError, WrongType
from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.group_functions.ordered import DenseRank, Rank, RowNumber, Shift, TopK
from vernier.operators.group_functions.running import RunningExtreme, RunningSum
from vernier.operators.language.collection.reductions import ReduceNode
from vernier.operators.language.collection.rows import C, Rows, column_name
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Call, Cast, Column, Expr, Literal, as_expr
from vernier.operators.language.expr.order import Order, Orders
from vernier.operators.language.plan.logical import ProjectNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import ALL_ROWS, RowType, check_name

Columns = str | Expr | Sequence[str | Expr]
By = str | Expr | Order
ByList = By | Sequence[By]

_OF_INTEGERS = ("Float64", "Decimal", "TimestampNs")
"""Types whose columns accept an integer as a default."""
_PARTS = 256
"""A top-k over all rows first finds the top rows of this many parts of them, then the top rows of those."""
MOST = 2**31
"""A larger number of rows or positions is refused as a mistake in the program."""


def top_k(self: C, n: int, *, by: ByList, within: Columns = ()) -> C:
    """The first n copies of each group in the order `by`: a row appears once per copy, up to the n-th copy of the
    group.

    Over all rows (without `within`) and for n up to 256, all workers first find the top rows of 256 parts, then the
    top rows of those.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST:
        raise WrongType(problem=f"top_k takes a number of rows from 1 to {MOST}, not {n!r}")
    grouped, order = _group(self, by, within, "top_k")
    rows = self if grouped or n > _PARTS else _in_parts(self, TopK(order, n))
    return _along(rows, TopK(order, n), grouped, None)


def rank(self: C, *, by: ByList, within: Columns = (), name: str = "rank") -> C:
    """SQL's RANK as a further column: 1 + the number of copies that sort before; equal rows share a rank, a gap
    follows."""
    grouped, order = _group(self, by, within, "rank")
    return _along(self, Rank(order, name), grouped, name)


def dense_rank(self: C, *, by: ByList, within: Columns = (), name: str = "dense_rank") -> C:
    """SQL's DENSE_RANK as a further column: 1 + the number of distinct smaller values of the order, without
    gaps."""
    grouped, order = _group(self, by, within, "dense_rank")
    return _along(self, DenseRank(order, name), grouped, name)


def row_number(self: C, *, by: ByList, within: Columns = (), name: str = "row_number") -> C:
    """SQL's ROW_NUMBER as a further column: 1, 2, 3 …; each copy of a row becomes a row with its own number.

    More than 2**26 copies in a group are an error, here and wherever else copies become rows.
    """
    grouped, order = _group(self, by, within, "row_number")
    return _along(self, RowNumber(order, name), grouped, name)


def lag(
    self: C,
    column: str | Expr,
    n: int = 1,
    *,
    by: ByList,
    within: Columns = (),
    name: str = "lag",
    default: Any = None,
) -> C:
    """The value of `column` n copies earlier in the order, as a further column; `default` where there is none."""
    return _shift(self, column, n, by, within, name, default, "lag")


def lead(
    self: C,
    column: str | Expr,
    n: int = 1,
    *,
    by: ByList,
    within: Columns = (),
    name: str = "lead",
    default: Any = None,
) -> C:
    """The value of `column` n copies later in the order, as a further column; `default` where there is none."""
    return _shift(self, column, n, by, within, name, default, "lead")


def running_sum(self: C, column: str | Expr, *, by: ByList, within: Columns = (), name: str = "running_sum") -> C:
    """The sum of `column` up to and including each copy, as a further column; each copy becomes a row of its own.

    `column` is Int64, Decimal (the sum has ten more digits, at most 38) or Float64. Nulls add nothing; the sum is
    null as long as all values so far are null. A sum that does not fit its type raises AggregateOverflow, which
    names the group. Float64 values are added in the order, rounding each time.
    """
    grouped, order = _group(self, by, within, "running_sum")
    return _along(self, RunningSum(order, name, _summand(self, column, grouped, "running_sum")), grouped, name)


def running_min(self: C, column: str | Expr, *, by: ByList, within: Columns = (), name: str = "running_min") -> C:
    """The least value of `column` up to and including each copy, as a further column.

    Values of all types have an order. Nulls are left out; the least value is null as long as all values so far are
    null.
    """
    return _extreme(self, column, by, within, name, "running_min")


def running_max(self: C, column: str | Expr, *, by: ByList, within: Columns = (), name: str = "running_max") -> C:
    """The greatest value of `column` up to and including each copy, as a further column; see `running_min`."""
    return _extreme(self, column, by, within, name, "running_max")


def _extreme(rows: C, column: str | Expr, by: ByList, within: Columns, name: str, what: str) -> C:
    grouped, order = _group(rows, by, within, what)
    value = _summand(rows, column, grouped, what)
    return _along(rows, RunningExtreme(order, name, value, what == "running_max"), grouped, name)


def _shift(rows: C, column: str | Expr, n: int, by: ByList, within: Columns, name: str, default: Any, what: str) -> C:
    if isinstance(n, bool) or not isinstance(n, int) or not -MOST <= n <= MOST:
        raise WrongType(problem=f"{what} looks a number of places away, {-MOST} to {MOST}, not {n!r}")
    grouped, order = _group(rows, by, within, what)
    value = _summand(rows, column, grouped, what)
    given = None if default is None else _default(rows, value, default, what)
    step = n if what == "lag" else -n
    return _along(rows, Shift(order, name, value, step, given), grouped, name)


def _summand(rows: Rows, column: str | Expr, grouped: tuple[str, ...], what: str) -> str:
    name = rows.schema.field(column_name(column, what)).name
    if name in grouped:
        raise WrongType(problem=f"{what} of {name!r}: it is a key of within=, so all its values are equal")
    return name


def _default(rows: Rows, column: str, value: Any, what: str) -> Expr:
    """A default for a column, of the column's type."""
    kind, expr = rows.schema.field(column).type, as_expr(value)
    found = bind(expr, rows.schema)
    if found.kind in (None, kind):
        return expr if found.kind else Cast(expr, kind)
    if type(found.type) is not type(kind) and not (found.type == Int64() and kind.name in _OF_INTEGERS):
        raise WrongType(problem=f"the default of {what} must fit {column!r}, {kind}, but is {value!r}")
    return Cast(expr, kind)


def _in_parts(rows: C, spec: LogicSpec) -> C:
    """The logic's result on each part of all rows. A hash of the row picks the part, so a change costs one part's
    rows."""
    kept = tuple((name, Column(name)) for name in rows.columns)
    part = Call("hash", tuple(Column(name) for name in rows.columns)) % _PARTS
    parts = ReduceNode(ProjectNode(rows.node, (("_part", part), *kept)), ("_part",), spec)
    return rows._of(ProjectNode(parts, kept))


def _group(rows: Rows, by: ByList, within: Columns, what: str) -> tuple[tuple[str, ...], Orders]:
    """The keys of the groups and the order within them. Keys are dropped from the order: they are constant in a
    group."""
    grouped = keys(within, rows.schema, f"within= of {what}")
    order = tuple(one for one in orders(by, rows.schema, what) if one[0] not in grouped)
    if not order:
        raise WrongType(problem=f"{what} is ordered by keys of within= alone, which are equal in all of a group")
    return grouped, order


def _along(rows: C, spec: LogicSpec, grouped: tuple[str, ...], new: str | None) -> C:
    """The rows as the logic returns them, in the order of the columns, with its `new` column."""
    if new is not None:
        check_name(new, "the new column")
    node = grouped_by(rows.node, grouped, spec)
    names = rows.columns if new is None else (*rows.columns, new)
    if node.schema.names == names:
        return rows._of(node)
    return rows._of(ProjectNode(node, tuple((name, Column(name)) for name in names)))


def grouped_by(node: Node, grouped: tuple[str, ...], spec: LogicSpec) -> Node:
    """The logic on groups of equal keys. Without keys it runs on all rows, and the output then begins with a constant
    key."""
    if grouped:
        return ReduceNode(node, grouped, spec)
    kept = tuple((name, Column(name)) for name in node.schema.names)
    return ReduceNode(ProjectNode(node, ((ALL_ROWS, Literal(0, Int64())), *kept)), (ALL_ROWS,), spec)


def orders(by: ByList, row: RowType, what: str) -> Orders:
    """The order that the argument `by` of the method `what` gives: one column or several, each as text, col() or Order.

    Raises ProgramError when it is empty or names a column twice; also UnknownColumn and WrongType.
    """
    given: Iterable[By] = (by,) if isinstance(by, (str, Expr, Order)) else tuple(by)
    pairs: list[tuple[str, bool]] = []
    for one in given:
        column, descending = (one.column, one.descending) if isinstance(one, Order) else (one, False)
        name = row.field(column_name(column, what)).name
        if name in dict(pairs):
            raise ProgramError(problem=f"{what} is ordered by {name!r} twice")
        pairs.append((name, descending))
    if not pairs:
        raise ProgramError(problem=f'{what} needs an order: by="column" or by=[col("column").desc(), ...]')
    return tuple(pairs)


def keys(within: Columns, row: RowType, what: str) -> tuple[str, ...]:
    """The names of key columns from an argument such as `within`; none means all rows together."""
    given = (within,) if isinstance(within, (str, Expr)) else tuple(within)
    names = tuple(row.field(column_name(one, what)).name for one in given)
    if len(set(names)) < len(names):
        raise WrongType(problem=f"{what} has a key column twice: {', '.join(names)}")
    return names
