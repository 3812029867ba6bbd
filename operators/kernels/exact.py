"""Sums of doubles and of decimals that are exact whatever the order of their terms.

A sum of doubles is a fixed-point number wide enough for every double times every multiplicity, rounded once when it is
read (ties to even), so order, cuts and workers cannot matter, and what is taken back leaves nothing. Infinities and NaN
are counted apart. Source: Kulisch, "Very fast and exact accumulation of products" (Computing 91, 2011), and Neal,
"Fast exact summation using small and large superaccumulators" (2015), whose small one this is with 32-bit digits.
Doubles are words of operators/language/types.py: their bits, in the order of their values.
"""

import numpy as np
from numba import njit

from storage.kernels.sorting import add_checked
from storage.kernels.wide import add_wide, multiply_wide

_DIGITS = 71
"""32-bit digits of 2**-1074 upwards: 2098 bits of doubles, 63 of multiplicities, and 111 for how many are added."""
_ADDED, _NANS, _MORE, _LESS = _DIGITS, _DIGITS + 1, _DIGITS + 2, _DIGITS + 3
FLOAT_WORDS = _DIGITS + 4
"""Words of a sum of doubles: digits, additions since the last carry, then how often NaN, inf and -inf are in it."""
DECIMAL_WORDS = 4
"""Words of a sum of decimals: 256 bits in two's complement, the lowest first."""

_MAX = np.int64(2**63 - 1)
_LOW = np.int64(0xFFFF_FFFF)
_FRACTION = np.int64(2**52 - 1)
_INFINITE = np.int64(0x7FF0_0000_0000_0000)
_NAN = np.int64(0x7FF8_0000_0000_0000)
_LAZY = 1 << 29
"""Additions after which digits are carried: each adds less than 2**32 to a digit."""


@njit(cache=True)
def _carry(acc: np.ndarray) -> None:
    """Bring all digits but the last into [0, 2**32)."""
    carry = np.int64(0)
    for i in range(_DIGITS - 1):
        total = acc[i] + carry
        acc[i] = total & _LOW
        carry = total >> 32
    acc[_DIGITS - 1] += carry
    acc[_ADDED] = 0


@njit(cache=True)
def add_float(acc: np.ndarray, word: int, diff: int) -> bool:
    """Add `diff` copies of the double `word` to a sum; True when a count of infinities or NaNs leaves int64."""
    magnitude = word if word >= 0 else ~word
    if magnitude >= _INFINITE:
        place = _NANS if magnitude > _INFINITE else _MORE if word >= 0 else _LESS
        acc[place], wrapped = add_checked(acc[place], diff)
        return wrapped
    exponent = magnitude >> 52
    fraction = magnitude & _FRACTION
    if exponent > 0:
        fraction |= _FRACTION + 1
        exponent -= 1
    if fraction == 0 or diff == 0:
        return False
    # |fraction * diff| < 2**116 as 32-bit digits, moved to where the exponent says.
    negative = (word < 0) != (diff < 0)
    hi, lo = multiply_wide(fraction, diff)
    if diff < 0:
        lo = -lo
        hi = ~hi + (1 if lo == 0 else 0)
    at = exponent >> 5
    shift = exponent & 31
    sign = -1 if negative else 1
    carried = np.int64(0)
    for i in range(5):
        if i < 2:
            digit = (lo >> (32 * i)) & _LOW
        elif i < 4:
            digit = (hi >> (32 * (i - 2))) & _LOW
        else:
            digit = np.int64(0)
        moved = digit << shift if shift < 31 else (digit & (_LOW >> 1)) << 31
        low = (moved & _LOW) | carried
        carried = digit >> (32 - shift) if shift > 0 else np.int64(0)
        acc[at + i] += sign * low
    acc[_ADDED] += 1
    if acc[_ADDED] >= _LAZY:
        _carry(acc)
    return False


