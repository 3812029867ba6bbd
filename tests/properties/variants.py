"""Operators of random plans: what each does in the oracle's language, and how a program writes it.

Every collection has two integer columns a and b; so has what comes out. Numbers are kept small and nulls are replaced,
on both sides alike. Families are in files of their own; plans.py draws from all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import vernier as vn
from tests.oracle.plan import Filter, Node, Row
from vernier import col
from vernier.operators.language.expr.expression import Expr, Nullability

LOW, HIGH = -3, 6
"""Computed values outside of this range are filtered out."""


@dataclass(frozen=True)
class Variant:
    """An operator on `arity` collections, in both languages. `loops`: whether it may be inside of loops."""

    oracle: Callable[..., Node]
    product: Callable[..., vn.Collection]
    arity: int = 1
    loops: bool = True


Family = dict[str, Variant]


def filled(name: str, value: int) -> Expr:
    """A column with a value in the place of nulls, of a type without nulls."""
    return Nullability(vn.when(col(name).is_null(), vn.lit(value)).otherwise(col(name)), False)


def or_else(value: int | None, other: int) -> int:
    """A value, or the other one for null."""
    return other if value is None else value


def small(node: Node) -> Node:
    """The rows whose last value is in the range."""
    return Filter(node, lambda row: LOW <= row[-1] <= HIGH)


def small_b(collection: vn.Collection) -> vn.Collection:
    """The same in a program."""
    return collection.filter((col("b") >= LOW) & (col("b") <= HIGH))


def pair(left: Row | None, right: Row | None) -> Row:
    """Both sides of an outer join beside one another."""
    return (*(left or (None, None)), *(right or (None, None)))
