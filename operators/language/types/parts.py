"""Values of several parts: decimals, texts, lists and structs.

A value is split into parts, one array for each: words, null words that decide about the parts after them, and texts.
The parts are stored either as the words of a row (`words_of`), with four words per text
(storage/strings/string_heap.py), or as the bytes of a list's element (texts.py), which contain the text itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.errors import BadValue
from vernier.operators.language.types.scalars import Type, Values, Words, spell
from vernier.storage.strings.contents import TEXT_WORDS, Contents

if TYPE_CHECKING:
    from vernier.storage.strings.string_heap import Heap

WORD, FLAG, TEXT = 0, 1, 2
"""Kinds of parts: a word, the null word of the parts after it, a text."""

TEXT_BYTES = 16 << 20
"""The longest text that a row may hold, in bytes; also the limit for the bytes of a list."""


@dataclass(frozen=True)
class Kind:
    """The kind of a part. span: how many parts after it a FLAG decides about."""

    kind: int
    span: int = 0

    @property
    def words(self) -> int:
        """How many words the part takes in a row."""
        return TEXT_WORDS if self.kind == TEXT else 1


Part = Words | Contents
"""n values of one part: int64[n], or n byte strings."""


class Composed(Type):
    """A type whose values are not numpy arrays: `to_words` takes and `from_words` returns Arrow arrays of type
    `arrow`."""

    plain: ClassVar[bool] = False
    kinds: tuple[Kind, ...]
    numpy = np.dtype(object)

    def set_kinds(self, kinds: Sequence[Kind]) -> None:
        """Set the parts of a value, which determine its words."""
        self.kinds = tuple(kinds)
        offsets = [0, *accumulate(kind.words for kind in kinds)]
        self.words = offsets[-1]
        self.text_words = tuple(at for at, kind in zip(offsets, kinds) if kind.kind == TEXT)

    def split(self, array: pa.Array) -> list[Part]:
        """The parts of n values without nulls. The array may be of any type that can be cast. Raises BadValue."""
        raise NotImplementedError

    def join(self, parts: Sequence[Part]) -> pa.Array:
        """The inverse of `split`: an array of type `arrow`."""
        raise NotImplementedError

    def split_python(self, values: Sequence[Any]) -> list[Part]:
        """The parts of Python values without None; for tests and small inputs. Raises BadValue."""
        raise NotImplementedError

    def to_words(self, values: pa.Array | Values, heap: Heap | None = None) -> Words:
        return words_of(self.kinds, self.split(values), len(values), heap)

    def from_words(self, words: Words, heap: Heap | None = None) -> pa.Array:
        return self.join(parts_of(self.kinds, words, heap))

    def encode(self, values: pa.Array | Values, heap: Heap | None = None) -> Words:
        array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
        return self.to_words(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array, heap)

    def decode(self, words: Words, heap: Heap | None = None) -> pa.Array:
        return self.from_words(words, heap)


@dataclass(frozen=True)
class Slot:
    """A place for values of a type, perhaps nullable: a list's elements, a struct's field, a column."""

    type: Type
    nullable: bool

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The parts of a value."""
        kinds = self.type.kinds if isinstance(self.type, Composed) else (Kind(WORD),) * self.type.words
        return (Kind(FLAG, len(kinds)), *kinds) if self.nullable else kinds

    def __str__(self) -> str:
        return spell(self.type, self.nullable)

    def arrow(self, name: str) -> pa.Field:
        """The Arrow field of decoded values."""
        return pa.field(name, self.type.arrow, nullable=self.nullable)

    def split(self, array: pa.Array) -> list[Part]:
        """The parts of n values. Raises BadValue for a null where none is permitted, and for values that do not fit."""
        if pa.types.is_null(array.type):
            array = pa.nulls(len(array), self.type.arrow)
        if array.null_count == 0:
            return self._flagged(self._split(array), np.ones(len(array), np.bool_))
        if not self.nullable:
            raise BadValue(column="?", problem=f"null in {self.type}, which has no `| None`")
        return self._flagged(self._split(array.drop_null()), array.is_valid().to_numpy(zero_copy_only=False))

    def split_python(self, values: Sequence[Any]) -> list[Part]:
        """Like `split`, from Python values with None for null."""
        valid = np.array([value is not None for value in values], np.bool_)
        if not self.nullable and not valid.all():
            raise BadValue(column="?", problem=f"null in {self.type}, which has no `| None`")
        there = [value for value in values if value is not None]
        if isinstance(self.type, Composed):
            return self._flagged(self.type.split_python(there), valid)
        return self._flagged(self._split(self.type.of_python(there)), valid)

    def join(self, parts: Sequence[Part]) -> pa.Array:
        """The inverse of `split`."""
        own = parts[1:] if self.nullable else parts
        if isinstance(self.type, Composed):
            array = self.type.join(own)
        else:
            array = self.type.decode(np.column_stack([plain(part) for part in own]))
        return with_nulls(array, plain(parts[0]) != 0) if self.nullable else array

    def to_python(self, array: pa.Array) -> list[Any]:
        """Python values of a decoded array, None for null."""
        if array.null_count == 0:
            return self.type.to_python(array)
        there = iter(self.type.to_python(array.drop_null()))
        return [next(there) if valid else None for valid in array.is_valid().to_pylist()]

    def _split(self, array: pa.Array) -> list[Part]:
        if isinstance(self.type, Composed):
            return self.type.split(array)
        return list(np.ascontiguousarray(self.type.encode(array).T))

    def _flagged(self, parts: list[Part], valid: Values) -> list[Part]:
        if not self.nullable:
            return parts
        flag: Part = valid.astype(np.int64)
        return [flag, *parts] if valid.all() else [flag, *(_spread(part, valid) for part in parts)]


