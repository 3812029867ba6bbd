"""Regular expressions: those of Java that RE2 reads differently are rewritten, or refused.

Spark's are Java's; ours run in RE2. Most of what only one of them knows is an error in the other. Rewritten are `.`
(Java ends lines at five signs, RE2 at \\n alone), `\\s` and `\\S` (Java's has \\x0B), and `$` at the end of an
expression that is only tested, which Java also takes before a last end of line. The rest is refused: `$` where the text
that matched is used, `(?m)`, classes inside classes, `&&`, POSIX classes, a few letters behind a backslash or in flags.
"""

from __future__ import annotations

import re

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
    every = [False]  # whether . is any sign, by open bracket
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
        elif inside:
            if rest.startswith("[:"):
                raise _other("a POSIX class", "write its signs, such as [A-Za-z]", word)
            if rest[0] == "[":
                raise _other("[ inside a class", "write \\[ for the sign, or one class", word)
            if rest.startswith("&&"):
                raise _other("&& inside a class", "write the class of the signs that are in both", word)
            inside = rest[0] != "]"
        elif rest[0] == "[":
            inside, class_from = True, at
            step = len("[^]") if rest.startswith("[^]") else len("[]") if rest.startswith("[]") else 1
            new = rest[:step]
        elif rest[0] == "(":
            flags = re.match(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])", rest)
            if flags is None:
                every.append(every[-1])
            else:
                step, new = flags.end(), flags[0]
                if "i" in flags[1] and not pattern.isascii():
                    raise _other("the flag i beside letters that are not ASCII", "write both letters, [éÉ]", word)
                dots = _dots(flags, every[-1], word)
                if flags[3] == ":":
                    every.append(dots)
                else:
                    every[-1] = dots
        elif rest[0] == ")" and len(every) > 1:
            every.pop()
        elif rest[0] == "." and not every[-1]:
            new = f"[^{_LINE_ENDS}]"
        elif rest[0] == "$":
            if not tested or not re.match(r"\$\)*(\||\Z)", rest):
                raise _other(
                    "$, which Java also takes before a last end of line,", "write \\z for the end of the text", word
                )
            new = _AT_END
        out += new
        at += step
    return out


def _dots(flags: re.Match[str], now: bool, word: str) -> bool:
    """Whether . is any sign under these flags. Raises Refused."""
    if "U" in flags[1]:
        raise _other("the flag U", "write *? for the shortest match", word)
    if "m" in flags[1]:
        raise _other("the flag m", "write (?:\\A|\\n) and (?:\\n|\\z) for the ends of lines", word)
    return "s" not in (flags[2] or "") and (now or "s" in flags[1])


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
