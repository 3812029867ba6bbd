"""Exact sums against Python's fractions and integers."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np

from vernier.operators.kernels.exact import (
    DECIMAL_WORDS,
    FLOAT_WORDS,
    add_decimal,
    add_float,
    divide_decimal,
    divide_wide,
    read_decimal,
    read_float,
)
from vernier.operators.language.types.scalars import Float64

EDGES = (
    5e-324,
    -5e-324,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    2.2250738585072014e-308,
    0.0,
    -0.0,
    1e16,
    0.1,
)
TIMES = (1, -1, 2, 3, -7, 2**62, -(2**63), 2**63 - 1)


def word(value: float) -> int:
    return int(Float64().to_words(np.array([value]))[0, 0])


def double(encoded: int) -> float:
    return float(Float64().from_words(np.array([[encoded]]))[0])


def some_double(rng: random.Random) -> float:
    return rng.choice(
        (
            rng.choice(EDGES),
            rng.uniform(-10, 10),
            math.ldexp(rng.uniform(-1, 1), rng.randrange(-1074, 1024)),
            math.ldexp(rng.randrange(2**53), rng.randrange(-1074, -900)),
            float(rng.randrange(-5, 5)),
        )
    )


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def test_doubles_are_rounded_once_to_the_nearest() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        acc = np.zeros(FLOAT_WORDS, np.int64)
        exact = Fraction(0)
        for _ in range(rng.randrange(1, 8)):
            value, diff = some_double(rng), rng.choice((*TIMES, rng.randrange(-(2**63), 2**63)))
            assert not add_float(acc, word(value), diff)
            exact += Fraction(value) * diff
        for count in (1, rng.choice((*TIMES, 10, 49))):
            found = double(read_float(acc, count))
            assert found == nearest(exact / count)
            assert found != 0 or math.copysign(1, found) == 1


def test_many_small_additions_carry() -> None:
    acc = np.zeros(FLOAT_WORDS, np.int64)
    for _ in range(100_000):
        add_float(acc, word(0.1), 1)
    assert double(read_float(acc, 1)) == float(Fraction(0.1) * 100_000)
    add_float(acc, word(0.1), -100_000)
    assert not acc[:-4].any() or double(read_float(acc, 1)) == 0.0


def test_infinities_and_nan_come_and_go() -> None:
    acc = np.zeros(FLOAT_WORDS, np.int64)
    steps = [
        (1.5, 1, 1.5), (math.inf, 2, math.inf), (-math.inf, 1, math.nan), (math.inf, -2, -math.inf),
        (math.nan, 1, math.nan), (math.nan, -1, -math.inf), (-math.inf, -1, 1.5), (math.inf, -1, -math.inf),
    ]  # fmt: skip
    for value, diff, expected in steps:
        assert not add_float(acc, word(value), diff)
        found = double(read_float(acc, 1))
        assert found == expected or (math.isnan(found) and math.isnan(expected))
    assert add_float(acc, word(math.nan), 2**63 - 1) is False
    assert add_float(acc, word(math.nan), 1)


def test_decimals_of_38_digits() -> None:
    rng = random.Random(2)
    for _ in range(3000):
        acc = np.zeros(DECIMAL_WORDS, np.int64)
        exact = 0
        for _ in range(rng.randrange(1, 8)):
            value = rng.choice(
                (rng.randrange(-(10**38), 10**38), rng.randrange(-(10**18), 10**18), rng.randrange(-9, 9))
            )
            diff = rng.choice((*TIMES, rng.randrange(-(2**63), 2**63), rng.randrange(-9, 9)))
            low = value & (2**64 - 1)
            add_decimal(acc, value >> 64, low - 2**64 if low >= 2**63 else low, diff)
            exact += value * diff
        digits = rng.choice((38, 28, 18, 1))
        hi, lo, fits = read_decimal(acc, digits)
        assert fits == (abs(exact) < 10**digits)
        assert not fits or hi * 2**64 + (lo % 2**64) == exact
        divisor, shift = rng.choice((*TIMES, 7, 10**9)), rng.randrange(5)
        hi, lo, fits = divide_decimal(acc, shift, divisor, digits)
        scaled = Fraction(exact * 10**shift, divisor)
        rounded = int(abs(scaled) + Fraction(1, 2)) * (-1 if scaled < 0 else 1)
        assert fits == (abs(rounded) < 10**digits and abs(exact * 10**shift) < 2**256)
        assert not fits or hi * 2**64 + (lo % 2**64) == rounded


def test_quotients_of_integers_are_rounded_once() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        value = rng.choice((rng.randrange(-(2**127), 2**127), rng.randrange(-(2**60), 2**60), rng.randrange(-9, 9)))
        count = rng.choice((*TIMES, 3, rng.randrange(1, 2**63)))
        low = value & (2**64 - 1)
        found = double(divide_wide(value >> 64, low - 2**64 if low >= 2**63 else low, count))
        assert found == nearest(Fraction(value, count))
