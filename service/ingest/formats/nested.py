"""Lists and structs in JSON as Arrow arrays, from the spans in which a kernel has found them.

One level at a time, for all values of a batch together: the fields of structs are scanned as bare rows are, and an
element of a list as a row of one column (kernels/json_messages.py). So what is legal is the same at each level. The
judge reads the messages of values that the kernels do not take.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import List, String
from vernier.service.ingest.formats.messages import Ints
from vernier.service.kernels.json_messages import LINE_NAMES, scan_lines
from vernier.service.kernels.json_nested import split_lists
from vernier.service.kernels.json_texts import copy_spans
from vernier.service.kernels.json_values import (
    BOOL,
    CELLS,
    DATE,
    DECIMAL,
    FLOAT64,
    INT64,
    NESTED,
    TEXT,
    TIMESTAMP,
)

MOST_COLUMNS = 62
_NEVER = 1 << 40
"""The length of a name that no text has."""

Bools = npt.NDArray[np.bool_]
_KINDS: dict[type[Type], int] = {
    Int64: INT64,
    Bool: BOOL,
    Float64: FLOAT64,
    Date: DATE,
    TimestampNs: TIMESTAMP,
    String: TEXT,
    Decimal: DECIMAL,
    List: NESTED,
    Struct: NESTED,
}


def about(kind: Type, nullable: bool) -> tuple[int, bool, int, int]:
    """What the kernels must know about a column, a field or an element; its kind is -1 if they do not know the type."""
    whole, fraction = (kind.precision - kind.scale, kind.scale) if isinstance(kind, Decimal) else (0, 0)
    known = not isinstance(kind, Struct) or len(kind.fields) <= MOST_COLUMNS
    return _KINDS.get(type(kind), -1) if known else -1, nullable, whole, fraction


class ForJudge(Exception):
    """The kernels do not take some of n values: bad[n] says which; perhaps others, too."""

    def __init__(self, bad: Bools) -> None:
        self.bad = bad


def array_of(kind: Type, text: Ints, cells: Ints) -> pa.Array:
    """The values of n scanned cells, as an array of the type's own Arrow type. text: uint8[.], in which spans lie.
    O(bytes). Raises ForJudge."""
    if not len(cells):
        return pa.array([], kind.arrow)
    match kind:
        case List():
            return _lists(kind, text, cells)
        case Struct():
            offsets, data = copy_spans(text, cells)
            return pa.StructArray.from_arrays(
                _fields(list(kind.fields.items()), data, offsets), fields=list(kind.arrow)
            )
        case String() | Decimal():
            offsets, data = copy_spans(text, cells)
            values = pa.LargeStringArray.from_buffers(len(cells), pa.py_buffer(offsets), pa.py_buffer(data))
            if isinstance(kind, Decimal):
                # The kernel has counted the digits, so the cast fits. An empty string stands for a null; it is cast as
                # 0.
                values = pc.if_else(pc.equal(pc.binary_length(values), 0), "0", values).cast(kind.arrow)
            return values
        case Float64():
            return pa.array(cells.view(np.float64))
        case Bool():
            return pa.array(cells != 0)
        case Date():
            return pa.array(cells.astype(np.int32)).cast(pa.date32())
        case _:
            return pa.array(cells).cast(kind.arrow)


def _lists(kind: List, text: Ints, spans: Ints) -> pa.Array:
    lists, offsets, data, good = split_lists(text, spans)
    if not good.all():
        raise ForJudge(~good)
    try:
        (elements,) = _fields([("", kind.element)], data, offsets)
    except ForJudge as left:
        failed = np.concatenate(([0], np.cumsum(left.bad)))[lists]
        raise ForJudge(failed[1:] > failed[:-1]) from None
    return pa.LargeListArray.from_arrays(pa.array(lists), elements, type=kind.arrow)


def _fields(fields: Sequence[tuple[str, Slot]], text: Ints, starts: Ints) -> list[pa.Array]:
    """The fields of n bare rows. Row i is text[starts[i]:starts[i + 1]]. Raises ForJudge."""
    names = [name.encode() for name, _ in fields]
    pool = np.frombuffer(b"".join(names), np.uint8)
    # A row has no envelope: the names of its members are longer than any text.
    envelope = [_NEVER * at for at in range(len(LINE_NAMES) + 1)]
    places = np.array([*envelope, *np.cumsum([0, *map(len, names)])], np.int64)
    kinds = np.array([about(slot.type, slot.nullable) for _, slot in fields], np.int64).reshape(-1, 4)
    n = len(starts) - 1
    out, nulls = np.empty((n + 1, CELLS + len(fields)), np.int64), np.empty((n + 1, len(fields)), np.bool_)
    good = np.zeros(n, np.bool_)
    for given in (text, starts):
        given.flags.writeable = False  # kernels are compiled for messages, whose bytes are read-only
    scan_lines(text, starts, pool, places, np.array([0, len(fields)]), kinds, True, out, nulls, good)
    if not good.all():
        raise ForJudge(~good)
    return [_field(slot, text, out[:n, CELLS + c].copy(), nulls[:n, c]) for c, (_, slot) in enumerate(fields)]


def _field(slot: Slot, text: Ints, cells: Ints, null: Bools) -> pa.Array:
    """The values of a field, null where `null` says so. Raises ForJudge."""
    if not null.any():
        return array_of(slot.type, text, cells)
    there = np.flatnonzero(~null)
    where = np.cumsum(~null) - 1
    try:
        return array_of(slot.type, text, cells[there]).take(pa.array(where, mask=null))
    except ForJudge as left:
        bad = np.zeros(len(cells), np.bool_)
        bad[there] = left.bad
        raise ForJudge(bad) from None
