"""Aggregates in the form that kernels take: their kind, the words of the val that they read and the output words that
they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vernier.operators.kernels import aggregating as kernel
from vernier.operators.kernels.exact import DECIMAL_WORDS, FLOAT_DIGITS
from vernier.operators.language.plan.aggregation import Aggregation
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
    "component": kernel.SUM,
}
_OF_DOUBLES = _OF_INTEGERS | {"sum": kernel.SUM_FLOAT, "avg": kernel.AVG_FLOAT}
_OF_DECIMALS = _OF_INTEGERS | {"sum": kernel.SUM_DECIMAL, "avg": kernel.AVG_DECIMAL}
_PAGE = 4
"""The least number of words of a page of a vector with sums of doubles."""
LINEAR = frozenset(("count", "sum", "avg", "component", "only", "parts"))
"""The aggregates that are sums: a group of these alone exists while its vector of sums is not 0. "only": the value of
the only row that has one; its words are added up. "parts": a sum without a column in the output, and the group exists
while it is the aggregate's option (operators/planning/group_parts.py)."""
INCREMENTAL = frozenset(_OF_INTEGERS) | {"component"}
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
    return RowType((item.name, item.type, item.nullable) for item in items if item.kind not in Aggregation.hidden)


def kernel_rows(items: Sequence[Item], val: RowType) -> tuple[Row, ...]:
    """The incremental ones of these items as aggregations for the kernel; the output has the words of all items."""
    made = output(items)
    return tuple(_row(item, val, made) for item in items if item.kind in INCREMENTAL)


def present(least: int = 1) -> Row:
    """The aggregation that emits the key once while any of its vals has at least `least` copies."""
    return (kernel.PRESENT, -1, 0, -1, -1, -1, least, 0)


def any_copies() -> Row:
    """The aggregation that emits the key once while any of its vals has copies, however many, also below 0."""
    return present(-(2**63))


def copies() -> Row:
    """The aggregation that emits the key as often as its one val has copies, if it has any."""
    return (kernel.COPIES, -1, 0, -1, -1, -1, 0, 0)


def is_accumulable(rows: Sequence[Row]) -> bool:
    """Whether the aggregations need only the previous multiplicity of the changed row and a number of rows."""
    return all(row[kernel.KIND] == kernel.PRESENT for row in rows)


def vector_rows(items: Sequence[Item], row: RowType, first: int) -> tuple[Row, tuple[Row, ...]]:
    """The words of a row that these linear aggregates read, and their aggregations for kernels/accumulating.py, which
    finds those words from column `first` on."""
    made, words = output(items), dict[int, int]()
    rows = []
    for item in items:
        for kind, word, count, flag, *rest in _vector_rows(item, row, made):
            read = (*((flag,) if flag >= 0 else ()), *(range(word, word + count) if kind != kernel.COUNT else ()))
            for one in read:
                words.setdefault(one, first + len(words))
            rows.append((kind, words.get(word, -1), count, words.get(flag, -1), *rest))
    return tuple(words), tuple(rows)


def _vector_rows(item: Item, row: RowType, made: RowType) -> tuple[Row, ...]:
    """The aggregations of an item of a vector."""
    if item.kind == "parts":
        return ((kernel.SUM, row.field(item.columns[0]).value_offset, 1, -1, -1, -1, item.option, 0),)
    if item.kind != "only":
        return (_row(item, row, made),)
    # A null is zeros, so that the sum of the words of one value and of nulls is the value.
    value, out = row.field(item.columns[0]), made.field(item.name)
    pairs = [(value.value_offset + at, out.value_offset + at) for at in range(value.type.words)]
    if item.nullable:
        pairs.append((value.offset, out.offset))
    return tuple((kernel.SUM, word, 1, -1, to, -1, 0, 0) for word, to in pairs)


def null_flags(rows: Sequence[Row]) -> Row:
    """The null flags of the sums that may be null."""
    sums = (kernel.SUM, kernel.SUM_FLOAT, kernel.SUM_DECIMAL)
    return tuple(row[kernel.FLAG] for row in rows if row[kernel.KIND] in sums and row[kernel.FLAG] >= 0)


def vector_layout(rows: Sequence[Row]) -> tuple[Row, int, int]:
    """Where each aggregation begins in a vector, the words of a page, and the words of all pages.

    Sums of doubles are in the pages behind the first, which has everything else.
    """
    used, floats = int(all(row[kernel.SHIFT] != kernel.UNCOUNTED for row in rows)), 0
    slots = []
    for row in rows:
        kind = row[kernel.KIND]
        slots.append(used)
        used += int(row[kernel.FLAG] >= 0)
        if kind in (kernel.SUM, kernel.AVG):
            used += 2
        elif kind in (kernel.SUM_FLOAT, kernel.AVG_FLOAT):
            floats += 1
        elif kind != kernel.COUNT:
            used += DECIMAL_WORDS
    page = max(used, _PAGE) if floats else used
    return tuple(slots), page, page * (1 + -(-floats * FLOAT_DIGITS // page))


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
    if item.kind == "component":
        shift = kernel.UNCOUNTED
    return (kinds[item.kind], found.value_offset, found.type.words, null, out.value_offset, flag, digits, shift)
