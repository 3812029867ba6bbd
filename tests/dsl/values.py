"""Expressions on a batch of Python rows, and the values that they give, for tests against plain rules."""

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import settings

from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.types.scalars import as_type
from vernier.operators.language.types.schema import RowType
from vernier.storage.strings.string_heap import Heap

FEW = settings(max_examples=max(10, settings().max_examples // 5))
"""For tests that are many because there is one for each function."""


def row_type(**columns: object) -> RowType:
    """The row type of columns as a program annotates them."""
    return RowType((name, *as_type(kind, name)) for name, kind in columns.items())


def values(expr: Expr, row: RowType, rows: Iterable[Sequence[Any]]) -> list[Any]:
    """The expression's value for each row, as a view would show it. What it says of nulls is checked, too."""
    heap = Heap()
    bound = bind(expr, row)
    shown = RowType([("x", bound.type, bound.nullable)])
    words = bound.words(row.encode_rows(rows, heap), heap)
    assert words.shape[1] == shown.width
    return [value for (value,) in shown.decode_rows(words, heap)]
