"""Schemas: the columns of a row, and where their words lie.

A program writes a Schema class. The engine uses RowType, its immutable form, which knows the words of every column.
"""

from __future__ import annotations

import inspect
import keyword
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.errors import BadValue, NameClash, UnknownColumn, WrongType, meant
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.options import ABSENT, Option
from vernier.operators.language.types.parts import Composed, Slot, words_of
from vernier.operators.language.types.scalars import Type, Values, Words, as_type, parse, spell
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String

if TYPE_CHECKING:
    from vernier.storage.strings.string_heap import Heap

COMPOSED: tuple[type[Composed], ...] = (Decimal, String, Binary, List, Struct)
"""The types of several parts. `parse` knows only types that have been imported; naming them here imports them all."""
ALL_ROWS, EVERY_ROW = CONSTANT_KEYS = "_all", "every row"
"""The column, a constant, that is the key of what is computed over all rows: in Python and in SQL. No program can use
names that begin so."""


@dataclass(frozen=True)
class Field:
    """One column: its words are row[offset : offset + words]; if nullable, the null word (0 null, 1 value) is the
    first."""

    name: str
    type: Type
    nullable: bool
    offset: int

    @property
    def words(self) -> int:
        """How many words a value takes."""
        return self.type.words + int(self.nullable)

    @property
    def value_offset(self) -> int:
        """Where the words of the value itself begin."""
        return self.offset + int(self.nullable)

    @cached_property
    def slot(self) -> Slot:
        """The column's type and nullability."""
        return Slot(self.type, self.nullable)

    @property
    def text_words(self) -> tuple[int, ...]:
        """The words of a row at which the texts of this column begin."""
        return tuple(self.value_offset + at for at in self.type.text_words)

    def encode(self, values: pa.Array | pa.ChunkedArray | Values, heap: Heap | None = None) -> Words:
        """Encode n values as int64[n, words]. Raises BadValue, naming the column, for values that do not fit.

        heap: receives the contents of long texts.
        """
        try:
            if isinstance(values, np.ndarray) and not self.nullable:
                return self.type.encode(values)
            array = _as_array(values) if isinstance(self.type, Composed) else self.type.to_arrow(values)
            if not self.nullable:
                if array.null_count:
                    raise BadValue(column=self.name, problem="null, but its type has no `| None`")
                return self.type.encode(array, heap)
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            out = np.zeros((len(array), self.words), np.int64)
            out[:, 0] = valid
            out[valid, 1:] = self.type.encode(array.drop_null(), heap)
            return out
        except BadValue as error:
            raise BadValue(column=self.name, problem=error.problem) from error

    def encode_python(self, values: Sequence[Any], heap: Heap | None = None) -> Words:
        """Like `encode`, from Python values with None for null; for tests and small inputs."""
        if not isinstance(self.type, Composed):
            try:
                array = self.type.of_python(values)
            except BadValue as error:
                problem = error.problem.replace(str(self.type), spell(self.type, self.nullable), 1)
                raise BadValue(column=self.name, problem=problem) from error
            return self.encode(array)
        try:
            if not self.nullable and None in values:
                raise BadValue(column=self.name, problem="null, but its type has no `| None`")
            return words_of(self.slot.kinds, self.slot.split_python(values), len(values), heap)
        except BadValue as error:
            raise BadValue(column=self.name, problem=error.problem) from error

    def decode(self, words: Words, heap: Heap | None = None) -> pa.Array:
        """Decode int64[n, words] of this column to an Arrow array. heap: holds the contents of long texts."""
        if not self.nullable:
            return self.type.decode(words, heap)
        array = self.type.decode(words[:, 1:], heap)
        return pc.if_else(pa.array(words[:, 0] != 0), array, pa.scalar(None, array.type))


def _as_array(values: pa.Array | pa.ChunkedArray | Values) -> pa.Array:
    array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


