"""Columns that a function of the program is given, and those that it returns, checked against their declared type.

Int64, Float64 and Bool are passed as numpy arrays, Date and TimestampNs as numpy datetime64 arrays, all other types as
Arrow arrays. A function may return any of these, and lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vernier.operators.errors import BadValue, listed
from vernier.operators.language.expr.compute.vector import Vector, from_arrow
from vernier.operators.language.types.scalars import DATE_MAX, DATE_MIN, Date, Type, Values

_SAMPLE = 3
"""How many input rows an error shows."""
_TIMES = {"Date": "datetime64[D]", "TimestampNs": "datetime64[ns]"}


def given_column(vector: Vector, kind: Type, wanted: Values) -> Any:
    """The argument that the function gets, for the `wanted` rows, none of which is null: a copy, which it may
    modify."""
    if not kind.plain:
        return vector.data if wanted.all() else vector.data.filter(pa.array(wanted))
    data = np.ascontiguousarray(vector.data[wanted])
    return data.astype(_TIMES[kind.name]) if kind.name in _TIMES else data


def returned_column(result: Any, kind: Type, nullable: bool, n: int, name: str) -> pa.Array:
    """What a function returned as an Arrow array of `n` values. Raises BadValue, naming `name`, for anything else."""
    try:
        if not isinstance(result, (pa.Array, pa.ChunkedArray)):
            if not isinstance(result, (list, tuple)) and getattr(result, "ndim", 0) != 1:
                raise BadValue(column=name, problem=f"it returned {result!r}, not an array of {n} values")
            result = pa.array(result, from_pandas=False)
        array = kind.to_arrow(result)
        if len(array) != n:
            raise BadValue(column=name, problem=f"it returned {len(array)} values for {n} rows")
        if array.null_count and not nullable:
            said = f"it returned null, but returns={kind}; say returns={kind} | None"
            raise BadValue(column=name, problem=said)
        array.validate(full=True)  # refuses text that is not UTF-8
        if kind == Date():
            _check_days(name, from_arrow(array, kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        raise BadValue(column=name, problem=f"what it returned is not {kind}: {error}") from error
    return array


def _check_days(name: str, vector: Vector) -> None:
    days = vector.data if vector.valid is None else vector.data[vector.valid]
    if len(days) and (days.min() < DATE_MIN or days.max() > DATE_MAX):
        raise BadValue(column=name, problem="it returned a date outside the years 1 to 9999")


def shown_rows(columns: Sequence[Any]) -> str:
    """The first few rows of the input, for display."""
    shown = [column[:_SAMPLE].tolist() for column in columns]
    return listed(repr(row) for row in zip(*shown, strict=True))
