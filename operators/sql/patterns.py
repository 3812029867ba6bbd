"""Regular expressions: those that Java and RE2 read differently are refused, so none has another meaning in silence.

Spark's are Java's; ours run in RE2. Most of what only one of them knows is an error in the other. What is left means
something in both: classes inside classes, `&&`, POSIX classes, and a few letters behind a backslash or in flags.
"""

from __future__ import annotations

import re

from vernier.operators.sql.refusals import refuse

_ESCAPES = {
    "v": "write \\x0B, or a class such as [\\n\\r\\f]",
    "C": "write (?s:.)",
}
"""Letters behind a backslash that mean different things, and what to write."""


def check_pattern(pattern: str, word: str) -> None:
    """Raise Refused for a regular expression that means something else in Java. word: the function that takes it."""
    at, inside = 0, False
    while at < len(pattern):
        rest = pattern[at:]
        if rest[0] == "\\":
            if rest[1:2] in _ESCAPES:
                raise _other(f"\\{rest[1]}", _ESCAPES[rest[1]], word)
            at = _behind(pattern, at)
            continue
        if inside and rest.startswith("[:"):
            raise _other("a POSIX class", "write its signs, such as [A-Za-z]", word)
        if inside and rest[0] == "[":
            raise _other("[ inside a class", "write \\[ for the sign, or one class", word)
        if inside and rest.startswith("&&"):
            raise _other("&& inside a class", "write the class of the signs that are in both", word)
        if not inside and (flags := re.match(r"\(\?([a-zA-Z]*)[-:)]", rest)) and "U" in flags[1]:
            raise _other("the flag U", "write *? for the shortest match", word)
        if inside:
            inside = rest[0] != "]"
        elif rest[0] == "[":
            inside = True
            at += len("[^]") - 1 if rest.startswith("[^]") else len("[]") - 1 if rest.startswith("[]") else 0
        at += 1


def _behind(pattern: str, at: int) -> int:
    """The place behind an escape; \\Q quotes all up to \\E."""
    if pattern[at + 1 : at + 2] != "Q":
        return at + 2
    end = pattern.find("\\E", at + 2)
    return len(pattern) if end < 0 else end + 2


def _other(what: str, instead: str, word: str) -> Exception:
    return refuse(f"{what} in a regular expression means something else in Spark than here; {instead}", word, "regexp")
