"""Substitution: expressions with other expressions in place of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from vernier.operators.language.expr.expression import Column, Expr


def substituted(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with `values` in place of its columns. Raises KeyError for a column without a value."""
    if isinstance(expr, Column):
        return values[expr.name]
    tree: Any = expr  # every other expression is a dataclass
    made: Expr = replace(tree, **{field.name: _part(getattr(tree, field.name), values) for field in fields(tree)})
    return made


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with its columns renamed."""
    return substituted(expr, {old: Column(new) for old, new in names.items()})


def _part(part: Any, values: Mapping[str, Expr]) -> Any:
    if isinstance(part, Expr):
        return substituted(part, values)
    if isinstance(part, tuple):
        return tuple(_part(one, values) for one in part)
    return part
