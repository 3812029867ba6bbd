"""Column types: how values of a type are encoded as int64 words, and decoded.

A value is one or more words such that comparing words compares values as Spark SQL does; kernels see only words. In a
program a type is used as an annotation (`src: Int64`, `note: String | None`), so the simple types are classes; the
engine holds their instances. A nullable value has one more word before those of its type: 1, or 0 for null, and then
all its words are 0. The types of one word are here; the others consist of parts (parts.py, decimals.py, texts.py,
structs.py). The contents of long texts are not in words but in a Heap (storage/strings/string_heap.py), which types
without texts ignore.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import math
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from vernier.operators.errors import BadValue, ProgramError, WrongType

if TYPE_CHECKING:
    from vernier.storage.strings.string_heap import Heap

Words = np.ndarray[Any, np.dtype[np.int64]]
Values = np.ndarray[Any, np.dtype[Any]]

_MAGNITUDE = np.int64(2**63 - 1)

DATE_MIN, DATE_MAX = -719_162, 2_932_896
"""Days since 1970-01-01 of 0001-01-01 and 9999-12-31, the range of Date."""


class Type:
    """A column type. Two instances are equal when they mean the same values; `str` and `parse` are inverses.

    Many values at once are numpy arrays of dtype `numpy` for `plain` types and Arrow arrays of type `arrow` for the
    others.
    """

    name: ClassVar[str] = ""
    usage: ClassVar[str] = ""
    """How a program writes the type, where the name alone is not a type."""
    plain: ClassVar[bool] = True
    words: int = 1
    text_words: tuple[int, ...] = ()
    """The words of the value at which a text begins; the hash of a long text is two words further on."""
    arrow: pa.DataType
    """The Arrow type of decoded values. Arrow types that cast to it without loss can be encoded."""
    numpy: np.dtype[Any]
    """The type of the numpy array with which expressions compute; object where they compute with Arrow arrays."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__dict__.get("name"):
            _BY_NAME[cls.name] = cls

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return self.name

    def __or__(self, other: None) -> OrNone:
        return OrNone(self)

    def to_words(self, values: pa.Array | Values, heap: Heap | None = None) -> Words:
        """Encode many values (see the class), n -> int64[n, words]; exact, O(n).

        heap: receives the contents of long texts; may be None if there are none.
        """
        return typing.cast(Words, values.astype(np.int64, copy=False).reshape(-1, 1))

    def from_words(self, words: Words, heap: Heap | None = None) -> pa.Array | Values:
        """Decode int64[n, words] to many values (see the class); O(n). heap: holds the contents of long texts."""
        return words[:, 0].astype(self.numpy, copy=False)

    def encode(self, values: pa.Array | Values, heap: Heap | None = None) -> Words:
        """Encode an Arrow or numpy array without nulls as int64[n, words]. Raises BadValue for values that do not
        fit."""
        if isinstance(values, np.ndarray) and values.dtype == self.numpy:
            return self.to_words(values)
        return self.to_words(self._from_arrow(self.to_arrow(values)))

    def to_arrow(self, values: pa.Array | Values) -> pa.Array:
        """The values as an Arrow array of type `arrow`, with nulls kept. Raises BadValue when a value does not fit."""
        array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if array.type == self.arrow:
            return array
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), self.arrow)
        if not self._accepts(array.type):
            raise BadValue(column="?", problem=f"values of Arrow type {array.type} are not {self}")
        try:
            return array.cast(self.arrow)
        except pa.ArrowInvalid as error:
            raise BadValue(column="?", problem=f"not {self}: {error}") from error

    def of_python(self, values: Sequence[object]) -> pa.Array:
        """An Arrow array of Python values, nulls as None; its type may still have to be cast. Raises BadValue."""
        try:
            return pa.array(values, from_pandas=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise BadValue(column="?", problem=f"not {self}: {error}") from error

    def to_python(self, array: pa.Array) -> list[Any]:
        """Python values of an Arrow array of type `arrow` without nulls."""
        return typing.cast(list[Any], array.to_pylist())

    def decode(self, words: Words, heap: Heap | None = None) -> pa.Array:
        """Decode int64[n, words] to an Arrow array of type `arrow`; O(n), without a copy where the layout allows."""
        return pa.array(self.from_words(words), type=self.arrow)

    def _from_arrow(self, array: pa.Array) -> Values:
        return typing.cast(Values, array.to_numpy(zero_copy_only=False))

    def _accepts(self, source: pa.DataType) -> bool:
        return bool(pa.types.is_integer(source))


_BY_NAME: dict[str, type[Type]] = {}


class Int64(Type):
    """A signed 64-bit integer; its word is the integer itself. Arithmetic never wraps: it raises."""

    name = "Int64"
    arrow = pa.int64()
    numpy = np.dtype(np.int64)

    def decode(self, words: Words, heap: Heap | None = None) -> pa.Array:
        return pa.array(np.ascontiguousarray(words[:, 0]), type=self.arrow)


class Bool(Type):
    """True or false; one word, 1 or 0."""

    name = "Bool"
    arrow = pa.bool_()
    numpy = np.dtype(np.bool_)

    def _accepts(self, source: pa.DataType) -> bool:
        return bool(pa.types.is_boolean(source))


class Date(Type):
    """A calendar day of the years 1 to 9999; one word, days since 1970-01-01."""

    name = "Date"
    arrow = pa.date32()
    numpy = np.dtype(np.int64)

    def decode(self, words: Words, heap: Heap | None = None) -> pa.Array:
        return pa.array(words[:, 0].astype(np.int32), type=pa.int32()).cast(self.arrow)

    def _from_arrow(self, array: pa.Array) -> Values:
        days: Values = array.cast(pa.int32()).to_numpy().astype(np.int64)
        if len(days) and (days.min() < DATE_MIN or days.max() > DATE_MAX):
            raise BadValue(column="?", problem="a date outside the years 1 to 9999")
        return days

    def _accepts(self, source: pa.DataType) -> bool:
        return bool(pa.types.is_date(source))


class TimestampNs(Type):
    """An instant; one word, nanoseconds since 1970-01-01T00:00:00Z. Integers count as nanoseconds; the zone is UTC."""

    name = "TimestampNs"
    arrow = pa.timestamp("ns", tz="UTC")
    numpy = np.dtype(np.int64)

    def decode(self, words: Words, heap: Heap | None = None) -> pa.Array:
        return pa.array(np.ascontiguousarray(words[:, 0]), type=pa.int64()).cast(self.arrow)

    def to_python(self, array: pa.Array) -> list[Any]:
        return typing.cast(list[Any], array.cast(pa.int64()).to_pylist())

    def _from_arrow(self, array: pa.Array) -> Values:
        return typing.cast(Values, array.cast(pa.int64()).to_numpy())

    def _accepts(self, source: pa.DataType) -> bool:
        return bool(pa.types.is_timestamp(source) or pa.types.is_integer(source))


class Float64(Type):
    """A double; one word in Spark's order: -0.0 equals 0.0, and there is one NaN, which is the greatest value."""

    name = "Float64"
    arrow = pa.float64()
    numpy = np.dtype(np.float64)

    def to_words(self, values: pa.Array | Values, heap: Heap | None = None) -> Words:
        canonical = np.where(np.isnan(values), np.nan, values + 0.0).astype(np.float64)
        return _flip(canonical.view(np.int64)).reshape(-1, 1)

    def from_words(self, words: Words, heap: Heap | None = None) -> Values:
        return _flip(np.ascontiguousarray(words[:, 0])).view(np.float64)

    def to_python(self, array: pa.Array) -> list[Any]:
        # The same object for every NaN, so that rows with it compare equal.
        return [math.nan if value != value else value for value in array.to_pylist()]

    def _accepts(self, source: pa.DataType) -> bool:
        return bool(pa.types.is_floating(source) or pa.types.is_integer(source))


def _flip(bits: Words) -> Words:
    """Turn the bits of doubles into integers with the same order, or back: below zero the magnitude bits are
    inverted."""
    return np.where(bits < 0, bits ^ _MAGNITUDE, bits)


@dataclass(frozen=True)
class OrNone:
    """The value of `Decimal(10, 2) | None`. Classes already support `|`; instances need this class."""

    type: Type


_SPARK = {
    **dict.fromkeys(("int", "integer", "long", "bigint", "short", "smallint", "byte", "tinyint"), "Int64"),
    **dict.fromkeys(("float", "double", "real"), "Float64"),
    **dict.fromkeys(("timestamp", "timestamp_ns", "timestamp_ltz", "timestamp_ntz", "datetime"), "TimestampNs"),
    **dict.fromkeys(("str", "varchar", "char", "text"), "String"),
    "boolean": "Bool",
    "bytes": "Binary",
    "array": "List",
    "numeric": "Decimal",
}
_PYTHON: dict[object, str] = {
    int: "Int64",
    float: "Float64",
    bool: "Bool",
    str: "String",
    bytes: "Binary",
    datetime.date: "Date",
    datetime.datetime: "TimestampNs",
    decimal.Decimal: "Decimal",
    list: "List",
    dict: "Struct",
}


def as_type(annotation: object, what: str) -> tuple[Type, bool]:
    """The type and nullability that an annotation means; `what` names its place in the error message.

    Accepts a type class or instance, and either of them with `| None`. Raises WrongType for anything else.
    """
    arguments = typing.get_args(annotation)
    if arguments and typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        if len(inner) != 1:
            raise WrongType(problem=f"{what} cannot be one of several types; only `| None` is possible")
        return as_type(inner[0], what)[0], len(inner) < len(arguments)
    if isinstance(annotation, OrNone):
        return as_type(annotation.type, what)[0], True
    if isinstance(annotation, type) and issubclass(annotation, Type) and annotation.name:
        if annotation.usage:
            raise WrongType(problem=f"{what} is {annotation.name} without its arguments; write vn.{annotation.usage}")
        annotation = annotation()
    if isinstance(annotation, Type):
        return annotation, False
    raise WrongType(problem=f"{what} has no Vernier type: {annotation!r}{_hint(annotation)} (types are {names()})")


def _hint(annotation: object) -> str:
    """The hint "; did you mean vn.Int64?" for a Python type, or for the name of a type here or in Spark; otherwise
    ""."""
    if isinstance(annotation, str):
        spelled = annotation.partition("(")[0].strip().lower()
        name = _SPARK.get(spelled, spelled)
    else:
        # For list[int] this is list. An annotation that is no type at all may not be hashable.
        plain = typing.get_origin(annotation) or annotation
        name = _PYTHON.get(plain, "") if isinstance(plain, type) else ""
    found = next((kind.usage or kind.name for kind in _BY_NAME.values() if kind.name.lower() == name.lower()), None)
    return f"; did you mean vn.{found}?" if found else ""


def parse(text: str) -> tuple[Type, bool]:
    """The inverse of `spell`: "Int64 | None" is (Int64(), True). Raises BadValue for text that names no type."""
    try:
        return as_type(_parsed(ast.parse(text, mode="eval").body), "it")
    except (SyntaxError, ValueError, TypeError, LookupError, RecursionError, ProgramError) as error:
        known = f"types are {names()}"
        raise BadValue(column="?", problem=f"no type is spelled {text!r} ({known})") from error


def _parsed(node: ast.expr) -> object:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            inner = as_type(_parsed(left), "it")
            return OrNone(inner[0])
        case ast.Name(id=name):
            return _BY_NAME[name]
        case ast.Constant(value=int() as value):
            return value
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            return _BY_NAME[name](*map(_parsed, args), **{str(one.arg): _parsed(one.value) for one in keywords})
    raise ValueError(ast.dump(node))


def spell(kind: Type, nullable: bool) -> str:
    """The type as a program writes it, e.g. "Int64 | None"."""
    return f"{kind} | None" if nullable else str(kind)


def names() -> str:
    """The names of the types, for messages."""
    return ", ".join(kind.usage or name for name, kind in _BY_NAME.items())
