"""date_format(): a constant pattern of Java's as a concatenation of the parts of the instant.

The numeric letters y, M, d, H, m, s and S are taken, and signs between them as they are; names of months and days, eras
and halves of days depend on a language and are refused. An instant has nanoseconds, so years have four digits, and nine
S are exact, where Spark's last three are 0.
"""

from __future__ import annotations

import re

from vernier.operators.language.expr.expression import Binary, Call, Cast, Expr, Literal
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.texts import String
from vernier.operators.sql.refusals import refuse

_PARTS = {"y": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}
_PIECE = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z'\[\]{}#]+|.", re.DOTALL)
SECOND = 1_000_000_000


def formatted(instant: Expr, pattern: str) -> Expr:
    """The text of an instant. Raises Refused for a pattern that is not taken."""
    parts: list[Expr] = []
    for found in _PIECE.finditer(pattern):
        piece = found[0]
        if piece[0].isalpha():
            parts.append(_number(instant, piece))
        elif piece[0] == "'" and len(piece) > 1:
            parts.append(Literal(piece[1:-1].replace("''", "'") or "'", String()))
        elif piece[0] in "'[]{}#":
            raise refuse(f"date_format() takes no {piece} in a pattern; put it between two '", "date_format")
        else:
            parts.append(Literal(piece, String()))
    return Call("concat", tuple(parts or [Literal("", String())]))


def _number(instant: Expr, letters: str) -> Expr:
    letter, count = letters[0], len(letters)
    if letter == "S" and count <= 9:
        nanoseconds = Cast(instant, Int64())
        whole = Binary("%", Binary("+", Binary("%", nanoseconds, _int(SECOND)), _int(SECOND)), _int(SECOND))
        return _padded(Binary("//", whole, _int(10 ** (9 - count))), count)
    if letter not in _PARTS or count > 2 + 2 * (letter == "y") or letters == "yyy":
        raise refuse(
            f"date_format() takes yyyy, yy, MM, dd, HH, mm, ss and up to nine S here, not {letters}", "date_format"
        )
    value: Expr = Call(_PARTS[letter], (instant,))
    if letters == "yy":
        value = Binary("%", value, _int(100))
    return Cast(value, String()) if count == 1 else _padded(value, count)


def _padded(value: Expr, digits: int) -> Expr:
    return Call("lpad", (Cast(value, String()), _int(digits), Literal("0", String())))


def _int(value: int) -> Expr:
    return Literal(value, Int64())
