"""Converts Arrow columns to JSON texts, a column at a time, for change files and output topics.

Int64 and TimestampNs are integers. Float64 is a number, or "NaN", "Infinity" or "-Infinity". Dates are "YYYY-MM-DD".
Decimals are strings with all their digits ("1.50"), because a JSON number can lose some on the way. Bytes are base64
strings, lists arrays, structs objects, and null is null.
"""

from __future__ import annotations

import base64
import decimal
import json
import math
from itertools import groupby
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Bool, Date, Float64, TimestampNs, Type
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String, contents_of

_TEXT = pa.large_string()
_ESCAPED = r'["\\\x00-\x1f]'


def json_texts(slot: Slot, array: pa.Array) -> pa.LargeStringArray:
    """The JSON text of each of n values, `null` for nulls. array: of the slot type's own Arrow type. O(bytes)."""
    texts = _plain(slot.type, array)
    if array.null_count == 0:
        return texts
    return pc.if_else(array.is_valid(), texts, pa.scalar("null", _TEXT))


def json_parts(slot: Slot, array: pa.Array) -> list[Any]:
    """What `joined` makes the JSON texts of: columns of text, and texts for all rows. Texts that only need quotation
    marks are thus copied once."""
    if array.null_count == 0:
        match slot.type:
            case Date():
                return ['"', array.cast(_TEXT), '"']
            case Decimal():
                return ['"', _digits(array.cast(_TEXT)), '"']
            case String() if not _any_escaped(array):
                return ['"', array, '"']
    return [json_texts(slot, array)]


def _plain(kind: Type, array: pa.Array) -> pa.LargeStringArray:
    """The JSON texts of the values; arbitrary where a value is null."""
    match kind:
        case Bool():
            return pc.if_else(pc.fill_null(array, False), *(pa.scalar(text, _TEXT) for text in ("true", "false")))
        case Float64():
            return pa.array([_number(value) for value in pc.fill_null(array, 0.0).to_pylist()], _TEXT)
        case TimestampNs():
            return array.cast(pa.int64()).cast(_TEXT)
        case Date():
            return joined('"', pc.fill_null(array.cast(_TEXT), ""), '"')
        case Decimal():
            return joined('"', _digits(pc.fill_null(array.cast(_TEXT), "")), '"')
        case String():
            return _strings(pc.fill_null(array, ""))
        case Binary():
            coded = [base64.b64encode(value).decode() for value in pc.fill_null(array, b"").to_pylist()]
            return joined('"', pa.array(coded, _TEXT), '"')
        case List():
            return _lists(kind, array)
        case Struct():
            parts: list[Any] = []
            for (name, slot), column in zip(kind.fields.items(), array.flatten(), strict=True):
                parts += [f"{',' if parts else '{'}{json.dumps(name)}:", json_texts(slot, column)]
            return joined(*parts, "}")
        case _:
            return pc.fill_null(array.cast(_TEXT), "")


def _strings(array: pa.Array) -> pa.LargeStringArray:
    texts = joined('"', array, '"')
    if not _any_escaped(array):
        return texts
    special = pc.match_substring_regex(array, _ESCAPED)
    escaped = [json.dumps(text, ensure_ascii=False) for text in array.filter(special).to_pylist()]
    return pc.replace_with_mask(texts, special, pa.array(escaped, _TEXT))


def _any_escaped(array: pa.LargeStringArray) -> bool:
    """Whether a character of n texts without nulls is one of _ESCAPED: a look at the bytes is several times as fast as
    a regular expression on each text."""
    contents = contents_of(array)
    data = contents.data[contents.offsets[0] : contents.offsets[-1]]
    return bool(((data < 32) | (data == ord('"')) | (data == ord("\\"))).any())


def _digits(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Rewrite the exponents that Arrow uses for small decimals as plain digits."""
    exponents = pc.match_substring(texts, "E")
    if not pc.any(exponents).as_py():
        return texts
    plain = [f"{decimal.Decimal(text):f}" for text in texts.filter(exponents).to_pylist()]
    return pc.replace_with_mask(texts, exponents, pa.array(plain, _TEXT))


def _lists(kind: List, array: pa.LargeListArray) -> pa.LargeStringArray:
    """Build list texts: put "[" or "," before each element and join all elements, so that each list is a slice of the
    result.
    """
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    full = offsets[1:] > offsets[:-1]
    first = np.zeros(len(array.values), np.bool_)
    first[offsets[:-1][full]] = True
    before = pc.if_else(pa.array(first), *(pa.scalar(text, _TEXT) for text in ("[", ",")))
    stretches = contents_of(joined(before, json_texts(kind.element, array.values)))
    buffers = [None, pa.py_buffer(stretches.offsets[offsets]), pa.py_buffer(stretches.data)]
    lists = pa.Array.from_buffers(_TEXT, len(array), buffers)
    return pc.if_else(pa.array(full), joined(lists, "]"), pa.scalar("[]", _TEXT))


def joined(*parts: Any) -> pa.LargeStringArray:
    """Concatenate columns of text row by row; a plain string is repeated for every row."""
    scalars: list[Any] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        own = list(group)
        scalars += [pa.scalar("".join(own), _TEXT)] if is_text else own
    return cast(pa.LargeStringArray, pc.binary_join_element_wise(*scalars, pa.scalar("", _TEXT)))


def _number(value: float) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return repr(value)