class RowType:
    """The columns of a collection: names, types and word offsets. Immutable; equal when all columns are equal.

    options: what a source's schema says about its columns besides their types; former: the row types that the source
    had before, the newest last. Both concern messages and rows from before a change alone, and no comparison.
    """

    def __init__(
        self,
        columns: Iterable[tuple[str, Type, bool]],
        options: Mapping[str, Option] | None = None,
        former: Sequence[RowType] = (),
    ) -> None:
        self.options: Mapping[str, Option] = options or {}
        self.former: tuple[RowType, ...] = tuple(former)
        fields, offset = [], 0
        for name, kind, nullable in columns:
            fields.append(Field(name, kind, nullable, offset))
            offset += fields[-1].words
        self.fields: tuple[Field, ...] = tuple(fields)
        self.width: int = offset
        self._by_name = {field.name: field for field in fields}
        if len(self._by_name) < len(fields):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise NameClash(problem=f"two columns would have the name {twice!r}; rename one of them")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(field.name for field in self.fields)

    def after(self, former: Sequence[RowType]) -> RowType:
        """The same columns, of a source that had these row types before."""
        return RowType(((f.name, f.type, f.nullable) for f in self.fields), self.options, former)

    @cached_property
    def changed(self) -> bool:
        """Whether messages may have been written for other columns than these."""
        return bool(self.options or self.former)

    @cached_property
    def earlier_names(self) -> Mapping[str, str]:
        """The columns by their earlier names, except names that columns have now."""
        named = {old: name for name, option in self.options.items() for old in option.was}
        return {old: name for old, name in named.items() if old not in self}

    @cached_property
    def dropped(self) -> frozenset[str]:
        """Names of columns that the source no longer has."""
        names = {name for row in self.former for name in row.names}
        return frozenset(names - set(self.names) - self.earlier_names.keys())

    def defaults(self, name: str) -> Any:
        """The value of a column in rows that do not have it; ABSENT if it must be there. Null is None."""
        if name in self.options and self.options[name].default is not ABSENT:
            return self.options[name].default
        return None if self.field(name).nullable else ABSENT

    def of_length(self, count: int) -> RowType | None:
        """The row type to which an array of this many values belongs: this one, or the newest of earlier ones."""
        return next((row for row in (self, *reversed(self.former)) if len(row.fields) == count), None)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def field(self, name: str, what: str = "the collection") -> Field:
        """The column of that name. Raises UnknownColumn, which suggests the nearest name."""
        if name not in self._by_name:
            raise UnknownColumn.of(name, self.names, what)
        return self._by_name[name]

    def index(self, names: Sequence[str]) -> Words:
        """The word indexes of the named columns, in the order of `names`: `rows[:, index]` projects to them."""
        parts = [np.arange(f.offset, f.offset + f.words) for f in map(self.field, names)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def take(self, names: Sequence[str]) -> RowType:
        """The row type of the named columns, in that order."""
        return RowType((f.name, f.type, f.nullable) for f in map(self.field, names))

    @cached_property
    def text_words(self) -> tuple[int, ...]:
        """The words of a row at which texts begin (storage/strings/string_heap.py), including those inside structs; ()
        where no column has any."""
        return tuple(at for field in self.fields for at in field.text_words)

    def encode(self, columns: Mapping[str, pa.Array | pa.ChunkedArray | Values], heap: Heap | None = None) -> Words:
        """Encode n values per column as int64[n, width], C-contiguous, O(n * width). Raises BadValue, naming the
        column.

        heap: receives the contents of long texts; without one, a long text raises TextMissing.
        """
        for name in self.names:
            if name not in columns:
                raise BadValue(column=name, problem="missing")
        n = len(columns[self.names[0]]) if self.names else 0
        out = np.empty((n, self.width), np.int64)
        for field in self.fields:
            out[:, field.offset : field.offset + field.words] = field.encode(columns[field.name], heap)
        return out

    def encode_rows(
        self, rows: Iterable[Sequence[Any] | Mapping[str, Any]], heap: Heap | None = None, *, whole: bool = True
    ) -> Words:
        """Encode Python rows (tuples in column order or dicts); for tests and small inputs. Raises BadValue.

        whole: dicts must have all columns, otherwise KeyError. With whole=False, dicts may omit nullable columns but
        must not have unknown ones.
        """
        table = [self._in_order(row, whole) if isinstance(row, Mapping) else tuple(row) for row in rows]
        for row in table:
            if len(row) != len(self.fields):
                problem = f"the row {row!r} has {len(row)} values for the columns {', '.join(self.names)}"
                raise BadValue(column=self.names[min(len(row), len(self.names) - 1)], problem=problem)
        out = np.empty((len(table), self.width), np.int64)
        for i, field in enumerate(self.fields):
            words = field.encode_python([row[i] for row in table], heap)
            out[:, field.offset : field.offset + field.words] = words
        return out

    def _in_order(self, row: Mapping[str, Any], whole: bool) -> tuple[Any, ...]:
        """The values of a dict in column order; an omitted nullable column is null. Raises BadValue."""
        if whole:
            return tuple(row[name] for name in self.names)
        for name in row:
            if name not in self.names:
                raise BadValue(column=name, problem=f"there is no such column{meant(name, self.names)} ({self})")
        for field in self.fields:
            if field.name not in row and not field.nullable:
                raise BadValue(column=field.name, problem=f"the row {dict(row)!r} has no value for it")
        return tuple(row.get(name) for name in self.names)

    def decode(self, words: Words, heap: Heap | None = None) -> pa.RecordBatch:
        """Decode int64[n, width] to an Arrow record batch with this type's columns. heap: holds the long texts."""
        arrays = [field.decode(words[:, field.offset : field.offset + field.words], heap) for field in self.fields]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def decode_rows(self, words: Words, heap: Heap | None = None) -> list[tuple[Any, ...]]:
        """Decode int64[n, width] to Python tuples in column order; TimestampNs as integers of nanoseconds.

        Decimals are decimal.Decimal, lists are lists, structs are dicts. NaN is always the object math.nan, so that
        tuples with it compare equal. heap: holds the contents of long texts.
        """
        columns = [
            field.slot.to_python(field.decode(words[:, field.offset : field.offset + field.words], heap))
            for field in self.fields
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * len(words)

    def shown_key(self, words: Words, heap: Heap | None = None) -> str:
        """One row of words, which is a key, for messages: "src=1, dst=2"; "of all rows" for a constant key."""
        (row,) = self.decode_rows(words, heap)
        # A computed key is "key NAME" until the result gets its columns.
        named = zip((name.removeprefix("key ") for name in self.names), row, strict=True)
        given = [(name, value) for name, value in named if not name.startswith(CONSTANT_KEYS)]
        return ", ".join(f"{name}={value!r}" for name, value in given) or "of all rows"

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of decoded rows."""
        return pa.schema([pa.field(f.name, f.type.arrow, nullable=f.nullable) for f in self.fields])

    def to_json(self) -> list[list[str]]:
        """The columns as [[name, type], ...], for manifests and HTTP."""
        return [[field.name, spell(field.type, field.nullable)] for field in self.fields]

    @classmethod
    def from_json(
        cls, columns: Sequence[Sequence[str]], options: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Self:
        """The inverse of `to_json` and, for a source, of `options_json`. Raises BadValue for an unknown type."""
        read = {
            name: Option(one.get("default", ABSENT), tuple(one.get("was", ()))) for name, one in (options or {}).items()
        }
        return cls(((name, *parse(spelled)) for name, spelled in columns), read)

    def options_json(self) -> dict[str, dict[str, Any]]:
        """The options as JSON, with defaults as messages in JSON have them."""
        return {name: option.to_json() for name, option in self.options.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowType) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __repr__(self) -> str:
        return "(" + ", ".join(f"{name}: {spelled}" for name, spelled in self.to_json()) + ")"


class Schema:
    """Base of the classes that declare a source's columns:

        class Edge(vn.Schema):
            src: vn.Int64
            dst: vn.Int64
            weight: vn.Float64 | None

    A subclass of such a class adds its columns after the inherited ones. Columns have types, no leading underscore in
    their names, and no values but `vn.column(…)`, which says what earlier messages and rows have in them.
    """

    row_type: ClassVar[RowType]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        above = getattr(cls, "row_type", RowType(()))
        columns = [(f.name, f.type, f.nullable) for f in above.fields]
        options = dict(above.options)
        for name, annotation in inspect.get_annotations(cls).items():
            what = f"column {name!r} of schema {cls.__name__}"
            check_name(name, what)
            option = cls.__dict__.get(name)
            if option is not None and not isinstance(option, Option):
                raise WrongType(
                    problem=f"{what} has a value; write `= vn.column(default={option!r})` for what older rows have"
                )
            if isinstance(annotation, str):
                annotation = _resolve(annotation, cls, what)
            columns.append((name, *as_type(annotation, what)))
            if option is not None:
                options[name] = _fitting(option, RowType(columns[-1:]).fields[0], what)
        if not columns:
            raise WrongType(problem=f"schema {cls.__name__} has no columns; write e.g. `node: vn.Int64` in it")
        cls.row_type = RowType(columns, options)


def _fitting(option: Option, field: Field, what: str) -> Option:
    """The options of a column, if they fit its type. Raises WrongType."""
    if option.default is ABSENT:
        return option
    if field.nullable:
        raise WrongType(problem=f"{what} may hold nulls, so older rows have null there; leave its default out")
    try:
        field.encode_python([option.default])
    except BadValue as error:
        raise WrongType(problem=f"{what} cannot have the default {option.default!r}: {error.problem}") from error
    return option


def check_name(name: str, what: str) -> None:
    """Refuse a column name that a program could not use: not an identifier, a keyword, or with a leading underscore."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise WrongType(
            problem=f"{what}: {name!r} is not a valid name for a column; use letters, digits and _, a letter first"
            + (", and no word of Python's own" if keyword.iskeyword(name) else "")
        )


def _resolve(text: str, cls: type, what: str) -> object:
    """Evaluate an annotation that the program's `from __future__ import annotations` left as text."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") != cls.__module__:
        frame = frame.f_back
    try:
        return eval(text, frame.f_globals, frame.f_locals)
    except Exception as error:
        raise WrongType(problem=f"{what} has a type that cannot be found: {text} ({error})") from error
