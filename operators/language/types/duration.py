"""Durations as programs write them ("10m", "1.5h", "250ms") and as the engine counts them, in nanoseconds."""

import re
from fractions import Fraction

from vernier.operators.errors import WrongType

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_UNITS |= {
    word: _UNITS[short]
    for short, name in (("s", "second"), ("m", "minute"), ("h", "hour"), ("d", "day"))
    for word in (name, f"{name}s")
}


def nanoseconds(text: str | int, what: str = "the duration") -> int:
    """A duration in nanoseconds: an integer unchanged, text as number and unit (ns us ms s m h d, or seconds,
    minutes, hours, days). Raises WrongType."""
    if isinstance(text, int) and not isinstance(text, bool) and 0 <= text < 2**63:
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*", text) if isinstance(text, str) else None
    if found is None or found[2] not in _UNITS:
        raise WrongType(problem=f'{what} must be like "10m" (units: ns, us, ms, s, m, h, d), not {text!r}')
    exact = Fraction(found[1]) * _UNITS[found[2]]
    if exact.denominator != 1 or exact >= 2**63:
        raise WrongType(problem=f"{what} {text!r} is not a whole number of nanoseconds below 2**63")
    return int(exact)