@njit(cache=True)
def read_float(acc: np.ndarray) -> int:
    """The double nearest to a sum, ties to even, as a word; -0.0 is 0.0."""
    up = (acc[_MORE] > 0) or (acc[_LESS] < 0)
    down = (acc[_MORE] < 0) or (acc[_LESS] > 0)
    if acc[_NANS] != 0 or (up and down):
        return _NAN
    if up:
        return _INFINITE
    if down:
        return ~_INFINITE
    _carry(acc)
    negative = acc[_DIGITS - 1] < 0
    digits = np.empty(_DIGITS, np.int64)
    carry = np.int64(1)
    top = -1
    for i in range(_DIGITS):
        digit = acc[i] & _LOW
        if negative:
            digit = (~acc[i] & _LOW) + carry
            carry = digit >> 32
            digit &= _LOW
        digits[i] = digit
        if digit != 0:
            top = i
    if top < 0:
        return 0
    bits = 32 * top
    digit = digits[top]
    while digit > 0:
        bits += 1
        digit >>= 1
    shift = max(0, bits - 53)
    fraction = np.int64(0)
    for bit in range(bits - 1, shift - 1, -1):
        fraction = (fraction << 1) | ((digits[bit >> 5] >> (bit & 31)) & 1)
    if shift > 0:
        half = (digits[(shift - 1) >> 5] >> ((shift - 1) & 31)) & 1
        if half:
            beyond = fraction & 1 != 0
            last = shift - 1
            for i in range(last >> 5):
                beyond = beyond or digits[i] != 0
            beyond = beyond or digits[last >> 5] & ((np.int64(1) << (last & 31)) - 1) != 0
            if beyond:
                fraction += 1
    # The hidden bit of a normal number adds one to the exponent, as it does when rounding carries all the way up.
    word = np.int64(_INFINITE) if shift >= 2046 else (np.int64(shift) << 52) + fraction
    word = min(word, _INFINITE)
    return ~word if negative else word


@njit(cache=True)
def _add_at(acc: np.ndarray, place: int, hi: int, lo: int) -> None:
    """Add hi * 2**64 + lo (lo unsigned) at word `place` of 256 bits."""
    rest = np.int64(-1) if hi < 0 else np.int64(0)
    carry = np.uint64(0)
    for i in range(place, DECIMAL_WORDS):
        term = lo if i == place else hi if i == place + 1 else rest
        partial = np.uint64(acc[i]) + np.uint64(term)
        total = partial + carry
        carry = np.uint64(1) if partial < np.uint64(term) or total < partial else np.uint64(0)
        acc[i] = np.int64(total)


@njit(cache=True)
def add_decimal(acc: np.ndarray, hi: int, lo: int, diff: int) -> None:
    """Add `diff` copies of hi * 2**64 + lo (lo unsigned) to a sum."""
    p, q = multiply_wide(lo, diff)
    _add_at(acc, 0, p, q)
    if lo < 0:  # as unsigned it is 2**64 more than multiply_wide has seen
        _add_at(acc, 1, np.int64(-1) if diff < 0 else np.int64(0), diff)
    p, q = multiply_wide(hi, diff)
    _add_at(acc, 1, p, q)


@njit(cache=True)
def read_decimal(acc: np.ndarray, digits: int) -> tuple[int, int, bool]:
    """A sum as (hi, lo, whether its magnitude is below 10**digits); digits <= 38."""
    hi, lo = acc[1], acc[0]
    rest = np.int64(-1) if hi < 0 else np.int64(0)
    if acc[2] != rest or acc[3] != rest:
        return hi, lo, False
    top, bottom = np.int64(0), np.int64(1)
    for _ in range(digits):
        p, q = multiply_wide(bottom, 10)
        top = top * 10 + p + (10 if bottom < 0 else 0)
        bottom = q
    if hi < 0:
        above, below = add_wide(~hi, ~lo, 0, 1)
    else:
        above, below = hi, lo
    fits = above < top or (above == top and np.uint64(below) < np.uint64(bottom))
    return hi, lo, fits and above >= 0
