"""Catalyst's expressions as expressions of ours, which have the same meaning (docs/expressions.md).

Two differences are meant. Integers of all widths are 64 bits. Where Spark in ANSI mode raises an error for a row, ours
gives null: a zero divisor, and text that is no value of a cast's type; one bad row must not stop all views.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import (
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    IsNull,
    Literal,
    Nullability,
    Unary,
)
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import List, String
from vernier.operators.sql.date_formats import formatted
from vernier.operators.sql.literals import MICROSECONDS, kind_of, literal
from vernier.operators.sql.patterns import may_follow_empty, translated
from vernier.operators.sql.refusals import INSTEAD, UNSTEADY, refuse, unsteady
from vernier.operators.sql.trees import Tree

SECOND = 1_000_000_000
DAY = 86_400 * SECOND


class Expressions:
    """Translates the expressions over one collection. ids: the column of each attribute; known: columns that hold the
    value of an expression already, by its form."""

    def __init__(self, row: RowType, ids: Mapping[int, str], known: Mapping[str, str] | None = None) -> None:
        self.row, self.ids, self.known = row, ids, known or {}

    def of(self, tree: Tree) -> Expr:
        """The expression. Raises Refused where there is none."""
        if self.known and tree.form in self.known:
            return Column(self.known[tree.form])
        if tree.kind in _BINARY:
            left, right = map(self.of, tree.children)
            return Binary(_BINARY[tree.kind], left, right)
        if tree.kind in _CALLS:
            return Call(_CALLS[tree.kind], tuple(map(self.of, tree.children)))
        if tree.kind in _SAME:
            return self.of(tree.children[0])
        if tree.kind in _FORMS:
            return _FORMS[tree.kind](self, tree)
        raise unknown(tree)

    def type(self, expr: Expr) -> Type | None:
        """The type of an expression; None for a null of any type."""
        return bind(expr, self.row).kind

    def constant(self, tree: Tree, what: str) -> str | int | bool | float:
        """The value of an argument that must be a constant."""
        expr = self.of(tree)
        while isinstance(expr, Cast):
            expr = expr.part
        if not isinstance(expr, Literal) or not isinstance(expr.value, (str, int, bool, float)):
            raise refuse(f"{what} must be a constant")
        return expr.value


def unknown(tree: Tree) -> Exception:
    """The refusal of an expression or a node that nothing translates."""
    if tree.kind in UNSTEADY:
        return unsteady(UNSTEADY[tree.kind])
    if tree.kind == "PythonUDF":
        return refuse(INSTEAD[tree.kind], "data_time")
    if tree.kind in INSTEAD:
        return refuse(INSTEAD[tree.kind], *_WORDS.get(tree.kind, (tree.kind,)))
    if tree.kind == "Invoke" or tree.kind == "StaticInvoke":
        name = str(tree.fields.get("functionName"))
        return refuse(f"the function {name} cannot be maintained; compute it before the rows are sent", name)
    if "YMInterval" in tree.kind or tree.kind == "AddMonths":
        return refuse(
            "months and years have no fixed length and cannot be maintained; write an interval of days, hours, minutes "
            "or seconds",
            "interval",
            "add_months",
        )
    if "Interval" in tree.kind:
        return refuse(
            "an interval that is no constant cannot be maintained; compute with numbers: "
            "timestamp_micros(unix_micros(ts) + n * 1000000), unix_seconds(a) - unix_seconds(b)",
            "interval",
            "extract",
        )
    words = _WORDS.get(tree.kind, (_snake(tree.kind),))
    found = refuse(f"{words[0]}{_CANNOT}", *words)
    found.only_planned = "" if tree.kind in _WORDS else f"an expression that Spark plans as {tree.kind}{_CANNOT}"
    return found


_CANNOT = " cannot be maintained; compute it before the rows are sent, or in Python with vn.udf"
_WORDS = {
    "Percentile": ("median", "percentile"),
    "ApproximatePercentile": ("approx_percentile", "percentile_approx"),
    "HyperLogLogPlusPlus": ("approx_count_distinct",),
    "ListAgg": ("listagg", "string_agg"),
    "SortOrder": ("listagg", "string_agg"),
    "NTile": ("ntile",),
}
"""The words of SQL for classes that have other names."""


def _snake(kind: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(kind))


def attribute(scope: Expressions, tree: Tree) -> Expr:
    """A column, cast where its type is not what the plan says."""
    if tree.id not in scope.ids:
        raise refuse(
            f"the column {tree.name} comes from outside this query in a way that cannot be maintained; "
            "write the query as a join",
            tree.name,
        )
    return Column(scope.ids[tree.id])


def _cast(scope: Expressions, tree: Tree) -> Expr:
    target = tree.fields["dataType"]
    return converted(scope, scope.of(tree.one), kind_of(target))


def converted(scope: Expressions, part: Expr, target: Type) -> Expr:
    """An expression as another type, with the meaning of Spark's cast."""
    found = scope.type(part)
    if found == target:
        return part
    match found, target:
        case None, _:
            return Cast(part, target)
        case TimestampNs(), Int64():
            return floored(Cast(part, Int64()), SECOND)
        case TimestampNs(), Float64():
            return Binary("/", Cast(Cast(part, Int64()), Float64()), Literal(float(SECOND), Float64()))
        case Int64(), TimestampNs():
            return Cast(Binary("*", part, Literal(SECOND, Int64())), TimestampNs())
        case Bool(), Int64():
            return Case(((part, _int(1)), (Unary("~", part), _int(0))))
        case Float64(), Decimal():  # no decimal is NaN or infinite, and Spark's is null
            finite = Binary("<", Call("abs", (part,)), Literal(float("inf"), Float64()))
            return Case(((finite, Cast(part, target)),))
    return Cast(part, target)


