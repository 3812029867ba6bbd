"""Functions of String and Binary as in Spark SQL, mostly by Arrow's functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.errors import BadValue, WrongType
from vernier.operators.language.expr.compute.calling import literal, need, parametrised, strict
from vernier.operators.language.expr.compute.coercion import common
from vernier.operators.language.expr.compute.conversion import list_array
from vernier.operators.language.expr.compute.lists import lengths
from vernier.operators.language.expr.compute.operations import join
from vernier.operators.language.expr.compute.vector import Bound, joined
from vernier.operators.language.expr.expression import Call, Expr
from vernier.operators.language.types.parts import TEXT_BYTES
from vernier.operators.language.types.scalars import Bool, Int64
from vernier.operators.language.types.texts import List, String

_TEXT, _INT, _BOOL = String(), Int64(), Bool()
_FAR = 1 << 31


def _mapped(array: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """A Python function applied to each distinct text, where no Arrow function means the same."""
    coded = array.dictionary_encode()
    changed = [change(value) for value in coded.dictionary.to_pylist()]
    return pa.array(changed, pa.large_string()).take(coded.indices)


def _cased(by_ascii: Callable[[pa.Array], pa.Array], change: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    """Upper or lower case. Arrow maps one letter to one letter, so Python does Unicode's full mapping (ß to SS)."""

    def compute(array: pa.Array) -> pa.Array:
        simple = pc.string_is_ascii(array)
        if pc.all(simple, min_count=0).as_py():
            return by_ascii(array)
        other = _mapped(pc.if_else(simple, pa.scalar(None, array.type), array), change)
        return pc.if_else(simple, by_ascii(array), other)

    return compute


def _capital(text: str) -> str:
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


def _of_text(compute: Callable[[pa.Array], pa.Array]) -> Callable[[Call, Sequence[Bound]], Bound]:
    def bind(expr: Call, arguments: Sequence[Bound]) -> Bound:
        need(expr, arguments[0], "String")
        return strict(expr, _TEXT, arguments, compute)

    return bind


def _trimmed(trim: Callable[..., pa.Array]) -> Callable[[Call, Sequence[Bound]], Bound]:
    def bind(expr: Call, arguments: Sequence[Bound]) -> Bound:
        for bound in arguments:
            need(expr, bound, "String")
        return parametrised(
            expr,
            _TEXT,
            arguments[0],
            arguments[1:],
            lambda array, some=" ": trim(array, characters=some) if some else array,
        )

    return bind


def _length(expr: Call, arguments: Sequence[Bound]) -> Bound:
    kind = need(expr, arguments[0], "String", "Binary", "List")
    by_kind = {"String": pc.utf8_length, "Binary": pc.binary_length, "List": pc.list_value_length}
    return strict(expr, _INT, arguments, lambda array: by_kind[kind.name](array).cast(pa.int64()))


def _substr(expr: Call, arguments: Sequence[Bound]) -> Bound:
    kind = need(expr, arguments[0], "String", "Binary")
    for bound in arguments[1:]:
        need(expr, bound, "Int64")
    take = pc.utf8_slice_codeunits if kind.name == "String" else pc.binary_slice

    def cut(array: pa.Array, start: int, length: int | None = None) -> pa.Array:
        start = max(-_FAR, min(_FAR, start))
        first = start - 1 if start > 0 else start
        if length is None:
            return take(array, first)
        stop = first + max(0, min(2 * _FAR, length))
        # If `first` counts from the end, a stop of 0 or more means no stop; Arrow would take 0 as the beginning.
        return take(array, first, stop) if first >= 0 or stop < 0 else take(array, first)

    return parametrised(expr, kind, arguments[0], arguments[1:], cut)


def _searched(search: Callable[..., pa.Array]) -> Callable[[Call, Sequence[Bound]], Bound]:
    def bind(expr: Call, arguments: Sequence[Bound]) -> Bound:
        kind = need(expr, arguments[0], "String", "Binary")
        need(expr, arguments[1], kind.name)
        return parametrised(expr, _BOOL, arguments[0], arguments[1:], lambda array, other: search(array, pattern=other))

    return bind


def _instr(expr: Call, arguments: Sequence[Bound]) -> Bound:
    for bound in arguments:
        need(expr, bound, "String")

    def find(array: pa.Array, other: str) -> pa.Array:
        if len(array) == 0:
            return pa.array([], pa.int64())
        at = pc.fill_null(pc.find_substring(array, pattern=other), -1).to_numpy(zero_copy_only=False)
        # Arrow counts bytes. Count the code points before the match: their first bytes do not have the form 10xxxxxx.
        array = pc.fill_null(array, "")
        window = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]
        data = array.buffers()[2]
        firsts = (np.frombuffer(b"" if data is None else data, np.uint8) & 0xC0) != 0x80
        points = np.concatenate(([0], np.cumsum(firsts)))
        return pa.array(np.where(at < 0, 0, points[window + np.maximum(at, 0)] - points[window] + 1))

    def kept(array: pa.Array, other: str) -> pa.Array:
        return pc.if_else(array.is_valid(), find(array, other), pa.scalar(None, pa.int64()))

    return parametrised(expr, _INT, arguments[0], arguments[1:], kept)


