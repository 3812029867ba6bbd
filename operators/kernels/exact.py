"""Sums of doubles and of decimals that are exact in any order of their terms.

A sum of doubles is a fixed-point number wide enough for every double times every multiplicity. It is rounded once, when
it is read (ties to even). So order, cuts and workers do not affect the result, and retractions leave no trace.
Infinities and NaN are counted separately. Source: Kulisch, "Very fast and exact accumulation of products" (Computing
91, 2011), and Neal, "Fast exact summation using small and large superaccumulators" (2015); this is Neal's small
superaccumulator with 32-bit digits. Doubles are words of operators/language/types/scalars.py: their bits, in the order
of their values.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.wide import add_wide, multiply_wide

_DIGITS = 71
"""32-bit digits from 2**-1074 upwards: 2098 bits for doubles, 63 for multiplicities, and 111 for the number of
additions."""
_ADDED, _NANS, _MORE, _LESS = _DIGITS, _DIGITS + 1, _DIGITS + 2, _DIGITS + 3
FLOAT_WORDS = _DIGITS + 4
"""Words of a sum of doubles: digits, additions since the last carry, then the counts of NaN, inf and -inf in it."""
FLOAT_DIGITS = _DIGITS + 3
"""Words of a sum of doubles at rest: digits, and the counts of NaN, inf and -inf."""
DECIMAL_WORDS = 4
"""Words of a sum of decimals: 256 bits in two's complement, lowest word first."""

_MAX = np.int64(2**63 - 1)
_LOW = np.int64(0xFFFF_FFFF)
_FRACTION = np.int64(2**52 - 1)
_INFINITE = np.int64(0x7FF0_0000_0000_0000)
_NAN = np.int64(0x7FF8_0000_0000_0000)
_LAZY = 1 << 29
"""Additions after which digits are carried; each addition adds less than 2**32 to a digit."""


@njit(cache=True)
def _carry(acc: np.ndarray) -> None:
    """Normalize all digits but the last to [0, 2**32)."""
    carry = np.int64(0)
    for i in range(_DIGITS - 1):
        total = acc[i] + carry
        acc[i] = total & _LOW
        carry = total >> 32
    acc[_DIGITS - 1] += carry
    acc[_ADDED] = 0


@njit(cache=True)
def add_float(acc: np.ndarray, word: int, diff: int) -> bool:
    """Add `diff` copies of the double `word` to a sum. Returns whether a count of infinities or NaNs overflowed
    int64."""
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
    # |fraction * diff| < 2**116.
    negative = (word < 0) != (diff < 0)
    hi, lo = multiply_wide(fraction, diff)
    if diff < 0:
        lo = -lo
        hi = ~hi + (1 if lo == 0 else 0)
    add_bits(acc, exponent, hi, lo, negative)
    return False


@njit(cache=True)
def add_bits(acc: np.ndarray, bit: int, hi: int, lo: int, negative: bool) -> None:
    """Add or subtract hi * 2**64 + lo (below 2**116, lo unsigned) times 2**bit units of 2**-1074."""
    at = bit >> 5
    shift = bit & 31
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


@njit(cache=True)
def load_float(floats: np.ndarray, a: int, words: np.ndarray, at: int) -> None:
    """Set sum number a to what store_float wrote to words[at :]."""
    for i in range(_DIGITS):
        floats[a, i] = words[at + i]
    floats[a, _ADDED] = 0
    for i in range(3):
        floats[a, _NANS + i] = words[at + _DIGITS + i]


@njit(cache=True)
def store_float(floats: np.ndarray, a: int, words: np.ndarray, at: int) -> None:
    """Write sum number a to words[at : at + FLOAT_DIGITS]: equal sums give equal words, and few of them are not 0,
    because each digit has the sign of the sum."""
    acc = floats[a]
    _carry(acc)
    top = _DIGITS - 1
    negative = acc[top] < 0
    carry = np.int64(1)
    for i in range(top):
        total = acc[i]
        if negative:
            total = (~total & _LOW) + carry
            carry = total >> 32
            total = -(total & _LOW)
        words[at + i] = total
    words[at + top] = -(~acc[top] + carry) if negative else acc[top]
    for i in range(3):
        words[at + _DIGITS + i] = acc[_NANS + i]


@njit(cache=True)
def _divide_and_round(digits: np.ndarray, count: int, divisor: np.uint64) -> int:
    """The bits of the double nearest to digits[:count] / divisor, ties to even. The 32-bit digits are in units of
    2**-1074, lowest first; divisor is in [1, 2**63]."""
    rest = np.uint64(0)
    fraction = np.int64(0)
    bits = 0
    bit = 32 * count
    # Long division, bit by bit from the top, until the quotient has 53 bits and one more for rounding.
    while bit > 0 and bits < 54:
        bit -= 1
        if bits == 0 and rest == 0 and (bit & 31) == 31 and digits[bit >> 5] == 0:
            bit -= 31
            continue
        rest = (rest << np.uint64(1)) | np.uint64((digits[bit >> 5] >> (bit & 31)) & 1)
        one = np.int64(0)
        if rest >= divisor:
            rest -= divisor
            one = np.int64(1)
        fraction = (fraction << 1) | one
        if bits > 0 or one == 1:
            bits += 1
    beyond = rest != 0
    for i in range(bit >> 5):
        beyond = beyond or digits[i] != 0
    if bit & 31:
        beyond = beyond or digits[bit >> 5] & ((np.int64(1) << (bit & 31)) - 1) != 0
    # `fraction` counts units of 2**bit. If it has 54 bits, the last one rounds; if it has fewer, the remainder does.
    if bits == 54:
        half, shift = fraction & 1 != 0, bit + 1
        fraction >>= 1
    else:
        half, shift = rest != 0 and divisor - rest <= rest, 0
        beyond = half and divisor - rest != rest
    if half and (beyond or fraction & 1 != 0):
        fraction += 1
    # The hidden bit of a normal number adds one to the exponent, and so does a carry out of rounding.
    if shift >= 2046:
        return _INFINITE
    return min((np.int64(shift) << 52) + fraction, _INFINITE)