def _int(value: int) -> Expr:
    return Literal(value, Int64())


def floored(value: Expr, by: int) -> Expr:
    """A quotient rounded down."""
    rest = Binary("%", value, _int(by))
    whole = Binary("//", Binary("-", value, rest), _int(by))
    return Case(((Binary("<", rest, _int(0)), Binary("-", whole, _int(1))),), whole)


def _pmod(scope: Expressions, tree: Tree) -> Expr:
    """The remainder, plus the divisor where it is negative; a negative divisor leaves it as it is."""
    left, right = map(scope.of, tree.children[:2])
    rest = Binary("%", left, right)
    wrong = Binary("&", Binary("<", rest, _int(0)), Binary(">", right, _int(0)))
    return Case(((wrong, Binary("%", Binary("+", rest, right), right)),), rest)


def _case(scope: Expressions, tree: Tree) -> Expr:
    parts = [scope.of(child) for child in tree.children]
    pairs = tuple((parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2))
    return Case(pairs, parts[-1] if len(parts) % 2 else None)


def _if(scope: Expressions, tree: Tree) -> Expr:
    test, one, two = map(scope.of, tree.children)
    return Case(((test, one),), two)


def _in(scope: Expressions, tree: Tree) -> Expr:
    return Call("is_in", tuple(map(scope.of, tree.children)))


def _like(scope: Expressions, tree: Tree) -> Expr:
    left, right = map(scope.of, tree.children[:2])
    return Call("like", (left, right))


def _concat_ws(scope: Expressions, tree: Tree) -> Expr:
    """concat_ws(separator, …). Spark gives a NULL among the values the type of a list; it is left out, as all nulls."""
    separator, *parts = map(scope.of, tree.children)
    values = [part for part in parts if not (isinstance(part, Cast) and scope.type(part.part) is None)]
    if any(isinstance(scope.type(value), List) for value in values):
        raise refuse(
            "concat_ws() joins texts here, not the elements of a list; compute it in Python with vn.udf", "concat_ws"
        )
    return Call("concat_ws", (separator, *(values or [Literal("", String())])))


def _trim(side: str) -> Callable[[Expressions, Tree], Expr]:
    def of(scope: Expressions, tree: Tree) -> Expr:
        return Call(side, tuple(map(scope.of, tree.children)))

    return of


def _substring(scope: Expressions, tree: Tree) -> Expr:
    return Call("substr", tuple(map(scope.of, tree.children)))


def _locate(scope: Expressions, tree: Tree) -> Expr:
    part, text = map(scope.of, tree.children[:2])
    if len(tree.children) > 2 and scope.constant(tree.children[2], "the start of locate()") != 1:
        raise refuse(
            "locate() begins at the first character here; write locate(part, substring(text, start))", "locate"
        )
    return Call("instr", (text, part))


