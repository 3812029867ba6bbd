"""Messages that were written for other columns than the source has now: their rows in the present columns.

A row by name may use a column's earlier name (`vn.column(was=…)`) and have columns that were dropped; a column that it
does not have takes its default. A row without names belongs to the newest row type with as many columns. Cost: some
Python for each row that needs it; rows in the present columns go another way (scan.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from vernier.operators.language.types.options import ABSENT
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.rejects import Refusal, shown

T = TypeVar("T")


def named(value: list[T], row_type: RowType) -> list[T] | dict[str, T]:
    """A row without names: as it is if it has the present number of columns, by name if it has an earlier one."""
    written = row_type.of_length(len(value))
    return value if written is None or written is row_type else dict(zip(written.names, value, strict=True))


def present(value: Mapping[str, T], row_type: RowType, what: str) -> dict[str, T]:
    """A row by the present names, without columns that were dropped. Raises Refusal for a column that has two names."""
    found: dict[str, T] = {}
    for name, given in value.items():
        if name in row_type.dropped:
            continue
        now = row_type.earlier_names.get(name, name)
        if now in found:
            raise Refusal("schema", f"{what} has the column {now} twice, by two of its names: {shown(list(value))}")
        found[now] = given
    return found


def completed(value: dict[str, Any], row_type: RowType) -> dict[str, Any]:
    """A row by name with the defaults, as JSON has them, of columns that it does not have."""
    for name, option in row_type.options.items():
        if name not in value and option.default is not ABSENT:
            value[name] = option.plain
    return value
