"""128-bit sums of 64-bit products: a sum that fits 64 bits never fails because of an intermediate result.

A wide number is (hi, lo): hi * 2**64 + lo, with hi signed and lo the unsigned low half stored in an int64.
"""

import numpy as np
from numba import njit

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)


@njit(cache=True, inline="always")
def multiply_wide(a: int, b: int) -> tuple[int, int]:
    """a * b for int64, exactly."""
    x, y = np.uint64(a), np.uint64(b)
    x0, x1 = x & _LOW, x >> _HALF
    y0, y1 = y & _LOW, y >> _HALF
    low = x0 * y0
    middle = x1 * y0 + (low >> _HALF)
    other = x0 * y1 + (middle & _LOW)
    hi = np.int64(x1 * y1 + (middle >> _HALF) + (other >> _HALF))
    # The unsigned product counts a negative factor as 2**64 more.
    if a < 0:
        hi -= b
    if b < 0:
        hi -= a
    return hi, np.int64(x * y)


@njit(cache=True, inline="always")
def add_wide(hi: int, lo: int, other_hi: int, other_lo: int) -> tuple[int, int]:
    """The sum of two wide numbers."""
    total = np.int64(np.uint64(lo) + np.uint64(other_lo))
    carry = 1 if np.uint64(total) < np.uint64(lo) else 0
    return hi + other_hi + carry, total


@njit(cache=True, inline="always")
def fits(hi: int, lo: int) -> bool:
    """Whether a wide number fits int64."""
    return hi == (-1 if lo < 0 else 0)
