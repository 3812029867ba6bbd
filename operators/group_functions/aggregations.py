"""Aggregates in the form that kernels take: their kind, the words of the val that they read and the output words that
they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vernier.operators.kernels import aggregating as kernel
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Float64, Type
from vernier.operators.language.types.schema import RowType

Row = tuple[int, ...]

_OF_INTEGERS = {
    "count": kernel.COUNT,
    "sum": kernel.SUM,
    "avg": kernel.AVG,
    "min": kernel.MIN,
    "max": kernel.MAX,
}
_OF_DOUBLES = _OF_INTEGERS | {"sum": kernel.SUM_FLOAT, "avg": kernel.AVG_FLOAT}
_OF_DECIMALS = _OF_INTEGERS | {"sum": kernel.SUM_DECIMAL, "avg": kernel.AVG_DECIMAL}
_LINEAR = frozenset(range(kernel.COUNT, kernel.AVG_DECIMAL + 1)) | {kernel.PRESENT}
INCREMENTAL = frozenset(_OF_INTEGERS)
"""The incremental aggregates, which a reduction updates at each change. The others read whole groups."""


@dataclass(frozen=True)
class Item:
    """One aggregate. `columns` of the val are its arguments; its output column has this name and type. option: a
    further parameter, such as the share of a quantile or the function of a user's aggregate."""

    name: str
    kind: str
    columns: tuple[str, ...]
    type: Type
    nullable: bool
    option: Any = None

    def key(self) -> tuple[Any, ...]:
        """What distinguishes it from other aggregates: plain values, the same in every process."""
        option = self.option.key() if hasattr(self.option, "key") else str(self.option)
        return (self.name, self.kind, self.columns, str(self.type), self.nullable, option)


def output(items: Sequence[Item]) -> RowType:
    """The columns that the aggregates produce."""
    return RowType((item.name, item.type, item.nullable) for item in items)


def kernel_rows(items: Sequence[Item], val: RowType) -> tuple[Row, ...]:
    """The incremental ones of these items as aggregations for the kernel; the output has the words of all items."""
    made = output(items)
    return tuple(_row(item, val, made) for item in items if item.kind in INCREMENTAL)


def present(least: int = 1) -> Row:
    """The aggregation that emits the key once while any of its vals has at least `least` copies."""
    return (kernel.PRESENT, -1, 0, -1, -1, -1, least, 0)


def copies() -> Row:
    """The aggregation that emits the key as often as its one val has copies, if it has any."""
    return (kernel.COPIES, -1, 0, -1, -1, -1, 0, 0)


def is_accumulable(rows: Sequence[Row]) -> bool:
    """Whether the aggregations need only their own numbers and the previous multiplicity of the changed row."""
    return all(row[kernel.KIND] in _LINEAR for row in rows)


def compared_texts(items: Sequence[Item], val: RowType) -> Row:
    """The words of the val at which the texts that min and max compare begin."""
    wanted = [column for item in items if item.kind in ("min", "max") for column in item.columns]
    return tuple(sorted({word for column in wanted for word in val.field(column).text_words}))


def _row(item: Item, val: RowType, made: RowType) -> Row:
    out = made.field(item.name)
    flag = out.offset if item.nullable else -1
    if not item.columns:
        return (kernel.COUNT, -1, 0, -1, out.value_offset, flag, 0, 0)
    (column,) = item.columns
    found = val.field(column)
    kinds = {Float64: _OF_DOUBLES, Decimal: _OF_DECIMALS}.get(type(found.type), _OF_INTEGERS)
    digits = item.type.precision if isinstance(item.type, Decimal) else 0
    shift = (
        item.type.scale - found.type.scale if isinstance(found.type, Decimal) and isinstance(item.type, Decimal) else 0
    )
    null = found.offset if found.nullable else -1
    return (kinds[item.kind], found.value_offset, found.type.words, null, out.value_offset, flag, digits, shift)
