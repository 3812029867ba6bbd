"""Converts data times between their text forms and exact int64 nanoseconds.

Every time from a person or another system (HTTP parameters, the command line, message fields) may be an integer, a
decimal string, or RFC 3339 with up to nine decimals. No conversion uses floats. Forms that only Python would accept
(surrounding blanks, a plus sign, underscores, weeks, digits of other scripts) are refused.
"""

import re
from datetime import UTC, date, datetime, timedelta

from vernier.storage.errors import CallerError
from vernier.storage.time.lattice import CLOSED, MIN_TIME

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_INTEGER = re.compile(r"-?\d{1,40}", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LAST_HOUR, _LAST_MINUTE = 23, 59
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000_000


class BadInstant(CallerError):
    """A text is not a time."""

    message = "{text!r} is not a time; give nanoseconds since 1970, or RFC 3339 such as 2026-01-31T12:00:00.000000001Z"
    text: str


class NoZone(BadInstant):
    """A time has neither `Z` nor an offset, so it could mean any of two dozen instants."""

    code = "bad_instant"
    message = "{text!r} is a time without a zone; append Z for UTC ({text}Z), or an offset such as +01:00"


class InstantOutOfRange(CallerError):
    """A time lies outside the range of data times."""

    message = "time {text} is outside the data times {least} to {greatest}"
    text: str
    least: int = MIN_TIME
    greatest: int = CLOSED


def parse_instant(given: str | int) -> int:
    """Nanoseconds since 1970 of an integer, a decimal string or RFC 3339.

    Raises BadInstant (NoZone if only the zone is missing), InstantOutOfRange.
    """
    instant = given if isinstance(given, int) and not isinstance(given, bool) else _parse_text(given)
    if not MIN_TIME <= instant <= CLOSED:
        raise InstantOutOfRange(text=str(given))
    return instant


def _parse_text(given: str | int) -> int:
    if not isinstance(given, str):
        raise BadInstant(text=str(given))
    if _INTEGER.fullmatch(given):
        return int(given)
    match = _RFC3339.fullmatch(given)
    if match is None:
        raise BadInstant(text=given)
    *fields, fraction, zone = match.groups()
    try:
        moment = datetime(*(int(field) for field in fields), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError as error:
        raise BadInstant(text=given) from error
    if zone is None:
        raise NoZone(text=given)
    offset = timedelta(0)
    if zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > _LAST_HOUR or minutes > _LAST_MINUTE:
            raise BadInstant(text=given)
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    elapsed = moment - _EPOCH - offset
    return (elapsed.days * 86_400 + elapsed.seconds) * _SECOND + int((fraction or "").ljust(9, "0"))


def parse_day(text: str) -> date:
    """Parse a day of the years 1 to 9999, in the form `YYYY-MM-DD` only. Raises ValueError."""
    if not _DAY.fullmatch(text):
        raise ValueError(f"{text!r} is not YYYY-MM-DD")
    return date.fromisoformat(text)


def format_instant(instant: int) -> str:
    """RFC 3339 in UTC with nine decimals, or the plain number if its year is outside the calendar's range."""
    seconds, nanoseconds = divmod(instant, _SECOND)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return str(instant)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
