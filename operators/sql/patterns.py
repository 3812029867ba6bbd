"""Regular expressions: those of Java that RE2 reads differently are rewritten, or refused.

Spark's are Java's; ours run in RE2. Most of what only one of them knows is an error in the other. Rewritten are `.`
(Java ends lines at five signs, RE2 at \\n alone), `\\s` and `\\S` (Java's has \\x0B), the flag i (Java's folds the
letters of ASCII alone, RE2's also ſ to s and the Kelvin sign to k), and `$` at the end of an expression that is only
tested, which Java also takes before a last end of line. The rest is refused: `$` where the text that matched is used,
`(?m)`, classes inside classes, `&&`, POSIX classes, a few letters behind a backslash or in flags.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.sql.refusals import refuse

_ESCAPES = {
    "v": "write \\x0B, or a class such as [\\n\\r\\f]",
    "C": "write (?s:.)",
}
"""Letters behind a backslash that mean different things, and what to write."""
_SPACES = r"\t\n\x0B\f\r "
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_AT_END = rf"(?:\r\n|[{_LINE_ENDS}])?\z"


def translated(pattern: str, word: str, *, tested: bool) -> str:
    """The regular expression of Java as RE2 takes it. word: the function that takes it; tested: whether only its match
    counts, not what it matches. Raises Refused."""
    out, at, inside = "", 0, False
    flags = [_Flags()]  # by open bracket
    class_from = 0
    while at < len(pattern):
        rest = pattern[at:]
        step = 1
        new = rest[0]
        if rest[0] == "\\":
            if rest[1:2] in _ESCAPES:
                raise _other(f"\\{rest[1]}", _ESCAPES[rest[1]], word)
            step = _behind(pattern, at) - at
            new = _escaped(rest[:step], pattern, class_from if inside else None, word)
            if flags[-1].folds:
                new = _folded_escape(new, word, inside=inside)
        elif inside:
            if rest.startswith("[:"):
                raise _other("a POSIX class", "write its signs, such as [A-Za-z]", word)
            if rest[0] == "[":
                raise _other("[ inside a class", "write \\[ for the sign, or one class", word)
            if rest.startswith("&&"):
                raise _other("&& inside a class", "write the class of the signs that are in both", word)
            inside = rest[0] != "]"
            if inside and flags[-1].folds:
                stretch = re.match(r"[^\\\]]-[^\\\]\[]", rest)
                step = 3 if stretch else 1
                new = rest[:step] + _both(rest[0], rest[2] if stretch else rest[0])
        elif rest[0] == "[":
            inside, class_from = True, at
            step = len("[^]") if rest.startswith("[^]") else len("[]") if rest.startswith("[]") else 1
            new = rest[:step]
        elif rest[0] == "(":
            given = re.match(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])", rest)
            if given is None:
                flags.append(flags[-1])
                name = re.match(r"\(\?P?<[^>]*>", rest)  # its letters are no letters of the text
                step = name.end() if name else 1
                new = rest[:step]
            else:
                step, found = given.end(), _with_flags(given, flags[-1], word)
                new = _without_i(given)
                if given[3] == ":":
                    flags.append(found)
                else:
                    flags[-1] = found
        elif rest[0] == ")" and len(flags) > 1:
            flags.pop()
        elif rest[0] == "." and not flags[-1].dots:
            new = f"[^{_LINE_ENDS}]"
        elif rest[0] == "$":
            if not tested or not re.match(r"\$\)*(\||\Z)", rest):
                raise _other(
                    "$, which Java also takes before a last end of line,", "write \\z for the end of the text", word
                )
            new = _AT_END
        elif rest[0] in string.ascii_letters and flags[-1].folds:
            new = _either(rest[0])
        out += new
        at += step
    return out


@dataclass(frozen=True)
class _Flags:
    """What holds at a place: whether . is any sign, and whether letters of ASCII match in upper and lower case."""

    dots: bool = False
    folds: bool = False


def _with_flags(given: re.Match[str], now: _Flags, word: str) -> _Flags:
    """The flags behind (?on-off). Raises Refused."""
    on, off = given[1], given[2] or ""
    if "U" in on:
        raise _other("the flag U", "write *? for the shortest match", word)
    if "m" in on:
        raise _other("the flag m", "write (?:\\A|\\n) and (?:\\n|\\z) for the ends of lines", word)
    return _Flags(
        "s" not in off and (now.dots or "s" in on),
        "i" not in off and (now.folds or "i" in on),
    )


def _without_i(given: re.Match[str]) -> str:
    """The flags without i, which is written out."""
    on, off = given[1].replace("i", ""), (given[2] or "").replace("i", "")
    if not on and not off:
        return "(?:" if given[3] == ":" else ""
    return f"(?{on}{f'-{off}' if off else ''}{given[3]}"


def _either(letter: str) -> str:
    return f"[{letter.lower()}{letter.upper()}]"


def _both(first: str, last: str) -> str:
    """The letters of ASCII whose other case is between two signs, and which are not."""
    within = range(ord(first), ord(last) + 1)
    return "".join(one for one in string.ascii_letters if ord(one) not in within and ord(one.swapcase()) in within)


def _folded_escape(escape: str, word: str, *, inside: bool) -> str:
    """An escape under the flag i, as RE2 takes it."""
    if escape[1:2] in ("x", "u", "0", "c", "p", "P", "N"):
        raise _other(f"\\{escape[1]} under the flag i", "write the letters themselves, in both cases", word)
    if escape.startswith("\\Q"):
        quoted = escape[2:].removesuffix("\\E")
        return "".join(
            (one + one.swapcase() if inside else _either(one)) if one in string.ascii_letters else re.escape(one)
            for one in quoted
        )
    return escape


def may_follow_empty(pattern: str) -> bool:
    """Whether a regular expression of RE2 can match an empty text behind other signs. Java replaces such a match also
    just behind another match, RE2 does not."""
    return any(
        pc.match_substring_regex(pa.array([before + behind]), f"\\A{before}(?:{pattern}){behind}\\z")[0].as_py()
        for before in ("a", " ")
        for behind in ("", "a", " ")
    )


def _escaped(escape: str, pattern: str, class_from: int | None, word: str) -> str:
    """An escape as RE2 takes it. class_from: where its class begins, if it is in one."""
    if escape == "\\s":
        return f"[{_SPACES}]" if class_from is None else _SPACES
    if escape == "\\S":
        if class_from is None:
            return f"[^{_SPACES}]"
        if pattern[class_from:].startswith((r"[\s\S]", r"[\S\s]")):  # every sign
            return escape
        raise _other("\\S inside a class", "write [^\\s…], or (?:\\S|…)", word)
    return escape


def _behind(pattern: str, at: int) -> int:
    """The place behind an escape; \\Q quotes all up to \\E."""
    if pattern[at + 1 : at + 2] != "Q":
        return at + 2
    end = pattern.find("\\E", at + 2)
    return len(pattern) if end < 0 else end + 2


def _other(what: str, instead: str, word: str) -> Exception:
    return refuse(f"{what} in a regular expression means something else in Spark than here; {instead}", word, "regexp")
