"""Columns as arguments: methods like `select` take names of columns, expressions, and keywords that name values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vernier.operators.errors import ProgramError, WrongType, listed
from vernier.operators.language.expr.expression import Alias, Column, Expr, as_expr


def as_column(value: object) -> Expr:
    """Like as_expr, but text names a column, as in `select`, `group_by` and aggregates."""
    return Column(value) if isinstance(value, str) else as_expr(value)


def named(positional: Sequence[object], keyword: Mapping[str, object], what: str) -> list[tuple[str, Expr]]:
    """The (name, expression) pairs of a call such as select("a", c=col("b") + 1). Raises ProgramError if one has no
    name."""
    pairs: list[tuple[str, Expr]] = []
    for value in positional:
        if isinstance(value, (list, tuple)):
            raise WrongType(problem=f"{what} takes columns one by one, not in a {type(value).__name__}: write *[...]")
        expr = as_column(value)
        if expr.output_name is None:
            raise ProgramError(
                problem=f"the value {expr} needs a name: write {what}(name={expr}) or ({expr}).alias(...)"
            )
        pairs.append((expr.output_name, expr))
    pairs.extend((name, as_column(value)) for name, value in keyword.items())
    seen = [name for name, _ in pairs]
    twice = [name for name in seen if seen.count(name) > 1]
    if twice:
        raise ProgramError(problem=f"{what} uses the name {twice[0]!r} twice (names: {listed(seen)})")
    return [(name, expr.part if isinstance(expr, Alias) else expr) for name, expr in pairs]
