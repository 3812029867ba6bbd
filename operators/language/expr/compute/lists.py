"""Lists and structs in expressions: building them, and taking them apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.expr.compute.conversion import list_array
from vernier.operators.language.expr.compute.vector import Vector
from vernier.operators.language.types.scalars import Values
from vernier.operators.language.types.texts import List


def lengths(array: pa.Array) -> Values:
    """The number of elements of each list; 0 for a null."""
    found: Values = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return found


def starts_of(sizes: Values) -> Values:
    """The position of each list's first element among the elements of all lists."""
    starts: Values = np.cumsum(sizes) - sizes
    return starts


def joined_lists(arrays: Sequence[pa.Array], kind: List) -> Vector:
    """The lists of all arrays, concatenated row by row; null where one of them is null."""
    valid = np.ones(len(arrays[0]), np.bool_)
    for array in arrays:
        valid &= array.is_valid().to_numpy(zero_copy_only=False)
    sizes = [np.where(valid, lengths(array), 0) for array in arrays]
    n = len(valid)
    # The source of each element: its position among the elements of all arrays, in the order of the result.
    lists = np.empty((n, len(arrays)), np.int64)
    starts = np.empty((n, len(arrays)), np.int64)
    before = 0
    for i, array in enumerate(arrays):
        own = lengths(array)
        lists[:, i], starts[:, i] = sizes[i], before + starts_of(own)
        before += int(own.sum())
    flat, size = starts.ravel(), lists.ravel()
    place = np.repeat(flat - starts_of(size), size) + np.arange(int(size.sum()))
    elements = pa.concat_arrays([array.flatten() for array in arrays]).take(pa.array(place))
    return Vector(list_array(lists.sum(axis=1), elements, kind), valid)