def rebuilt(kind: Composed, values: pa.Array | pa.ChunkedArray | Values) -> pa.Array:
    """The values as an Arrow array of exactly the type's own Arrow type, with nulls kept. Raises BadValue."""
    array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    slot = Slot(kind, True)
    return array if array.type == kind.arrow else slot.join(slot.split(array))


def plain(part: Part) -> Words:
    """A part that must be words; raises TypeError for a text."""
    if isinstance(part, Contents):
        raise TypeError("a text where words were expected")
    return part


def with_nulls(array: pa.Array, valid: Values) -> pa.Array:
    """The array with null where `valid` is False."""
    return pc.if_else(pa.array(valid), array, pa.scalar(None, array.type))


def _spread(part: Part, valid: Values) -> Part:
    """A part for all rows from the part of the valid rows: zeros and empty texts elsewhere."""
    if isinstance(part, Contents):
        lengths = np.zeros(len(valid) + 1, np.int64)
        lengths[1:][valid] = np.diff(part.offsets)
        return Contents(part.offsets[0] + np.cumsum(lengths), part.data)
    out = np.zeros(len(valid), np.int64)
    out[valid] = part
    return out


def words_of(kinds: Sequence[Kind], parts: Sequence[Part], n: int, heap: Heap | None) -> Words:
    """The words int64[n, …] of n values from their parts. Raises BadValue for a text that is too long."""
    from vernier.storage.strings.string_heap import (
        encode,  # brings numba, which a program that is only built does not need
    )

    offsets = [0, *accumulate(kind.words for kind in kinds)]
    out = np.empty((n, offsets[-1]), np.int64)
    for kind, part, at in zip(kinds, parts, offsets):
        if isinstance(part, Contents):
            longest = int(np.diff(part.offsets).max(initial=0))
            if longest > TEXT_BYTES:
                raise BadValue(column="?", problem=f"a text of {longest} bytes; the most is {TEXT_BYTES}")
            out[:, at : at + kind.words] = encode(part, heap)
        else:
            out[:, at] = part
    for i, kind in enumerate(kinds):
        if kind.kind == FLAG:
            null = out[:, offsets[i]] == 0
            if null.any():
                out[null, offsets[i] : offsets[i + 1 + kind.span]] = 0
    return out


def parts_of(kinds: Sequence[Kind], words: Words, heap: Heap | None) -> list[Part]:
    """The inverse of `words_of`. Raises TextMissing where a content is not in the heap."""
    from vernier.storage.strings.string_heap import decode  # see words_of

    parts: list[Part] = []
    at = 0
    for kind in kinds:
        parts.append(decode(words[:, at : at + kind.words], heap) if kind.kind == TEXT else words[:, at])
        at += kind.words
    return parts