# --- patterns ---------------------------------------------------------------------------------------------------------


def _checked(expr: Expr, pattern: str) -> str:
    """The regular expression, checked to be valid. Raises WrongType."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise WrongType(problem=f"{expr} needs a regular expression of RE2: {error}") from error
    return pattern


def _like(expr: Call, arguments: Sequence[Bound]) -> Bound:
    need(expr, arguments[0], "String")
    pattern = literal(expr, arguments[1], "a pattern", str)
    regex, rest = "", iter(pattern)
    for sign in rest:
        if sign == "\\":
            sign = next(rest, "")
            if sign not in ("%", "_", "\\") or not sign:
                raise WrongType(problem=f"in the pattern of {expr} a backslash comes before %, _ and a backslash alone")
            regex += _quoted(sign)
        else:
            regex += {"%": ".*", "_": "."}.get(sign) or _quoted(sign)
    regex = rf"(?s)\A{regex}\z"
    return strict(expr, _BOOL, arguments[:1], lambda array: pc.match_substring_regex(array, regex))


def _quoted(sign: str) -> str:
    return sign if sign.isalnum() or ord(sign) > 127 or sign == "_" else f"\\x{{{ord(sign):x}}}"


def _rlike(expr: Call, arguments: Sequence[Bound]) -> Bound:
    need(expr, arguments[0], "String")
    pattern = _checked(expr, literal(expr, arguments[1], "a regular expression", str))
    return strict(expr, _BOOL, arguments[:1], lambda array: pc.match_substring_regex(array, pattern))


def _replace(expr: Call, arguments: Sequence[Bound]) -> Bound:
    for bound in arguments:
        need(expr, bound, "String")

    def change(array: pa.Array, search: str, by: str) -> pa.Array:
        return pc.replace_substring(array, pattern=search, replacement=by) if search else array

    return parametrised(expr, _TEXT, arguments[0], arguments[1:], change)


def _regexp_replace(expr: Call, arguments: Sequence[Bound]) -> Bound:
    need(expr, arguments[0], "String")
    pattern = _checked(expr, literal(expr, arguments[1], "a regular expression", str))
    given, by = iter(literal(expr, arguments[2], "a replacement", str)), ""
    for sign in given:  # Java's syntax: $1 is a group, \x is x
        if sign == "$":
            by += "\\" + next(given, "")
        else:
            plain = next(given, "") if sign == "\\" else sign
            by += "\\\\" if plain == "\\" else plain
    try:
        pc.replace_substring_regex(pa.array(["a"]), pattern=pattern, replacement=by)
    except pa.ArrowInvalid as error:
        raise WrongType(problem=f"{expr} has a replacement that does not fit its pattern: {error}") from error
    return strict(
        expr, _TEXT, arguments[:1], lambda array: pc.replace_substring_regex(array, pattern=pattern, replacement=by)
    )


def _regexp_extract(expr: Call, arguments: Sequence[Bound]) -> Bound:
    need(expr, arguments[0], "String")
    pattern = _checked(expr, literal(expr, arguments[1], "a regular expression", str))
    group = literal(expr, arguments[2], "a group", int)
    named, count = _named_groups(pattern)
    if not 0 <= group <= count:
        raise WrongType(problem=f"{expr} needs group {group}, but the regular expression has {count}")

    def find(array: pa.Array) -> pa.Array:
        found = pc.extract_regex(array, f"(?P<g0>{named})")
        text = pc.fill_null(found.field(f"g{group}"), "")
        text = pc.if_else(found.is_valid(), text, "")
        return pc.if_else(array.is_valid(), text, pa.scalar(None, text.type))

    return strict(expr, _TEXT, arguments[:1], find)


def _named_groups(pattern: str) -> tuple[str, int]:
    """The pattern with its groups named g1, g2, …, as Arrow needs them, and the number of groups."""
    out, count, at, inside = "", 0, 0, False
    while at < len(pattern):
        sign = pattern[at]
        step = 1
        if sign == "\\":
            step = 2
        elif inside:
            inside = sign != "]"
        elif sign == "[":
            inside = True
            step = 3 if pattern[at + 1 : at + 3] == "^]" else 2 if pattern[at + 1 : at + 2] == "]" else 1
        elif sign == "(":
            name = pattern.find(">", at) if pattern[at + 1 :].startswith(("?P<", "?<")) else 0
            if name or pattern[at + 1 : at + 2] != "?":
                count += 1
                out += f"(?P<g{count}>"
                at = name + 1 if name else at + 1
                continue
        out += pattern[at : at + step]
        at += step
    return out, count


def _split(expr: Call, arguments: Sequence[Bound]) -> Bound:
    need(expr, arguments[0], "String")
    pattern = _checked(expr, literal(expr, arguments[1], "a regular expression", str))
    limit = literal(expr, arguments[2], "a limit", int)
    if pc.match_substring_regex(pa.array([""]), rf"\A(?:{pattern})\z")[0].as_py():
        raise WrongType(problem=f"{expr} cannot split: its regular expression matches the empty text")
    kind = List(_TEXT)

    def cut(array: pa.Array) -> pa.Array:
        if limit == 1:
            found, sizes = array.drop_null(), array.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            lists = pc.split_pattern_regex(array, pattern=pattern, max_splits=limit - 1 if limit > 0 else None)
            found, sizes = lists.flatten(), lengths(lists)
        made = list_array(sizes, found.cast(pa.large_string()), kind)
        return pc.if_else(array.is_valid(), made, pa.scalar(None, made.type))

    return strict(expr, kind, arguments[:1], cut)


# --- making texts -----------------------------------------------------------------------------------------------------


def _padded(left: bool) -> Callable[[Call, Sequence[Bound]], Bound]:
    def bind(expr: Call, arguments: Sequence[Bound]) -> Bound:
        for bound, name in zip(arguments, ("String", "Int64", "String"), strict=True):
            need(expr, bound, name)

        def pad(array: pa.Array, length: int, some: str) -> pa.Array:
            length = max(0, length)
            _check_size(expr, length * 4)
            array = pc.utf8_slice_codeunits(array, 0, length)
            if not some:
                return array
            missing = length - pc.fill_null(pc.utf8_length(array), length).to_numpy(zero_copy_only=False)
            longest = int(missing.max(initial=0))
            filling = (some * (longest // len(some) + 1))[:longest]
            pieces = pa.array([filling[:size] for size in range(longest + 1)], pa.large_string())
            more = pieces.take(pa.array(missing))
            return joined(more, array) if left else joined(array, more)

        return parametrised(expr, _TEXT, arguments[0], arguments[1:], pad, fallible=True)

    return bind


def _check_size(expr: Expr, size: int) -> None:
    if size > TEXT_BYTES:
        raise BadValue(column=str(expr), problem=f"would make a text of {size} bytes; the most is {TEXT_BYTES}")


def _repeat(expr: Call, arguments: Sequence[Bound]) -> Bound:
    kind = need(expr, arguments[0], "String", "Binary")
    need(expr, arguments[1], "Int64")

    def repeat(array: pa.Array, times: pa.Array) -> pa.Array:
        counts = pc.max_element_wise(times, pa.scalar(0, pa.int64()), skip_nulls=False)
        counts = pc.if_else(pc.equal(pc.binary_length(array), 0), pa.scalar(0, pa.int64()), counts)
        most = pc.max(pc.multiply(pc.min_element_wise(counts, TEXT_BYTES + 1), pc.binary_length(array))).as_py() or 0
        _check_size(expr, most)
        return pc.binary_repeat(array, counts)

    return strict(expr, kind, arguments, repeat, fallible=True)


def _concat(expr: Call, arguments: Sequence[Bound]) -> Bound:
    if not arguments:
        raise WrongType(problem="concat needs at least one value")
    kind = common(arguments, str(expr))
    for bound in arguments:
        need(expr, bound, "String", "Binary", "List")
    total = arguments[0]
    for bound in arguments[1:]:
        total = join(expr, total, bound)
    return Bound(expr, kind, total.nullable, total.fallible, total.compute)


def _concat_ws(expr: Call, arguments: Sequence[Bound]) -> Bound:
    if len(arguments) < 2:
        raise WrongType(problem="concat_ws needs a separator and at least one value")
    for bound in arguments:
        need(expr, bound, "String")

    def glue(separator: pa.Array, *parts: pa.Array) -> pa.Array:
        # Arrow leaves out the rows whose parts are all null.
        some = reduce(pc.or_, (part.is_valid() for part in parts))
        first = pc.if_else(some, parts[0], pa.scalar("", parts[0].type))
        glued = pc.binary_join_element_wise(first, *parts[1:], pc.fill_null(separator, ""), null_handling="skip")
        return pc.if_else(separator.is_valid(), glued, pa.scalar(None, glued.type))

    made = strict(expr, _TEXT, arguments, glue)
    return Bound(expr, _TEXT, arguments[0].nullable, made.fallible, made.compute)


TEXT_CALLS: dict[str, Callable[[Call, Sequence[Bound]], Bound]] = {
    "upper": _of_text(_cased(pc.ascii_upper, str.upper)),
    "lower": _of_text(_cased(pc.ascii_lower, str.lower)),
    "initcap": _of_text(lambda array: _mapped(array, _capital)),
    "trim": _trimmed(pc.utf8_trim),
    "ltrim": _trimmed(pc.utf8_ltrim),
    "rtrim": _trimmed(pc.utf8_rtrim),
    "length": _length,
    "substr": _substr,
    "startswith": _searched(pc.starts_with),
    "endswith": _searched(pc.ends_with),
    "instr": _instr,
    "like": _like,
    "rlike": _rlike,
    "replace": _replace,
    "regexp_replace": _regexp_replace,
    "regexp_extract": _regexp_extract,
    "split": _split,
    "lpad": _padded(left=True),
    "rpad": _padded(left=False),
    "repeat": _repeat,
    "concat": _concat,
    "concat_ws": _concat_ws,
}
"""Functions by name; `contains` and `reverse` also take lists (parts.py)."""

text_contains = _searched(pc.match_substring)
