"""Decimal: exact decimal numbers of up to 38 digits."""

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vernier.operators.errors import BadValue, WrongType
from vernier.operators.language.types.parts import WORD, Composed, Kind, Part, plain
from vernier.operators.language.types.scalars import Values, Words

MAX_PRECISION = 38
ONE_WORD = 18
"""The most digits for which the scaled integer fits one word."""

_INTEGERS = pa.decimal128(20, 0)
_FLIP = np.int64(-(2**63))


class Decimal(Composed):
    """A decimal number of `precision` digits, `scale` of them after the decimal point; Spark's type of the same name.

    Its words are the scaled integer: one word for up to 18 digits, otherwise the high and the low half. In Python it is
    a decimal.Decimal; integers are accepted, too. Values that do not fit exactly are refused.
    """

    name = "Decimal"
    usage = "Decimal(10, 2)"

    def __init__(self, precision: int, scale: int = 0) -> None:
        for number, what in ((precision, "precision"), (scale, "scale")):
            if not isinstance(number, int) or isinstance(number, bool):
                raise WrongType(problem=f"the {what} of a Decimal is {number!r}, not an integer")
        if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
            problem = f"Decimal({precision}, {scale}) does not exist: the precision is 1 to {MAX_PRECISION}, the scale"
            raise WrongType(problem=f"{problem} 0 to the precision")
        self.precision, self.scale = precision, scale
        self._one: int = 10**scale
        self.arrow = pa.decimal128(precision, scale)
        self.set_kinds((Kind(WORD),) * (1 if precision <= ONE_WORD else 2))

    def __str__(self) -> str:
        return f"Decimal({self.precision}, {self.scale})"

    def to_arrow(self, values: pa.Array | Values) -> pa.Array:
        array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
        # Arrow casts an integer only to decimals that hold every integer of its type.
        return super().to_arrow(array.cast(_INTEGERS) if pa.types.is_integer(array.type) else array)

    def split(self, array: pa.Array) -> list[Part]:
        array = self.to_arrow(array)
        low, high = _halves(array)
        if self.words == 1:
            # The scaled integer has at most 18 digits. Arrow does not enforce the precision itself, so it is checked
            # here.
            fits = (high == low >> 63) & (np.abs(low) < 10**self.precision) & (low != _FLIP)
            words = [low]
        else:
            bound = 10**self.precision
            (top, rest), (bottom, under) = divmod(bound, 2**64), divmod(-bound, 2**64)
            unsigned = low.view(np.uint64)
            fits = (high < top) | ((high == top) & (unsigned < np.uint64(rest)))
            fits &= (high > bottom) | ((high == bottom) & (unsigned > np.uint64(under)))
            words = [high, low ^ _FLIP]
        if not fits.all():
            value = array[int(np.argmin(fits))]
            raise BadValue(column="?", problem=f"not {self}: {value} has more than {self.precision} digits")
        return [np.ascontiguousarray(word) for word in words]

    def join(self, parts: Sequence[Part]) -> pa.Array:
        n = len(parts[0])
        halves = np.empty((n, 2), np.int64)
        if self.words == 1:
            halves[:, 0] = plain(parts[0])
            halves[:, 1] = halves[:, 0] >> 63
        else:
            halves[:, 1] = plain(parts[0])
            halves[:, 0] = plain(parts[1]) ^ _FLIP
        return pa.Array.from_buffers(self.arrow, n, [None, pa.py_buffer(halves)])

    def split_python(self, values: Sequence[Any]) -> list[Part]:
        # Computed with Python integers, since Arrow reads out of bounds for exponents beyond its tables.
        numbers = [self._scaled(value) for value in values]
        if self.words == 1:
            return [np.array(numbers, np.int64)]
        high = np.array([number >> 64 for number in numbers], np.int64)
        low = np.array([number & (2**64 - 1) for number in numbers], np.uint64).view(np.int64)
        return [high, low ^ _FLIP]

    def _scaled(self, value: object) -> int:
        """The value times ten to the scale, exactly. O(digits), whatever the exponent. Raises BadValue."""
        whole = self.precision - self.scale
        if isinstance(value, int) and not isinstance(value, bool):
            if abs(value) < 10**whole:
                return value * self._one
        elif not isinstance(value, decimal.Decimal) or not value.is_finite():
            way = f"; write Decimal({value!r})" if isinstance(value, str) else ""
            raise BadValue(
                column="?", problem=f"not {self}: {value!r} is neither a finite decimal.Decimal nor an integer{way}"
            )
        elif not value:
            return 0
        elif value.adjusted() < whole:
            sign, digits, exponent = value.as_tuple()
            places = int(exponent) + self.scale
            kept = digits if places >= 0 else digits[: max(0, len(digits) + places)]
            if any(digits[len(kept) :]):
                problem = f"not {self}: it has more than {self.scale} digits behind the point"
                raise BadValue(column="?", problem=problem)
            number = int("".join(map(str, kept)) + "0" * places)
            return -number if sign else number
        raise BadValue(column="?", problem=f"not {self}: it has more than {whole} digits before the point")

    def _accepts(self, source: pa.DataType) -> bool:
        if not pa.types.is_decimal(source):
            return bool(pa.types.is_integer(source))
        # Arrow has this many powers of ten, and reads out of bounds for larger ones.
        powers = 76 if source.bit_width == 256 else 38
        return abs(int(source.scale) - self.scale) <= powers


def _halves(array: pa.Array) -> tuple[Words, Words]:
    """The low and the high 64 bits of decimal128 values without nulls."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    halves: Values = np.frombuffer(buffer, np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    return halves[:, 0], halves[:, 1]
