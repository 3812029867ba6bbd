"""Decimals of any exponent and scale: exact, or refused; no text takes the process down or enters as 0."""

from __future__ import annotations

import decimal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attack.hostile_binary import stream
from tests.ingest.log import values
from vernier.operators.errors import BadValue
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats import make_format
from vernier.service.views.json_rows import encode_value

MONEY = Decimal(15, 2)
ROW = RowType([("id", Int64(), False), ("m", MONEY, False)])
EXPONENTS = (*range(-110, -2), -999, -1_000, -(10**6), -999_999_999, -(10**15), 14, 38, 76, 999, 999_999_999, 10**15)


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("form", ["json", "vernier", "insert_delete", "debezium"])
def test_exponents_that_do_not_fit_are_refused(form: str, quoted: bool) -> None:
    around = {
        "json": '{"id":1,"m":%s}',
        "vernier": '{"v":1,"t":0,"u":[[[1,%s],1,1]]}',
        "insert_delete": '{"insert":[1,%s]}',
        "debezium": '{"op":"c","after":{"id":1,"m":%s}}',
    }[form]
    texts = [f"{sign}{digits}e{exponent}" for exponent in EXPONENTS for sign in ("", "-") for digits in ("1", "1.5")]
    texts = [f'"{text}"' if quoted else text for text in texts]
    parsed = make_format(form, {"s": ROW}).decode(values(*(around % text for text in texts)))
    assert [one.message for one in parsed.refused] == list(range(len(texts)))
    assert {one.reason for one in parsed.refused} == {"overflow"}
    assert all(len(one.detail) < 500 for one in parsed.refused)


def test_what_is_exact_enters() -> None:
    texts = {
        "0e-999999999": 0, '"0e-999999999"': 0, "0e999999999": 0, "-0.0": 0, "1e2": 10_000, "1.000": 100, '"1.50"': 150,
        "150e-2": 150, "1500000e-6": 150, "9999999999999.99": 10**15 - 1, "0.00000001e7": 10, "1e12": 10**14,
    }  # fmt: skip
    parsed = make_format("json", {"s": ROW}).decode(values(*(f'{{"id":1,"m":{text}}}' for text in texts)))
    assert parsed.refused == []
    assert parsed.words["s"][:, 1].tolist() == list(texts.values())


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_where_value_is_exact_or_refused(exponent: int) -> None:
    with pytest.raises(BadValue, match="m"):
        encode_value(ROW.field("m"), f"1e{exponent}")
    assert encode_value(ROW.field("m"), f"0e{exponent}") == (0,)


@given(
    st.decimals(allow_nan=False, allow_infinity=False) | st.integers(-(10**40), 10**40),
    st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))),
)
def test_words_are_the_scaled_integer(value: decimal.Decimal | int, about: tuple[int, int]) -> None:
    kind = Decimal(*about)
    sign, digits, exponent = decimal.Decimal(value).as_tuple()
    fits = abs(int(exponent)) < 2_000 and (
        decimal.Decimal(value) == 0 or decimal.Decimal(value).adjusted() < kind.precision - kind.scale
    )
    number = int("".join(map(str, digits))) * (-1) ** sign
    places = int(exponent) + kind.scale
    exact = number * 10**places if fits and places >= 0 else number // 10**-places if fits else 0
    fits = fits and (places >= 0 or exact * 10**-places == number)
    if not fits and number:
        with pytest.raises(BadValue):
            kind.split_python([value])
        return
    words = np.column_stack(kind.split_python([value]))
    (back,) = kind.from_words(words).to_pylist()
    assert back == decimal.Decimal(value)


def test_no_scale_of_arrow_reads_other_memory() -> None:
    """Each in one process, which lives."""
    code = """
import pyarrow as pa
from vernier.operators.errors import BadValue
from vernier.operators.language.types.decimals import Decimal
taken = 0
for source in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256):
    size = {pa.decimal32: 4, pa.decimal64: 8, pa.decimal128: 16, pa.decimal256: 32}[source]
    for scale in (-2**31, -10**6, -300, *range(-78, 79), 300, 10**6, 2**31 - 1):
        for bits in (0, 1, -1, 10**9, -10**8):
            try:
                kind = source({4: 9, 8: 18, 16: 38, 32: 76}[size], scale)
            except (pa.ArrowException, ValueError, OverflowError):
                continue
            buffer = pa.py_buffer(bits.to_bytes(size, "little", signed=True))
            array = pa.Array.from_buffers(kind, 1, [None, buffer])
            for target in (Decimal(15, 2), Decimal(38, 38), Decimal(38, 0), Decimal(1, 1)):
                try:
                    target.split(array)
                    taken += 1
                except (BadValue, pa.ArrowInvalid):
                    pass
print(taken)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    odd = stream({"id": pa.array([1]), "m": pa.array([decimal.Decimal("1.505")], pa.decimal128(38, 3))})
    (refused,) = make_format("arrow", {"s": ROW}).decode(values(odd)).refused
    assert refused.reason == "overflow"
