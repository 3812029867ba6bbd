"""128-bit arithmetic of kernels against Python's integers."""

from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from vernier.storage.kernels.wide import add_wide, fits, multiply_wide

EDGES = [0, 1, -1, 2**63 - 1, -(2**63), 2**32, -(2**32), 2**31 - 1]
words = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)


@njit
def products(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int, bool]:
    """a * b, then a * b + c * d, and whether that is an int64."""
    hi, lo = multiply_wide(a, b)
    more, less = multiply_wide(c, d)
    total_hi, total_lo = add_wide(hi, lo, more, less)
    return hi, lo, total_hi, total_lo, fits(total_hi, total_lo)


@given(words, words, words, words)
def test_products_and_sums_are_exact(a: int, b: int, c: int, d: int) -> None:
    hi, lo, total_hi, total_lo, fit = products(a, b, c, d)
    assert hi * 2**64 + lo % 2**64 == a * b
    total = a * b + c * d
    if -(2**127) <= total < 2**127:
        assert total_hi * 2**64 + total_lo % 2**64 == total
        assert fit == (-(2**63) <= total < 2**63)