def _regexp(name: str) -> Callable[[Expressions, Tree], Expr]:
    def of(scope: Expressions, tree: Tree) -> Expr:
        given = str(scope.constant(tree.children[1], f"the regular expression of {name}()"))
        regex = translated(given, name, tested=name == "rlike")
        pattern = Literal(regex, String())
        text, *more = (scope.of(one) for at, one in enumerate(tree.children[:3]) if at != 1)
        found = Call(name, (text, pattern, *more))
        if name == "regexp_replace":
            if len(tree.children) > 3 and scope.constant(tree.children[3], "the start of regexp_replace()") != 1:
                raise refuse("regexp_replace() begins at the first character here; replace in substring()", name)
            if scope.constant(tree.children[2], "the replacement of regexp_replace()"):
                scope.type(found)  # a pattern that RE2 does not know is an error of its own
                if may_follow_empty(regex):
                    raise refuse(
                        "a regular expression that matches the empty text is replaced in other places in Spark than "
                        "here; write x+ instead of x*",
                        name,
                    )
        return found

    return of


def _negate(scope: Expressions, tree: Tree) -> Expr:
    return Unary("-", scope.of(tree.children[0]))


def _not(scope: Expressions, tree: Tree) -> Expr:
    return Unary("~", scope.of(tree.one))


def _null(scope: Expressions, tree: Tree) -> Expr:
    return IsNull(scope.of(tree.one))


def _not_null(scope: Expressions, tree: Tree) -> Expr:
    return Unary("~", IsNull(scope.of(tree.one)))


def _known_not_null(scope: Expressions, tree: Tree) -> Expr:
    return scope.of(tree.one)


def _literal(scope: Expressions, tree: Tree) -> Expr:
    return literal(tree.fields.get("value"), tree.fields["dataType"], tree.fields.get("elements"))


def _minus(scope: Expressions, tree: Tree) -> Expr:
    left, right = map(scope.of, tree.children[:2])
    return Binary("-", left, right)


def _plus(scope: Expressions, tree: Tree) -> Expr:
    left, right = map(scope.of, tree.children[:2])
    return Binary("+", left, right)


def _trunc(scope: Expressions, tree: Tree) -> Expr:
    """date_trunc(unit, timestamp) and trunc(date, unit)."""
    first, second = tree.children[:2]
    unit, value = (first, second) if tree.kind == "TruncTimestamp" else (second, first)
    name = str(scope.constant(unit, "the unit of date_trunc()")).lower()
    name = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"}.get(name, name)
    instant = tree.kind == "TruncTimestamp"
    units = ("year", "quarter", "month", "week", *(("day", "hour", "minute", "second") if instant else ()))
    if name not in (*units, *(("millisecond", "microsecond") if instant else ())):
        function = "date_trunc" if instant else "trunc"
        raise refuse(
            f"{function}() has no unit {name!r}, and would be null; its units are {', '.join(units)}", function
        )
    return Call("date_trunc", (scope.of(value), Literal(name, String())))


def _whole(name: str) -> Callable[[Expressions, Tree], Expr]:
    """floor() and ceil(). Of doubles, Spark's are 0 for NaN, and the nearest integer where one does not fit."""

    def of(scope: Expressions, tree: Tree) -> Expr:
        value = scope.of(tree.children[0])
        found = Call(name, (value,))
        if scope.type(value) != Float64():
            return found
        high, low = Literal(2.0**63, Float64()), Literal(-(2.0**63), Float64())
        above, below = Binary(">=", value, high), Binary("<", value, low)
        return Case(((Call("is_nan", (value,)), _int(0)), (above, _int(2**63 - 1)), (below, _int(-(2**63)))), found)

    return of


def _round(scope: Expressions, tree: Tree) -> Expr:
    value = scope.of(tree.children[0])
    if scope.type(value) == Int64():
        if int(scope.constant(tree.children[1], "the digits of round()")) >= 0:
            return value
        raise refuse("round() to tens works on decimals here; cast to DECIMAL first", "round")
    return Call("round", (value, scope.of(tree.children[1])))


def _struct(scope: Expressions, tree: Tree) -> Expr:
    names = tuple(str(scope.constant(one, "the name of a field")) for one in tree.children[::2])
    return Call("struct", tuple(map(scope.of, tree.children[1::2])), names)


def _field(scope: Expressions, tree: Tree) -> Expr:
    value = scope.of(tree.children[0])
    kind = scope.type(value)
    names = tuple(getattr(kind, "fields", {}))
    return Call("field", (value, Literal(names[int(tree.fields["ordinal"])], String())))


def _item(scope: Expressions, tree: Tree) -> Expr:
    return Call("get", tuple(map(scope.of, tree.children[:2])))


