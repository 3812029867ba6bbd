"""Aggregates that ranks choose from groups, in the form that kernels/chosen.py takes."""

from __future__ import annotations

from collections.abc import Sequence

from vernier.operators.group_functions.aggregations import Item, output
from vernier.operators.kernels import chosen
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.reduction_ops import Ranks
from vernier.operators.planning.stages import Words

_TREES = {
    "quantile": chosen.COPIES,
    "mode": chosen.BEST,
    "min": chosen.PRESENCE,
    "max": chosen.PRESENCE,
    "count_distinct": chosen.PRESENCE,
}
_KINDS = {
    "quantile": chosen.QUANTILE,
    "mode": chosen.MODE,
    "min": chosen.LEAST,
    "max": chosen.GREATEST,
    "count_distinct": chosen.DISTINCT,
}

Choices = tuple[tuple[Words, ...], tuple[Words, ...]]
"""The columns and the items that kernels/chosen.py takes."""


def choices(items: Sequence[Item], val: RowType) -> Choices | None:
    """The columns and the items of these aggregates of the columns `val`; None if one of them needs whole groups."""
    made, columns, rows = output(items), list[Words](), []
    for item in items:
        out = made.field(item.name)
        flag = out.offset if item.nullable else -1
        if item.kind == "count" and len(item.columns) < 2:
            null = [val.field(name).offset for name in item.columns if val.field(name).nullable]
            rows.append((chosen.COUNT, null[0] if null else -1, out.value_offset, flag, 0, 0))
            continue
        if item.kind not in _TREES or len(item.columns) != 1:
            return None
        found = val.field(item.columns[0])
        null_flag = found.offset if found.nullable else -1
        column = (_TREES[item.kind], null_flag, found.value_offset, found.type.words)
        if column not in columns:
            columns.append(column)
        share, of = (item.option.numerator, item.option.denominator) if item.kind == "quantile" else (0, 0)
        if max(share, of) >= 2**63:
            return None
        rows.append((_KINDS[item.kind], columns.index(column), out.value_offset, flag, share, of))
    return tuple(columns), tuple(rows)


def ranked_column(items: Sequence[Item], val: RowType) -> str | None:
    """The one column whose ranks these aggregates choose from, if beside quantiles of it there are only counts of its
    values and of all rows; None if they need more of a group."""
    named = {item.columns[0] for item in items if item.kind == "quantile"}
    counted = {name for item in items if item.kind == "count" for name in item.columns if val.field(name).nullable}
    others = any(item.kind not in ("quantile", "count") for item in items)
    if others or len(named) != 1 or not counted <= named or val.text_words:
        return None
    return named.pop()


def ranks_of(items: Sequence[Item], val: RowType, column: str) -> Ranks:
    """What they depend on, if vals begin with that column."""
    shares = sorted({float(item.option) for item in items if item.kind == "quantile"})
    return Ranks(0 if val.field(column).nullable else -1, tuple(shares))
