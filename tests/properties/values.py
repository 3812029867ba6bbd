"""Values of every type, few of each so that they meet, with those that are most easily mistaken for one another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

import vernier as vn
from tests.oracle.model import Change
from tests.oracle.values import canonical

Values = st.SearchStrategy[Any]


@dataclass(frozen=True)
class Kind:
    """A column type and values of it, in a form that a program may hand over."""

    type: Any
    values: Values
    summed: bool = False
    """Whether sum and avg take it."""


LONG = "fifteen letters"
"""As many bytes of a text as a row holds; texts that differ only behind them are distinguished by their hashes."""
TEXTS = ("", "a", "a\0", "b", "é", "\U0001f600", LONG, LONG + "1", LONG + "2", LONG + "2" * 30, "z" * 16)
BYTES = (b"", b"\0", b"\0\0", b"\xff", LONG.encode(), LONG.encode() + b"\0", LONG.encode() + b"\xff\xff")
DOUBLES = (math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 0.2, -0.3, 1e308, -1e308, 5e-324, 3.0)

ints = st.sampled_from((0, 1, 2, -1, 2**40))
texts = st.sampled_from(TEXTS)
pairs = st.tuples(st.sampled_from((0, 1)), st.sampled_from((None, "", LONG + "1", LONG + "2")))

# Decimals keep clear of the ends of their types: where some rows are less than not there, a mean may be beyond all.
KINDS: dict[str, Kind] = {
    "int": Kind(vn.Int64, ints, True),
    "large": Kind(vn.Int64, st.sampled_from((-(2**63), 2**63 - 1, 0, -1))),
    "float": Kind(vn.Float64, st.sampled_from(DOUBLES), True),
    "bool": Kind(vn.Bool, st.booleans()),
    "date": Kind(vn.Date, st.sampled_from((date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)))),
    "instant": Kind(vn.TimestampNs, st.sampled_from((-(10**18), -1, 0, 1_700_000_000_000_000_001))),
    "decimal": Kind(vn.Decimal(9, 2), st.sampled_from([Decimal(n) / 100 for n in (0, 1, -1, 10, 9999999)]), True),
    "wide": Kind(
        vn.Decimal(30, 12),
        st.sampled_from([Decimal(text) for text in ("0", "1E-12", "-1E-12", "18446744.073709551616", "-9E14", "9E14")]),
        True,
    ),
    "string": Kind(vn.String, texts),
    "binary": Kind(vn.Binary, st.sampled_from(BYTES)),
    "struct": Kind(vn.Struct(n=vn.Int64, s=vn.String | None), pairs),
    "list": Kind(vn.List(vn.Int64 | None), st.lists(st.sampled_from((None, 0, -1, 2**40)), max_size=3)),
    "texts": Kind(vn.List(vn.String), st.lists(texts, max_size=2)),
    "structs": Kind(vn.List(vn.Struct(n=vn.Int64, s=vn.String | None)), st.lists(pairs, max_size=2)),
    "nested": Kind(
        vn.Struct(f=vn.Float64, l=vn.List(vn.String) | None),
        st.tuples(st.sampled_from(DOUBLES[:6]), st.one_of(st.none(), st.lists(texts, max_size=2))),
    ),
}


def plain(updates: list[Change]) -> list[Change]:
    """The updates as the oracle takes them."""
    return [(canonical(row), time, diff) for row, time, diff in updates]


def moving(row: st.SearchStrategy[tuple[Any, ...]], most: int = 14) -> st.SearchStrategy[list[Change]]:
    """Rows that come and go, in any order, diffs of both signs."""
    return st.lists(st.tuples(row, st.integers(0, 6), st.sampled_from((1, 1, 1, -1, 2, -2))), max_size=most)
