"""What an expression can do besides Python's operators: methods that compute something of a value, by families.

The names are those of PySpark's functions and columns, in snake_case. Each makes a node `Call`, whose types are checked
and which is computed in operators/language/expr/compute/. An argument is a value, or an expression for another one in
each row. Unless a method says otherwise its result is null where the value or an argument is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.arguments import checked_methods

if TYPE_CHECKING:
    from vernier.operators.language.expr.expression import Expr, ExprLike


class Base:
    """Where the methods get their node from."""

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
        """The text in lower case, but the first letter of each word, which a blank ends, in upper case."""
        return self._call("initcap")

    def trim(self, characters: ExprLike = " ") -> Expr:
        """Without the blanks (or these characters) at both ends."""
        return self._call("trim", characters)

    def ltrim(self, characters: ExprLike = " ") -> Expr:
        """Without the blanks (or these characters) at the beginning."""
        return self._call("ltrim", characters)

    def rtrim(self, characters: ExprLike = " ") -> Expr:
        """Without the blanks (or these characters) at the end."""
        return self._call("rtrim", characters)

    def length(self) -> Expr:
        """Int64: the code points of a String, the bytes of a Binary, the elements of a List."""
        return self._call("length")

    def substr(self, start: ExprLike, length: ExprLike | None = None) -> Expr:
        """`length` code points (default: all that follow) from position `start`, 1 being the first, -1 the last."""
        return self._call("substr", start) if length is None else self._call("substr", start, length)

    def startswith(self, other: ExprLike) -> Expr:
        """Whether the text (or bytes) begins with `other`."""
        return self._call("startswith", other)

    def endswith(self, other: ExprLike) -> Expr:
        """Whether the text (or bytes) ends with `other`."""
        return self._call("endswith", other)

    def contains(self, other: ExprLike) -> Expr:
        """Whether `other` is in the text (or bytes); of a List: whether an element equals it, null if a null may."""
        return self._call("contains", other)

    def instr(self, other: ExprLike) -> Expr:
        """The position where `other` first is in the text, 0 when it is not."""
        return self._call("instr", other)

    def like(self, pattern: str) -> Expr:
        """Whether the whole text matches SQL's pattern: `%` any characters, `_` one; `\\` takes the next as it is."""
        return self._call("like", pattern)

    def rlike(self, pattern: str) -> Expr:
        """Whether a part of the text matches a regular expression (RE2: no look-around, no back-references)."""
        return self._call("rlike", pattern)

    def replace(self, search: ExprLike, replacement: ExprLike = "") -> Expr:
        """All occurrences of a text replaced; an empty `search` changes nothing."""
        return self._call("replace", search, replacement)

    def regexp_replace(self, pattern: str, replacement: str) -> Expr:
        """All matches of a regular expression (RE2) replaced; `$1` in the replacement is the first group."""
        return self._call("regexp_replace", pattern, replacement)

    def regexp_extract(self, pattern: str, group: int = 1) -> Expr:
        """A group (0: all) of the first match of a regular expression (RE2); "" without a match."""
        return self._call("regexp_extract", pattern, group)

    def split(self, pattern: str, limit: int = -1) -> Expr:
        """List(String): the parts between matches of a regular expression (RE2); at most `limit` if that is above 0."""
        return self._call("split", pattern, limit)

    def lpad(self, length: ExprLike, pad: ExprLike = " ") -> Expr:
        """The text filled up in front to so many code points, or cut off behind them."""
        return self._call("lpad", length, pad)

    def rpad(self, length: ExprLike, pad: ExprLike = " ") -> Expr:
        """The text filled up at its end to so many code points, or cut off behind them."""
        return self._call("rpad", length, pad)

    def repeat(self, times: ExprLike) -> Expr:
        """The text so many times in a row; "" for less than one."""
        return self._call("repeat", times)

    def reverse(self) -> Expr:
        """The code points of a String, or the elements of a List, from the last to the first."""
        return self._call("reverse")


@checked_methods
class NumberMethods(Base):
    """Of Int64, Float64 and Decimal. Integers and decimals that leave their type raise an overflow."""

    def abs(self) -> Expr:
        """The magnitude, of the same type."""
        return self._call("abs")

    def sign(self) -> Expr:
        """Float64: -1, 0 or 1; NaN of NaN."""
        return self._call("sign")

    def floor(self) -> Expr:
        """The greatest integer that is not above: Int64 of a Float64, a Decimal without a scale of a Decimal."""
        return self._call("floor")

    def ceil(self) -> Expr:
        """The least integer that is not below: Int64 of a Float64, a Decimal without a scale of a Decimal."""
        return self._call("ceil")

    def round(self, digits: int = 0) -> Expr:
        """Rounded to `digits` behind the point (before it, below 0), halves away from zero; Float64 by its shortest
        text, so 2.675 rounds to 2.68."""
        return self._call("round", digits)

    def sqrt(self) -> Expr:
        """Float64: the square root; NaN below 0."""
        return self._call("sqrt")

    def pow(self, exponent: ExprLike) -> Expr:
        """Float64: the value to that power, as the C library of the machine computes it. `x ** y` is the same."""
        return self._call("pow", exponent)

    def exp(self) -> Expr:
        """Float64: e to that power, as the C library of the machine computes it."""
        return self._call("exp")

    def ln(self) -> Expr:
        """Float64: the natural logarithm, by the C library of the machine; null for what is not above 0."""
        return self._call("ln")

    def log10(self) -> Expr:
        """Float64: the logarithm to base 10, by the C library of the machine; null for what is not above 0."""
        return self._call("log10")

    def is_nan(self) -> Expr:
        """Whether a Float64 is NaN; false for null, never null."""
        return self._call("is_nan")


@checked_methods
class TimeMethods(Base):
    """Of Date and TimestampNs (in UTC); those of the clock are of TimestampNs alone. All but date_trunc give Int64."""

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
        """The week of the year by ISO 8601: week 1 has the first Thursday."""
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
        microsecond that the value lies in; of the value's own type (a Date has no unit below a day)."""
        return self._call("date_trunc", unit)


@checked_methods
class PartMethods(Base):
    """Of Struct and List."""

    def field(self, name: str) -> Expr:
        """A field of a Struct; null where the struct is. `x["name"]` is the same."""
        return self._call("field", name)

    def get(self, index: ExprLike) -> Expr:
        """The element of a List at an index, 0 being the first; null when there is none. `x[0]` is the same."""
        return self._call("get", index)


@checked_methods
class Methods(TextMethods, NumberMethods, TimeMethods, PartMethods):
    """All of them."""

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
