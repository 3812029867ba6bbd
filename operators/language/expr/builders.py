"""Functions that make an expression from several values: `vn.concat("a", "b")`, `vn.coalesce("a", 0)`.

As in PySpark, text in their arguments names a column; for the text itself write lit("..."). (In methods such as
`x.contains("a")` and operators such as `x + "a"`, text is the text itself.)
"""

from __future__ import annotations

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.columns import as_column, named
from vernier.operators.language.expr.expression import Call, Expr, ExprLike, as_expr


def concat(*values: str | ExprLike) -> Expr:
    """Texts, bytes or lists concatenated in order; null when one of them is null. `a + b` is the same."""
    return Call("concat", tuple(map(as_column, values)))


def concat_ws(separator: ExprLike, *values: str | ExprLike) -> Expr:
    """The texts that are not null, with a separator (text, or an expression) between them; null only when the separator
    is."""
    return Call("concat_ws", (as_expr(separator), *map(as_column, values)))


def coalesce(*values: str | ExprLike) -> Expr:
    """The first value that is not null. If later values could raise, they are computed only where they are needed."""
    if not values:
        raise WrongType(problem="coalesce needs at least one value")
    return Call("coalesce", tuple(map(as_column, values)))


def greatest(*values: str | ExprLike) -> Expr:
    """The greatest of the values that are not null (NaN is greater than all numbers); null when all are null."""
    return _of_several("greatest", values)


def least(*values: str | ExprLike) -> Expr:
    """The least of the values that are not null; null when all are null."""
    return _of_several("least", values)


def _of_several(name: str, values: tuple[str | ExprLike, ...]) -> Expr:
    if len(values) < 2:
        raise WrongType(problem=f"{name} needs at least two values; of a column over rows: .agg(x=vn.max(...))")
    return Call(name, tuple(map(as_column, values)))


def struct(*columns: str | Expr, **fields: str | ExprLike) -> Expr:
    """A Struct of the columns and values, in order: `vn.struct("a", total=col("b") + 1)`."""
    pairs = named(columns, fields, "struct")
    if not pairs:
        raise WrongType(problem='struct needs at least one field: vn.struct("a", b=col("c"))')
    return Call("struct", tuple(expr for _, expr in pairs), tuple(name for name, _ in pairs))


def array(*values: str | ExprLike) -> Expr:
    """A List of the values, which must have a common type."""
    return Call("array", tuple(map(as_column, values)))


def hash(*columns: str | Expr) -> Expr:
    """Int64: a hash of the columns that is the same in every process and in every release with this format. It is never
    null, and nulls are hashed like other values. It is not Spark's hash, and not for secrets."""
    return Call("hash", tuple(map(as_column, columns)))
