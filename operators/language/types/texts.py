"""String, Binary and List: types whose values are stored as texts, byte strings of any length
(storage/strings/string_heap.py)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from vernier.operators.errors import BadValue
from vernier.operators.language.types.parts import TEXT, Composed, Kind, Part, Slot, rebuilt
from vernier.operators.language.types.scalars import as_type
from vernier.storage.strings.contents import Contents


class _Bytes(Composed):
    """A value whose text is its own bytes."""

    python: ClassVar[type]

    def __init__(self) -> None:
        self.set_kinds((Kind(TEXT),))

    def split(self, array: pa.Array) -> list[Part]:
        return [contents_of(self.to_arrow(array))]

    def join(self, parts: Sequence[Part]) -> pa.Array:
        (contents,) = parts
        assert isinstance(contents, Contents)
        buffers = [None, pa.py_buffer(contents.offsets), pa.py_buffer(contents.data)]
        return pa.Array.from_buffers(self.arrow, len(contents), buffers)

    def split_python(self, values: Sequence[Any]) -> list[Part]:
        for value in values:
            if not isinstance(value, self.python):
                raise BadValue(column="?", problem=f"not {self}: {value!r}")
        try:
            return self.split(pa.array(values, self.arrow))
        except UnicodeEncodeError as error:
            raise BadValue(column="?", problem=f"not {self}: {error}") from error


class String(_Bytes):
    """Text in UTF-8 of up to 16 MiB, ordered by code point."""

    name = "String"
    arrow = pa.large_string()
    python = str

    def encode(self, values: Any, heap: Any = None) -> Any:
        # Arrow trusts the producer of an array, so text that is not UTF-8 must be refused here.
        try:
            if isinstance(values, (pa.Array, pa.ChunkedArray)):
                values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadValue(column="?", problem=f"not String: {error}") from error
        return super().encode(values, heap)

    def _accepts(self, source: pa.DataType) -> bool:
        plain = pa.types.is_string(source) or pa.types.is_string_view(source)
        coded = pa.types.is_dictionary(source) and self._accepts(source.value_type)
        return bool(plain or coded or pa.types.is_large_string(source))


class Binary(_Bytes):
    """Up to 16 MiB of bytes, ordered byte by byte."""

    name = "Binary"
    arrow = pa.large_binary()
    python = bytes

    def _accepts(self, source: pa.DataType) -> bool:
        plain = pa.types.is_binary(source) or pa.types.is_binary_view(source)
        return bool(plain or pa.types.is_large_binary(source) or pa.types.is_fixed_size_binary(source))


class List(Composed):
    """A list of values of one type, `vn.List(vn.String | None)`, ordered element by element.

    Its text holds the elements as bytes that sort in the same order (kernels/lists.py), at most 16 MiB of them.
    """

    name = "List"
    usage = "List(vn.Int64)"

    def __init__(self, element: object) -> None:
        self.element = Slot(*as_type(element, "the element of a List"))
        self.arrow = pa.large_list(self.element.arrow("item"))
        self._kinds = np.array([(kind.kind, kind.span) for kind in self.element.kinds], np.int64)
        self.set_kinds((Kind(TEXT),))

    def __str__(self) -> str:
        return f"List({self.element})"

    def split(self, array: pa.Array) -> list[Part]:
        if pa.types.is_fixed_size_list(array.type):
            array = array.cast(pa.large_list(array.type.value_field))
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            raise BadValue(column="?", problem=f"values of Arrow type {array.type} are not {self}")
        offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        return [self._write(self.element.split(elements), offsets - offsets[0])]

    def split_python(self, values: Sequence[Any]) -> list[Part]:
        for value in values:
            if not isinstance(value, (list, tuple)):
                raise BadValue(column="?", problem=f"not {self}: {value!r}")
        offsets = np.cumsum([0, *map(len, values)]).astype(np.int64)
        return [self._write(self.element.split_python([one for value in values for one in value]), offsets)]

    def join(self, parts: Sequence[Part]) -> pa.Array:
        from vernier.operators.kernels.lists import read_lists  # brings numba: see parts.words_of

        (contents,) = parts
        assert isinstance(contents, Contents)
        lists, numbers, offsets, texts = read_lists(self._kinds, contents.data, contents.offsets)
        elements = [
            Contents(offsets[i], texts) if kind.kind == TEXT else numbers[i]
            for i, kind in enumerate(self.element.kinds)
        ]
        return pa.LargeListArray.from_arrays(pa.array(lists), self.element.join(elements), type=self.arrow)

    def to_arrow(self, values: Any) -> pa.Array:
        return rebuilt(self, values)

    def to_python(self, array: pa.Array) -> list[Any]:
        offsets = array.offsets.to_pylist()
        elements = self.element.to_python(array.values)
        return [elements[start:stop] for start, stop in pairwise(offsets)]

    def _write(self, parts: Sequence[Part], lists: np.ndarray[Any, Any]) -> Contents:
        from vernier.operators.kernels.lists import write_lists  # brings numba: see parts.words_of

        m = int(lists[-1])
        numbers = np.zeros((len(parts), m), np.int64)
        addresses, offsets = np.zeros(len(parts), np.int64), np.zeros((len(parts), m + 1), np.int64)
        for i, part in enumerate(parts):
            if isinstance(part, Contents):
                addresses[i], offsets[i] = part.data.__array_interface__["data"][0], part.offsets
            else:
                numbers[i] = part
        return Contents(*write_lists(self._kinds, numbers, addresses, offsets, lists))


def contents_of(array: pa.Array) -> Contents:
    """The bytes of a large_string or large_binary array without nulls; the data are not copied."""
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return Contents(np.zeros(1, np.int64), np.empty(0, np.uint8))
    window = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return Contents(window.copy(), np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8))