def _split_by_text(scope: Expressions, tree: Tree) -> Expr:
    """The parts between a constant text, which is no pattern. An empty one does not divide."""
    text, delimiter = scope.of(tree.children[0]), str(scope.constant(tree.children[1], "the delimiter of split_part()"))
    if not delimiter:
        return Call("array", (text,))
    return Call("split", (text, Literal(re.sub(r"([^\w\s])", r"\\\1", delimiter), String()), _int(-1)))


def _part(scope: Expressions, tree: Tree) -> Expr:
    """split_part(text, delimiter, n): from the end if n is negative, and the empty text where there is no such part."""
    index = scope.constant(tree.children[1], "the number of the part in split_part()")
    if not isinstance(index, int) or not index:
        raise refuse("split_part() takes a constant number of the part, which is not 0", "split_part")
    text, parts = scope.of(tree.children[0].children[0]), scope.of(tree.children[0])
    place: Expr = _int(index - 1) if index > 0 else Binary("+", Call("length", (parts,)), _int(index))
    there = Binary(">=", place, _int(0))
    part = Call("coalesce", (Case(((there, Call("get", (parts, place))),)), Literal("", String())))
    return Case(((Unary("~", IsNull(text)), part),))


def _formatted(scope: Expressions, tree: Tree) -> Expr:
    instant, pattern = tree.children[:2]
    return formatted(scope.of(instant), str(scope.constant(pattern, "the pattern of date_format()")))


def _element(scope: Expressions, tree: Tree) -> Expr:
    if tree.children[0].kind == "StringSplitSQL":
        return _part(scope, tree)
    index = scope.constant(tree.children[1], "the index of element_at()")
    if not isinstance(index, int) or index < 1:
        raise refuse("element_at() takes a constant index from 1 on here", "element_at")
    return Call("get", (scope.of(tree.children[0]), _int(index - 1)))


def _interval_of(tree: Tree) -> Expr:
    return _int(int(tree.fields["value"]) * MICROSECONDS)


def _weekday(scope: Expressions, tree: Tree) -> Expr:
    return Binary("%", Binary("+", Call("day_of_week", (scope.of(tree.one),)), _int(5)), _int(7))


def _unix(by: int) -> Callable[[Expressions, Tree], Expr]:
    def of(scope: Expressions, tree: Tree) -> Expr:
        return floored(Cast(scope.of(tree.one), Int64()), by)

    return of


def _instant(by: int) -> Callable[[Expressions, Tree], Expr]:
    def of(scope: Expressions, tree: Tree) -> Expr:
        return Cast(Binary("*", scope.of(tree.one), _int(by)), TimestampNs())

    return of


def _logarithm(scope: Expressions, tree: Tree) -> Expr:
    return Call("ln", (scope.of(tree.one),))


def _sign(scope: Expressions, tree: Tree) -> Expr:
    return Call("sign", (scope.of(tree.one),))


def _precise(scope: Expressions, tree: Tree) -> Expr:
    """The conversions around the arithmetic of window(): Spark computes with microseconds, ours stay nanoseconds."""
    if tree.one.kind == tree.kind and tree.one.fields["fromType"] == tree.fields["toType"]:
        return scope.of(tree.one.one)
    value = scope.of(tree.one)
    target = Int64() if tree.fields["toType"] == "long" else TimestampNs()
    if scope.type(value) == target:
        return value
    if target == Int64():
        return floored(Cast(value, Int64()), MICROSECONDS)
    return Cast(Binary("*", value, _int(MICROSECONDS)), TimestampNs())


def _shifted(scope: Expressions, tree: Tree) -> Expr:
    """A shift to the right. Java takes the places modulo the width of the type: 64 bits, and 32 for narrower types."""
    places = int(scope.constant(tree.children[1], "the places of a shift"))
    kind = tree.children[0].fields.get("dataType")
    if kind is None and not 0 <= places < 32:
        raise refuse(f"a shift by {places} places depends on the type; cast the value to BIGINT", "shiftright", ">>")
    places %= 64 if kind in (None, "long") else 32
    value = scope.of(tree.children[0])
    if places < 63:
        return floored(value, 2**places)
    return Case(((Binary("<", value, _int(0)), _int(-1)), (Binary(">=", value, _int(0)), _int(0))))


def _bits(scope: Expressions, tree: Tree) -> Expr:
    """The lowest bit, which grouping() asks for."""
    if scope.constant(tree.children[1], "the mask of &") != 1:
        raise refuse("a & b is maintained for the mask 1 alone; write arithmetic", "&")
    value = scope.of(tree.children[0])
    return Binary("%", Binary("+", Binary("%", value, _int(2)), _int(2)), _int(2))


