"""Composed values in JSON: what strings, decimals, lists and structs look like, and what is wrong with an illegal one.

String: a string. Binary: base64 in a string. Decimal: a number, or a number in a string, which no JSON parser rounds.
List: an array. Struct: an object with its fields (a nullable one may be left out), or an array in their order. Inside
lists and structs the plain types look as they do in columns.
"""

import base64
import decimal
import math
import re
from typing import Any

import numpy as np

from vernier.operators.errors import BadValue
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.parts import TEXT_BYTES, Composed, Slot
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String
from vernier.service.codec.instants import BadInstant, InstantOutOfRange, NoZone, parse_day, parse_instant
from vernier.service.ingest.rejects import Reason, Refusal, shown
from vernier.storage.strings.contents import Contents

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LEAST, _GREATEST = -(2**63), 2**63 - 1


class Huge:
    """A number of such a length that it is not worth converting."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __float__(self) -> float:
        return float(self.text)


class Real(float):
    """A number with a point or an exponent, together with its original text."""

    def __new__(cls, text: str) -> "Real":
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


def judge_value(value: object, kind: Composed, what: str) -> Any:
    """The Python value of a column of type `kind`. value: not null. Raises Refusal."""
    found = _value(value, kind, what)
    try:
        parts = kind.split_python([found])
    except BadValue as error:
        reason: Reason = "overflow" if isinstance(kind, Decimal) else "schema"
        raise Refusal(reason, f"{what} is {shown(value)}: {error.problem}") from error
    longest = max((int(np.diff(part.offsets).max()) for part in parts if isinstance(part, Contents)), default=0)
    if longest > TEXT_BYTES:
        raise Refusal("schema", f"{what} has {longest} bytes; the longest may have {TEXT_BYTES}")
    return found


def is_number(text: str) -> bool:
    """Whether a text is a number as JSON spells it; Python would also accept `1_0`, ` 5` and `+5`."""
    return _NUMBER.fullmatch(text) is not None


def exact(value: int | Real | Huge) -> decimal.Decimal | None:
    """A number exactly as it was written; None if no column can hold it."""
    try:
        return decimal.Decimal(value if isinstance(value, int) else value.text)
    except decimal.InvalidOperation:
        return None


def double(value: Any, what: str) -> float:
    """A number as a double. Raises Refusal if it is out of range."""
    number = float(value)
    if math.isinf(number):
        raise Refusal("overflow", f"{what} is beyond the range of a double")
    return number


def _slot(value: object, slot: Slot, what: str) -> Any:
    if value is None:
        if slot.nullable:
            return None
        raise Refusal("schema", f"{what} is null, but its type is {slot.type}")
    return _value(value, slot.type, what)


def _value(value: object, kind: Type, what: str) -> Any:
    match kind:
        case String() if isinstance(value, str):
            return value
        case Binary() if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except ValueError as error:
                raise Refusal("schema", f"{what} is {shown(value)}, which is not base64: {error}") from error
        case Decimal():
            return _decimal(value, kind, what)
        case List() if isinstance(value, list):
            return [_slot(one, kind.element, f"element {i} of {what}") for i, one in enumerate(value)]
        case Struct() if isinstance(value, (dict, list)):
            return _struct(value, kind, what)
        case Bool() if isinstance(value, bool):
            return value
        case Int64() if isinstance(value, int) and not isinstance(value, bool):
            if not _LEAST <= value <= _GREATEST:
                raise Refusal("overflow", f"{what} is {shown(value)}, which does not fit 64 bits")
            return value
        case Float64() if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        case Float64() if isinstance(value, (int, float, Huge)) and not isinstance(value, bool):
            return double(value, what)
        case TimestampNs() if isinstance(value, (int, str)) and not isinstance(value, bool):
            try:
                return parse_instant(value)
            except NoZone as error:
                raise Refusal("schema", f"{what}: {error}") from error
            except (BadInstant, InstantOutOfRange) as error:
                raise Refusal("schema", f"{what} is {shown(value)}, which is not an instant") from error
        case Date() if isinstance(value, str):
            try:
                return parse_day(value)
            except ValueError as error:
                raise Refusal("schema", f"{what} is {shown(value)}, which is not a date") from error
    raise Refusal("schema", f"{what} is {shown(value)}, which is not {kind}")


def _decimal(value: object, kind: Decimal, what: str) -> decimal.Decimal:
    # Integers too long to convert and numbers with a point carry their original text.
    text = value.text if isinstance(value, (Huge, Real)) else value
    if isinstance(text, int) and not isinstance(text, bool):
        return decimal.Decimal(text)
    if isinstance(text, str) and is_number(text):
        found = exact(Huge(text))
        if found is None:
            raise Refusal("overflow", f"{what} is {shown(value)}, whose exponent is beyond {kind}")
        return found
    raise Refusal("schema", f"{what} is {shown(value)}, which is not {kind}")


def _struct(value: dict[str, Any] | list[Any], kind: Struct, what: str) -> dict[str, Any]:
    if isinstance(value, list):
        if len(value) != len(kind.fields):
            raise Refusal("schema", f"{what} has {len(value)} values for the {len(kind.fields)} fields of {kind}")
        value = dict(zip(kind.fields, value, strict=True))
    for name in value:
        if name not in kind.fields:
            raise Refusal("schema", f"{what} has the field {shown(name)}, which {kind} does not")
    for name, slot in kind.fields.items():
        if name not in value and not slot.nullable:
            raise Refusal("schema", f"{what} has no field {name!r}")
    return {name: _slot(value.get(name), slot, f"{name} of {what}") for name, slot in kind.fields.items()}
