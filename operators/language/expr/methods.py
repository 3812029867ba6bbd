"""Methods of expressions, beside Python's operators, by families.

The names are those of PySpark's functions and columns, in snake_case. Each method makes a `Call` node;
operators/language/expr/compute/ checks its types and computes it. An argument is a value, or an expression with another
value in each row. Unless a method says otherwise, its result is null where the value or an argument is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.arguments import checked_methods

if TYPE_CHECKING:
    from vernier.operators.language.expr.expression import Expr, ExprLike


class Base:
    """Declares how the methods make their node."""

    def _call(self, name: str, *arguments: object) -> Expr:
        raise NotImplementedError


@checked_methods
class TextMethods(Base):
    """Of String, some also of Binary and List. Positions count from 1 and lengths are in code points, as in Spark."""

    def upper(self) -> Expr:
        """The text in upper case (Unicode's full mapping)."""
        return self._call("upper")

    def lower(self) -> Expr:
        """The text in lower case (Unicode's full mapping)."""
        return self._call("lower")

    def initcap(self) -> Expr:
        """The text in lower case, with the first letter of each word in upper case; a blank ends a word."""
        return self._call("initcap")

    def trim(self, characters: ExprLike = " ") -> Expr:
        """The text without the blanks (or these characters) at both ends."""
        return self._call("trim", characters)

    def ltrim(self, characters: ExprLike = " ") -> Expr:
        """The text without the blanks (or these characters) at the beginning."""
        return self._call("ltrim", characters)

    def rtrim(self, characters: ExprLike = " ") -> Expr:
        """The text without the blanks (or these characters) at the end."""
        return self._call("rtrim", characters)

    def length(self) -> Expr:
        """Int64: the number of code points of a String, of bytes of a Binary, of elements of a List."""
        return self._call("length")

    def substr(self, start: ExprLike, length: ExprLike | None = None) -> Expr:
        """`length` code points (default: all that follow) from position `start`; 1 is the first, -1 the last."""
        return self._call("substr", start) if length is None else self._call("substr", start, length)

    def startswith(self, other: ExprLike) -> Expr:
        """Whether the text (or bytes) begins with `other`."""
        return self._call("startswith", other)

    def endswith(self, other: ExprLike) -> Expr:
        """Whether the text (or bytes) ends with `other`."""
        return self._call("endswith", other)

    def contains(self, other: ExprLike) -> Expr:
        """Whether the text (or bytes) contains `other`; for a List, whether an element equals it, or null if a null
        might."""
        return self._call("contains", other)

    def instr(self, other: ExprLike) -> Expr:
        """The position of the first occurrence of `other` in the text; 0 when there is none."""
        return self._call("instr", other)

    def like(self, pattern: str) -> Expr:
        """Whether the whole text matches an SQL pattern: `%` is any characters, `_` is one; `\\` escapes the next
        one."""
        return self._call("like", pattern)

    def rlike(self, pattern: str) -> Expr:
        """Whether a part of the text matches a regular expression (RE2: no look-around, no back-references)."""
        return self._call("rlike", pattern)

    def replace(self, search: ExprLike, replacement: ExprLike = "") -> Expr:
        """The text with all occurrences of `search` replaced; an empty `search` changes nothing."""
        return self._call("replace", search, replacement)

    def regexp_replace(self, pattern: str, replacement: str) -> Expr:
        """The text with all matches of a regular expression (RE2) replaced; `$1` in the replacement is the first
        group."""
        return self._call("regexp_replace", pattern, replacement)

    def regexp_extract(self, pattern: str, group: int = 1) -> Expr:
        """A group (0: the whole match) of the first match of a regular expression (RE2); "" without a match."""
        return self._call("regexp_extract", pattern, group)

    def split(self, pattern: str, limit: int = -1) -> Expr:
        """List(String): the parts between matches of a regular expression (RE2); at most `limit` parts if that is above
        0."""
        return self._call("split", pattern, limit)

    def lpad(self, length: ExprLike, pad: ExprLike = " ") -> Expr:
        """The text padded at its beginning to `length` code points, or cut off after them."""
        return self._call("lpad", length, pad)

    def rpad(self, length: ExprLike, pad: ExprLike = " ") -> Expr:
        """The text padded at its end to `length` code points, or cut off after them."""
        return self._call("rpad", length, pad)

    def repeat(self, times: ExprLike) -> Expr:
        """The text repeated `times` times; "" for less than one."""
        return self._call("repeat", times)

    def reverse(self) -> Expr:
        """The code points of a String, or the elements of a List, in reverse order."""
        return self._call("reverse")


@checked_methods
class NumberMethods(Base):
    """Of Int64, Float64 and Decimal. Integers and decimals that do not fit their type raise an overflow error."""

    def abs(self) -> Expr:
        """The absolute value, of the same type."""
        return self._call("abs")

    def sign(self) -> Expr:
        """Float64: -1, 0 or 1; NaN for NaN."""
        return self._call("sign")

    def floor(self) -> Expr:
        """The greatest integer that is not greater: Int64 for a Float64, a Decimal with scale 0 for a Decimal."""
        return self._call("floor")

    def ceil(self) -> Expr:
        """The least integer that is not less: Int64 for a Float64, a Decimal with scale 0 for a Decimal."""
        return self._call("ceil")

    def round(self, digits: int = 0) -> Expr:
        """Rounded to `digits` after the decimal point (before it, if negative), halves away from zero. A Float64 is
        rounded by its shortest decimal text, so 2.675 rounds to 2.68."""
        return self._call("round", digits)

    def sqrt(self) -> Expr:
        """Float64: the square root; NaN for values below 0."""
        return self._call("sqrt")

    def pow(self, exponent: ExprLike) -> Expr:
        """Float64: the value raised to `exponent`, as the machine's C library computes it. `x ** y` is the same."""
        return self._call("pow", exponent)

    def exp(self) -> Expr:
        """Float64: e raised to the value, as the machine's C library computes it."""
        return self._call("exp")

    def ln(self) -> Expr:
        """Float64: the natural logarithm, as the machine's C library computes it; null for values that are not above
        0."""
        return self._call("ln")

    def log10(self) -> Expr:
        """Float64: the logarithm to base 10, as the machine's C library computes it; null for values that are not above
        0."""
        return self._call("log10")

    def is_nan(self) -> Expr:
        """Whether a Float64 is NaN; false for null, never null."""
        return self._call("is_nan")


@checked_methods
class TimeMethods(Base):
    """Of Date and TimestampNs (in UTC); hour and smaller only of TimestampNs. All but date_trunc give Int64."""

    def year(self) -> Expr:
        """The year."""
        return self._call("year")

    def quarter(self) -> Expr:
        """The quarter of the year, 1 to 4."""
        return self._call("quarter")

    def month(self) -> Expr:
        """The month of the year, 1 to 12."""
        return self._call("month")

    def week(self) -> Expr:
        """The week of the year by ISO 8601: week 1 contains the first Thursday."""
        return self._call("week")

    def day(self) -> Expr:
        """The day of the month, 1 to 31."""
        return self._call("day")

    def day_of_week(self) -> Expr:
        """The day of the week, 1 for Sunday to 7 for Saturday, as in Spark."""
        return self._call("day_of_week")

    def day_of_year(self) -> Expr:
        """The day of the year, 1 to 366."""
        return self._call("day_of_year")

    def hour(self) -> Expr:
        """The hour of the day, 0 to 23."""
        return self._call("hour")

    def minute(self) -> Expr:
        """The minute of the hour, 0 to 59."""
        return self._call("minute")

    def second(self) -> Expr:
        """The second of the minute, 0 to 59."""
        return self._call("second")

    def nanosecond(self) -> Expr:
        """The nanosecond of the second, 0 to 999999999."""
        return self._call("nanosecond")

    def date_trunc(self, unit: str) -> Expr:
        """The beginning of the year, quarter, month, week (Monday), day, hour, minute, second, millisecond or
        microsecond that contains the value, in the value's own type (a Date has no unit below a day)."""
        return self._call("date_trunc", unit)


@checked_methods
class PartMethods(Base):
    """Of Struct and List."""

    def field(self, name: str) -> Expr:
        """A field of a Struct; null where the struct is null. `x["name"]` is the same."""
        return self._call("field", name)

    def get(self, index: ExprLike) -> Expr:
        """The element of a List at an index, 0 being the first; null when there is none. `x[0]` is the same."""
        return self._call("get", index)


@checked_methods
class Methods(TextMethods, NumberMethods, TimeMethods, PartMethods):
    """All methods of expressions."""

    def eq_null_safe(self, other: ExprLike) -> Expr:
        """Whether both are equal or both are null; never null."""
        return self._call("eq_null_safe", other)

    def is_in(self, *values: ExprLike) -> Expr:
        """Whether the value equals one of `values` (three-valued: null when it is null or only a null could match)."""
        if not values:
            raise WrongType(problem="is_in needs at least one value")
        if len(values) == 1 and isinstance(values[0], (list, tuple, set)):
            raise WrongType(problem=f"is_in takes values one by one, not in a {type(values[0]).__name__}: write *[...]")
        return self._call("is_in", *values)