def _decimal_check(scope: Expressions, tree: Tree) -> Expr:
    value, target = scope.of(tree.children[0]), kind_of(tree.fields["dataType"])
    return value if scope.type(value) == target else Cast(value, target)


def _outer(scope: Expressions, tree: Tree) -> Expr:
    raise refuse("this correlated subquery cannot be turned into a join; write the join", "select", "exists", "in")


_BINARY = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "IntegralDivide": "//",
    "Remainder": "%",
    "EqualTo": "==",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "And": "&",
    "Or": "|",
}
_CALLS = {
    "EqualNullSafe": "eq_null_safe",
    "Coalesce": "coalesce",
    "Greatest": "greatest",
    "Least": "least",
    "Abs": "abs",
    "Sqrt": "sqrt",
    "Pow": "pow",
    "Exp": "exp",
    "Log": "ln",
    "Log10": "log10",
    "IsNaN": "is_nan",
    "Upper": "upper",
    "Lower": "lower",
    "InitCap": "initcap",
    "Length": "length",
    "StartsWith": "startswith",
    "EndsWith": "endswith",
    "Contains": "contains",
    "StringInstr": "instr",
    "StringReplace": "replace",
    "StringLPad": "lpad",
    "StringRPad": "rpad",
    "StringRepeat": "repeat",
    "Reverse": "reverse",
    "Concat": "concat",
    "Year": "year",
    "Quarter": "quarter",
    "Month": "month",
    "DayOfMonth": "day",
    "DayOfWeek": "day_of_week",
    "DayOfYear": "day_of_year",
    "WeekOfYear": "week",
    "Hour": "hour",
    "Minute": "minute",
    "Second": "second",
    "Size": "length",
    "ArrayContains": "contains",
    "CreateArray": "array",
}
_SAME = frozenset(
    {
        "Alias",
        "KnownNotNull",
        "KnownNullable",
        "KnownFloatingPointNormalized",
        "NormalizeNaNAndZero",
        "PromotePrecision",
        "TempResolvedColumn",
        "Empty2Null",
    }
)
"""Expressions that mean what their first child does."""
_FORMS: dict[str, Callable[[Expressions, Tree], Expr]] = {
    "AttributeReference": attribute,
    "Literal": _literal,
    "Cast": _cast,
    "AnsiCast": _cast,
    "Pmod": _pmod,
    "CaseWhen": _case,
    "If": _if,
    "In": _in,
    "Like": _like,
    "ConcatWs": _concat_ws,
    "StringTrim": _trim("trim"),
    "StringTrimLeft": _trim("ltrim"),
    "StringTrimRight": _trim("rtrim"),
    "Substring": _substring,
    "StringLocate": _locate,
    "RLike": _regexp("rlike"),
    "StringSplit": _regexp("split"),
    "StringSplitSQL": _split_by_text,
    "RegExpReplace": _regexp("regexp_replace"),
    "RegExpExtract": _regexp("regexp_extract"),
    "UnaryMinus": _negate,
    "Not": _not,
    "IsNull": _null,
    "IsNotNull": _not_null,
    "DateAdd": _plus,
    "DateSub": _minus,
    "DateDiff": _minus,
    "SubtractTimestamps": _minus,
    "TimeAdd": _plus,
    "TimestampAddInterval": _plus,
    "TruncTimestamp": _trunc,
    "TruncDate": _trunc,
    "DateFormatClass": _formatted,
    "Floor": _whole("floor"),
    "Ceil": _whole("ceil"),
    "Round": _round,
    "CreateNamedStruct": _struct,
    "GetStructField": _field,
    "GetArrayItem": _item,
    "ElementAt": _element,
    "WeekDay": _weekday,
    "UnixMicros": _unix(MICROSECONDS),
    "UnixMillis": _unix(1_000_000),
    "UnixSeconds": _unix(SECOND),
    "MicrosToTimestamp": _instant(MICROSECONDS),
    "MillisToTimestamp": _instant(1_000_000),
    "Signum": _sign,
    "PreciseTimestampConversion": _precise,
    "ShiftRight": _shifted,
    "BitwiseAnd": _bits,
    "CheckOverflow": _decimal_check,
    "OuterReference": _outer,
}


def nullable(part: Expr) -> Expr:
    """The same value in a column that may hold nulls."""
    return Nullability(part, True)
