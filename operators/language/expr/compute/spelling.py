"""Values as text, and text as values: what casts from and to String write and read, as in Spark SQL.

Reading: surrounding white space is ignored; text that is no value becomes null. Int64: digits with a sign; anything
after a decimal point is dropped. Float64: a decimal number with an exponent, or inf, infinity and nan in any case.
Bool: t, true, y, yes, 1 and f, false, n, no, 0. Date: yyyy, yyyy-m, yyyy-m-d, with anything after a blank or a T.
TimestampNs: a date, optionally followed by a blank or a T, h:m[:s[.fraction]], and a zone Z, UTC or +h[:mm]; without a
zone it is UTC. Nine digits of the fraction count. All of it is vectorised (regular expressions of RE2, a constant
number of passes).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.expr.compute import decimals
from vernier.operators.language.expr.compute.vector import joined
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import DATE_MAX, DATE_MIN, Values

_INTEGER = r"^(?P<sign>[+-]?)0*(?P<digits>\d*)(?:\.\d*)?$"
_FLOAT = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?$"
_DECIMAL = r"^(?P<sign>[+-]?)(?P<whole>\d*)\.?(?P<part>\d*)(?:[eE](?P<exponent>[+-]?\d{1,4}))?$"
_DATE = r"^(?P<y>\d{4,7})(?:-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2})(?:[ T].*)?)?)?$"
_TIME = (
    r"^(?P<y>\d{4,6})(?:-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2})(?:[ T](?P<h>\d{1,2}):(?P<n>\d{1,2})"
    r"(?::(?P<s>\d{1,2})(?:\.(?P<f>\d*))?)?(?: ?(?P<z>Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?))?)?)?)?$"
)
_SHORTEST = r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<part>\d+))?(?:[eE](?P<exponent>[+-]?\d+))?$"
_TRUE, _FALSE = ["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"]
_SPACE = "".join(map(chr, range(33))) + "\x7f"
_SECOND = 1_000_000_000


# --- reading ----------------------------------------------------------------------------------------------------------


def _stripped(text: pa.Array) -> pa.Array:
    return pc.utf8_trim(text, characters=_SPACE)


def read_int64(text: pa.Array) -> pa.Array:
    """large_string -> int64."""
    text = _stripped(text)
    text = pc.if_else(pc.match_substring_regex(text, r"^[+-]?[\d.]"), text, pa.scalar(None, text.type))
    found = pc.extract_regex(text, _INTEGER)
    sign, digits = pc.struct_field(found, "sign"), pc.struct_field(found, "digits")
    limit = pc.if_else(pc.equal(sign, "-"), "9223372036854775808", "9223372036854775807")
    length = pc.binary_length(digits)
    fits = pc.or_(pc.less(length, 19), pc.and_(pc.equal(length, 19), pc.less_equal(digits, limit)))
    digits = pc.if_else(pc.equal(length, 0), "0", digits)
    spelled = joined(pc.if_else(pc.equal(sign, "-"), "-", ""), digits)
    return pc.if_else(fits, spelled, pa.scalar(None, spelled.type)).cast(pa.int64())


def read_float64(text: pa.Array) -> pa.Array:
    """large_string -> double."""
    text = pc.ascii_lower(_stripped(text))
    named = pc.match_substring_regex(text, r"^(?:[+-]?(?:inf|infinity)|nan)$")
    number = pc.match_substring_regex(text, _FLOAT)
    bare = pc.utf8_rtrim(pc.utf8_ltrim(text, characters="+"), characters="df")
    null = pa.scalar(None, text.type)
    special = pc.if_else(named, pc.utf8_ltrim(text, characters="+"), null)
    return pc.if_else(number, bare, special).cast(pa.float64())


def read_bool(text: pa.Array) -> pa.Array:
    """large_string -> bool."""
    text = pc.ascii_lower(_stripped(text))
    yes, no = (pc.is_in(text, value_set=pa.array(words, text.type)) for words in (_TRUE, _FALSE))
    return pc.if_else(pc.or_(yes, no), yes, pa.scalar(None, pa.bool_()))


def read_decimal(text: pa.Array, kind: Decimal) -> tuple[Values, Values]:
    """large_string -> (unscaled values rounded to the scale, where they are values); they may have too many digits."""
    text = _stripped(text)
    text = pc.if_else(pc.match_substring_regex(text, r"\d"), text, pa.scalar(None, text.type))
    found = pc.extract_regex(text, _DECIMAL)
    valid = found.is_valid().to_numpy(zero_copy_only=False)
    parts = {name: pc.fill_null(pc.struct_field(found, name), "") for name in ("sign", "whole", "part", "exponent")}
    spelled = pc.if_else(pc.equal(parts["exponent"], ""), "0", parts["exponent"])
    exponent = pc.utf8_ltrim(spelled, characters="+").cast(pa.int64()).to_numpy(zero_copy_only=False)
    digits = pc.utf8_ltrim(joined(parts["whole"], parts["part"]), characters="0")
    # Shift the decimal point so that the scale's digits are before it, plus one digit for rounding.
    shift = exponent - pc.binary_length(parts["part"]).to_numpy(zero_copy_only=False) + kind.scale + 1
    length = pc.binary_length(digits).to_numpy(zero_copy_only=False)
    kept = np.where(length == 0, 0, length + shift)
    valid = valid & (kept <= decimals.MAX_PRECISION + 2)
    kept = np.where(valid, np.clip(kept, 0, decimals.MAX_PRECISION + 2), 0)
    values = np.zeros(len(text), np.int64)
    for places in np.unique(kept[kept > 0]):
        rows = kept == places
        some = pc.utf8_slice_codeunits(digits.filter(pa.array(rows)), 0, int(places))
        whole = _integers(pc.utf8_rpad(some, int(places), "0"), int(places))
        if whole.dtype == object and values.dtype != object:
            values = values.astype(object)
        values[rows] = whole
    values = decimals.rescaled(values, -1)
    negative = pc.equal(parts["sign"], "-").to_numpy(zero_copy_only=False)
    return np.where(negative, -values, values), valid


def _integers(digits: pa.Array, places: int) -> Values:
    """Texts of exactly `places` digits as integers: int64, or Python integers when they are long."""
    if places <= 18:
        short: Values = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return short
    rest = _integers(pc.utf8_slice_codeunits(digits, 0, places - 18), places - 18)
    last = _integers(pc.utf8_slice_codeunits(digits, places - 18), 18)
    return rest.astype(object) * 10**18 + last


def read_date(text: pa.Array) -> pa.Array:
    """large_string -> date32."""
    found = pc.extract_regex(_stripped(text), _DATE)
    days, valid = _civil(found)
    valid &= (days >= DATE_MIN) & (days <= DATE_MAX)
    return pa.array(np.where(valid, days, 0).astype(np.int32), mask=~valid).cast(pa.date32())


def read_timestamp(text: pa.Array) -> pa.Array:
    """large_string -> int64 nanoseconds."""
    found = pc.extract_regex(_stripped(text), _TIME)
    days, valid = _civil(found)
    hours, minutes, seconds = (_number(found, name) for name in "hns")
    valid &= (hours < 24) & (minutes < 60) & (seconds < 60) & (abs(days) < 106_753)
    fraction = pc.utf8_slice_codeunits(pc.fill_null(pc.struct_field(found, "f"), ""), 0, 9)
    nanos = pc.utf8_rpad(fraction, 9, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    zone = pc.replace_substring_regex(pc.fill_null(pc.struct_field(found, "z"), ""), "Z|UTC|GMT|:", "")
    west = pc.starts_with(zone, "-").to_numpy(zero_copy_only=False)
    bare = pc.utf8_ltrim(zone, characters="+-")
    size = pc.binary_length(bare).to_numpy(zero_copy_only=False)
    spelled = pc.if_else(pc.equal(bare, ""), "0", bare).cast(pa.int64()).to_numpy(zero_copy_only=False)
    away = np.where(size > 2, spelled // 100 * 60 + spelled % 100, spelled * 60)
    valid &= (away <= 18 * 60) & ((size <= 2) | (spelled % 100 < 60))
    # In seconds, then with the nanoseconds: at most one of the two sums can overflow int64.
    total = days * 86_400 + hours * 3600 + minutes * 60 + seconds - np.where(west, -away, away) * 60
    valid &= (total > -9_223_372_036) & (total < 9_223_372_036)
    return pa.array(np.where(valid, total, 0) * _SECOND + nanos, mask=~valid)


def _number(found: pa.Array, name: str, empty: str = "0") -> Values:
    part = pc.fill_null(pc.struct_field(found, name), "")
    numbers: Values = pc.if_else(pc.equal(part, ""), empty, part).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _civil(found: pa.Array) -> tuple[Values, Values]:
    """Days since 1970 of the groups y, m, d; and where they are a valid calendar day."""
    year, month, day = _number(found, "y"), _number(found, "m", "1"), _number(found, "d", "1")
    valid = found.is_valid().to_numpy(zero_copy_only=False) & (year > 0) & (year < 10_000)
    valid &= (month >= 1) & (month <= 12) & (day >= 1)
    months = (np.where(valid, year, 1970) - 1970) * 12 + np.where(valid, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = first + np.where(valid, day, 1) - 1
    return days, valid & (days < after)


def read_binary(text: pa.Array) -> pa.Array:
    """large_string -> large_binary, its UTF-8."""
    return text.cast(pa.large_binary())


# --- writing ----------------------------------------------------------------------------------------------------------


def write_float64(values: pa.Array) -> pa.Array:
    """double -> large_string as Java writes it: 1.0, 0.001, 1.0E7, 1.0E-4, NaN, Infinity; in the shortest form."""
    text = values.cast(pa.large_string())
    special = pc.replace_substring_regex(pc.replace_substring(text, "inf", "Infinity"), "^-?nan$", "NaN")
    special = pc.if_else(pc.equal(values, 0.0), "0.0", special)
    number = pc.and_(pc.is_finite(values), pc.not_equal(values, 0.0))
    found = pc.extract_regex(pc.if_else(number, text, "1"), _SHORTEST)
    sign, whole, part, spelled = (pc.struct_field(found, name) for name in ("sign", "whole", "part", "exponent"))
    exponent = pc.utf8_ltrim(pc.if_else(pc.equal(spelled, ""), "0", spelled), characters="+").cast(pa.int64())
    digits = joined(whole, part)
    significant = pc.utf8_ltrim(digits, characters="0")
    leading = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
    # The value is 0.significant * 10**point.
    point = pc.subtract(pc.add(exponent, pc.utf8_length(whole)), leading)
    significant = pc.utf8_rtrim(significant, characters="0")
    out = _scientific(significant, point)
    for place in (place for place in point.drop_null().unique().to_pylist() if -2 <= place <= 7):
        out = pc.if_else(pc.equal(point, place), _plain(significant, place), out)
    return pc.if_else(number, joined(sign, out), special)


def _plain(digits: pa.Array, point: int) -> pa.Array:
    if point <= 0:
        return joined("0." + "0" * -point, digits)
    whole = pc.utf8_rpad(pc.utf8_slice_codeunits(digits, 0, point), point, "0")
    return joined(whole, _or_zero(pc.utf8_slice_codeunits(digits, point)), by=".")


def _scientific(digits: pa.Array, point: pa.Array) -> pa.Array:
    behind = _or_zero(pc.utf8_slice_codeunits(digits, 1))
    mantissa = joined(pc.utf8_slice_codeunits(digits, 0, 1), behind, by=".")
    return joined(mantissa, pc.subtract(point, 1).cast(pa.large_string()), by="E")


def _or_zero(digits: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(digits, ""), "0", digits)


def write_timestamp(values: pa.Array) -> pa.Array:
    """timestamp -> large_string: yyyy-MM-dd HH:mm:ss in UTC, with a fraction without trailing zeros."""
    text = pc.strftime(values.cast(pa.timestamp("ns")), format="%Y-%m-%d %H:%M:%S").cast(pa.large_string())
    return pc.replace_substring_regex(text, r"(\.\d*[1-9])0*$|\.0*$", r"\1")


def _write_binary(values: pa.Array) -> pa.Array:
    """large_binary -> large_string: the bytes as UTF-8, null where they are not UTF-8."""
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([_utf8(value) for value in values.to_pylist()], pa.large_string())


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


READ: dict[str, Callable[[pa.Array], pa.Array]] = {
    "Int64": read_int64,
    "Float64": read_float64,
    "Bool": read_bool,
    "Date": read_date,
    "TimestampNs": read_timestamp,
    "Binary": read_binary,
}
"""By the target of a cast from String."""

WRITE: dict[str, Callable[[pa.Array], pa.Array]] = {
    "Int64": lambda values: values.cast(pa.large_string()),
    "Float64": write_float64,
    "Bool": lambda values: values.cast(pa.large_string()),
    "Date": lambda values: values.cast(pa.large_string()),
    "TimestampNs": write_timestamp,
    "Binary": _write_binary,
}
"""By the source of a cast to String."""