@njit(cache=True, inline="always")
def _magnitude(count: int) -> np.uint64:
    """|count|, correct for -2**63, too."""
    return np.uint64(count) if count >= 0 else np.uint64(0) - np.uint64(count)


@njit(cache=True)
def read_float(acc: np.ndarray, count: int) -> int:
    """The double nearest to a sum divided by `count` (not 0), ties to even, as a word; -0.0 becomes 0.0."""
    up = (acc[_MORE] > 0) or (acc[_LESS] < 0)
    down = (acc[_MORE] < 0) or (acc[_LESS] > 0)
    if acc[_NANS] != 0 or (up and down):
        return _NAN
    if up or down:
        return _INFINITE if up == (count > 0) else ~_INFINITE
    _carry(acc)
    negative = acc[_DIGITS - 1] < 0
    digits = np.empty(_DIGITS, np.int64)
    carry = np.int64(1)
    for i in range(_DIGITS):
        digits[i] = acc[i] & _LOW
        if negative:
            total = (~acc[i] & _LOW) + carry
            carry = total >> 32
            digits[i] = total & _LOW
    word = _divide_and_round(digits, _DIGITS, _magnitude(count))
    return ~word if word != 0 and negative == (count > 0) else word


@njit(cache=True)
def divide_wide(hi: int, lo: int, count: int) -> int:
    """The double nearest to (hi * 2**64 + lo) / count (not 0), lo unsigned, ties to even, as a word."""
    negative = hi < 0
    if negative:
        hi, lo = add_wide(~hi, ~lo, 0, 1)
    digits = np.zeros(39, np.int64)
    # The value 1 is 2**1074 units: 33 digits and 18 bits.
    carry = np.int64(0)
    for i in range(4):
        digit = ((lo if i < 2 else hi) >> (32 * (i & 1))) & _LOW
        digits[33 + i] = ((digit << 18) & _LOW) | carry
        carry = digit >> 14
    digits[37] = carry
    word = _divide_and_round(digits, 39, _magnitude(count))
    return ~word if word != 0 and negative == (count > 0) else word


@njit(cache=True)
def add_at(acc: np.ndarray, place: int, hi: int, lo: int) -> None:
    """Add hi * 2**64 + lo (lo unsigned) at word `place` of a 256-bit number."""
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
    add_at(acc, 0, p, q)
    if lo < 0:  # unsigned, it is 2**64 more than multiply_wide assumed
        add_at(acc, 1, np.int64(-1) if diff < 0 else np.int64(0), diff)
    p, q = multiply_wide(hi, diff)
    add_at(acc, 1, p, q)


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


@njit(cache=True)
def divide_decimal(acc: np.ndarray, shift: int, count: int, digits: int) -> tuple[int, int, bool]:
    """A sum times 10**shift divided by `count` (not 0), halves rounded away from zero: (hi, lo, whether it has at most
    `digits` digits)."""
    negative = acc[DECIMAL_WORDS - 1] < 0
    quotient = np.zeros(DECIMAL_WORDS, np.int64)
    words = np.empty(DECIMAL_WORDS, np.uint64)
    carry = np.uint64(1)
    for i in range(DECIMAL_WORDS):
        words[i] = np.uint64(acc[i])
        if negative:
            words[i] = ~words[i] + carry
            carry = np.uint64(1) if carry != 0 and words[i] == 0 else np.uint64(0)
    for _ in range(shift):
        over = np.uint64(0)
        for i in range(DECIMAL_WORDS):
            high, low = multiply_wide(np.int64(words[i]), 10)
            if np.int64(words[i]) < 0:
                high += 10
            total = np.uint64(low) + over
            over = np.uint64(high) + (np.uint64(1) if total < over else np.uint64(0))
            words[i] = total
        if over != 0:
            return 0, 0, False
    divisor = _magnitude(count)
    rest = np.uint64(0)
    for bit in range(64 * DECIMAL_WORDS - 1, -1, -1):
        rest = (rest << np.uint64(1)) | ((words[bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1))
        if rest >= divisor:
            rest -= divisor
            quotient[bit >> 6] |= np.int64(np.uint64(1) << np.uint64(bit & 63))
    if rest != 0 and divisor - rest <= rest:
        add_at(quotient, 0, 0, 1)
    hi, lo, fits = read_decimal(quotient, digits)
    if negative == (count > 0):
        hi, lo = add_wide(~hi, ~lo, 0, 1)
    return hi, lo, fits
