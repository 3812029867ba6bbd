"""Scan JSON values in bytes: integers, doubles, dates, instants, members, rows.

Every function takes `text`, the address of the bytes, a position and the end of the message. An array instead of an
address would cost more at a call than scanning a short value. It returns the position after what it
read, or -1 if it did not find what it looks for *in its plainest legal spelling*. -1 does not mean that the message is
wrong: the judge (service/ingest/formats/judge.py) then reads the message strictly. So no function here may accept what
the judge would refuse, or read it differently.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.pointers import load, load_byte, store_byte, store_unaligned

INT64, BOOL, FLOAT64, DATE, TIMESTAMP, TEXT, DECIMAL, NESTED, DAY = range(9)
"""The kinds of column that the scanner knows. A DAY is a DATE that may also be the number of days since 1970."""

KIND, NULLABLE, WHOLE, FRACTION = 0, 1, 2, 3
"""The facts about a column: its kind, whether it may be null, and for a DECIMAL the digits before and after the
point."""
FACTS_BYTES = 32
"""The bytes of the facts about one column."""

TEXT_BYTES = 16 << 20
"""The longest string in bytes; operators/language/types/parts.py has the same limit."""
SPAN_START, SPAN_ESCAPED, SPAN_LENGTH = 32, 1 << 31, (1 << 31) - 1
"""A span is the cell of a TEXT, DECIMAL or NESTED: where it starts, whether a string has escapes, how many bytes it
has."""

NESTED_BYTES = 1 << 20
"""The longest array or object in bytes that the scanner takes. The judge decides about longer ones, whose elements may
take more than TEXT_BYTES."""
NESTED_DEPTH = 64
"""The deepest array or object that the scanner takes; the judge decides about deeper ones."""

SOURCE, MESSAGE, TIME, DIFF, CELLS = 0, 1, 2, 3, 4
"""The columns of a scanned update: the number of its source and of its message, its time, its diff, then one cell per
column."""


LEAST_TIME = -(2**63) + 2
GREATEST_TIME = 2**63 - 2
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The days since 1970-01-01 of the years 1 and 9999, between which dates are."""

_BACKSLASH = 92
_ESCAPES = np.frombuffer(b'"\\/bfnrt', np.uint8)
_QUOTE, _COMMA, _MINUS, _POINT, _ZERO, _NINE, _COLON = 34, 44, 45, 46, 48, 57, 58
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125
_TENTH_OF_LEAST = -922337203685477580
_EXACT_DOUBLE = 2**53
_TRUE, _FALSE, _NULL = (int.from_bytes(word, "little") for word in (b"true", b"false", b"null"))
_POWERS = 10.0 ** np.arange(23)
_MONTH_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


@njit(cache=True)
def skip_space(text: int, i: int, end: int) -> int:
    """The position of the next byte that is not white space."""
    while i < end:
        byte = load_byte(text + i)
        if byte != 32 and byte != 10 and byte != 13 and byte != 9:
            break
        i += 1
    return i


@njit(cache=True)
def scan_integer(text: int, i: int, end: int) -> tuple[int, int]:
    """Scan an int64: (value, position). The value is built as a negative number, because int64 has one more of
    these."""
    negative = i < end and load_byte(text + i) == _MINUS
    if negative:
        i += 1
    first = i
    value = np.int64(0)
    while i < end and _ZERO <= load_byte(text + i) <= _NINE:
        digit = load_byte(text + i) - _ZERO
        if i - first >= 18:
            if i - first > 18 or value < _TENTH_OF_LEAST or (value == _TENTH_OF_LEAST and digit > 7 + negative):
                return value, -1
        value = value * 10 - digit
        i += 1
    if i == first or (load_byte(text + first) == _ZERO and i - first > 1):
        return value, -1
    return (value if negative else -value), i


@njit(cache=True)
def scan_digits(text: int, i: int, count: int) -> int:
    """The number that `count` digits at `i` spell, or -1; the caller has checked that the bytes exist."""
    value = np.int64(0)
    for at in range(i, i + count):
        if load_byte(text + at) < _ZERO or load_byte(text + at) > _NINE:
            return -1
        value = value * 10 + load_byte(text + at) - _ZERO
    return value


@njit(cache=True)
def scan_day(text: int, i: int, end: int) -> tuple[int, int]:
    """Scan `YYYY-MM-DD` as days since 1970-01-01: (days, position). Years 0001 to 9999.

    Source of the day count: Howard Hinnant, "chrono-compatible low-level date algorithms", days_from_civil.
    """
    if end - i < 10 or load_byte(text + i + 4) != _MINUS or load_byte(text + i + 7) != _MINUS:
        return 0, -1
    year, month, day = scan_digits(text, i, 4), scan_digits(text, i + 5, 2), scan_digits(text, i + 8, 2)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return 0, -1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month - 1] + (1 if leap and month == 2 else 0):
        return 0, -1
    shifted = year - (1 if month <= 2 else 0)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468, i + 10


@njit(cache=True)
def scan_rfc3339(text: int, i: int, end: int) -> tuple[int, int]:
    """Scan RFC 3339 with up to nine decimals as ns: (ns, position). Years 1678 to 2261, which all fit into int64."""
    day, at = scan_day(text, i, end)
    if at < 0 or day < -106_749 or day > 106_749 or end - i < 20:
        return 0, -1
    if (
        (load_byte(text + i + 10) != 84 and load_byte(text + i + 10) != 116 and load_byte(text + i + 10) != 32)
        or load_byte(text + i + 13) != _COLON
        or load_byte(text + i + 16) != _COLON
    ):
        return 0, -1
    hour, minute, second = scan_digits(text, i + 11, 2), scan_digits(text, i + 14, 2), scan_digits(text, i + 17, 2)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, -1
    at = i + 19
    fraction = np.int64(0)
    if load_byte(text + at) == _POINT:
        at += 1
        first = at
        while at < end and _ZERO <= load_byte(text + at) <= _NINE:
            fraction = fraction * 10 + load_byte(text + at) - _ZERO
            at += 1
            if at - first > 9:
                return 0, -1
        if at == first:
            return 0, -1
        for _ in range(9 - (at - first)):
            fraction *= 10
    zone = np.int64(0)
    if at < end and (load_byte(text + at) == 90 or load_byte(text + at) == 122):
        at += 1
    else:
        if end - at < 6 or load_byte(text + at + 3) != _COLON:
            return 0, -1
        if load_byte(text + at) != _MINUS and load_byte(text + at) != 43:
            return 0, -1
        zone_hour, zone_minute = scan_digits(text, at + 1, 2), scan_digits(text, at + 4, 2)
        if zone_hour < 0 or zone_hour > 23 or zone_minute < 0 or zone_minute > 59:
            return 0, -1
        zone = (zone_hour * 60 + zone_minute) * (-60 if load_byte(text + at) == _MINUS else 60)
        at += 6
    return (day * 86400 + hour * 3600 + minute * 60 + second - zone) * 1_000_000_000 + fraction, at


@njit(cache=True)
def scan_instant(text: int, i: int, end: int) -> tuple[int, int]:
    """Scan a data time, an integer, decimal string or RFC 3339 string, as ns within the legal range: (ns, position)."""
    if i >= end:
        return 0, -1
    if load_byte(text + i) != _QUOTE:
        value, at = scan_integer(text, i, end)
    else:
        value, at = scan_integer(text, i + 1, end)
        if at < 0 or at >= end or load_byte(text + at) != _QUOTE:
            value, at = scan_rfc3339(text, i + 1, end)
        if at < 0 or at >= end or load_byte(text + at) != _QUOTE:
            return 0, -1
        at += 1
    if at < 0 or value < LEAST_TIME or value > GREATEST_TIME:
        return 0, -1
    return value, at


@njit(cache=True)
def scan_double(text: int, i: int, end: int) -> tuple[float, int]:
    """Scan a number whose double is exact after one multiplication or division: (value, position).

    Source: Clinger, "How to read floating point numbers accurately", PLDI 1990: digits below 2**53 and a power of ten
    up to 22.
    """
    negative = i < end and load_byte(text + i) == _MINUS
    if negative:
        i += 1
    first = i
    digits, exponent, count = np.int64(0), 0, 0
    while i < end and _ZERO <= load_byte(text + i) <= _NINE and count < 18:
        digits = digits * 10 + load_byte(text + i) - _ZERO
        i += 1
        count += 1
    if i == first or (load_byte(text + first) == _ZERO and i - first > 1):
        return 0.0, -1
    if i < end and load_byte(text + i) == _POINT:
        i += 1
        begin = i
        while i < end and _ZERO <= load_byte(text + i) <= _NINE and count < 18:
            digits = digits * 10 + load_byte(text + i) - _ZERO
            i += 1
            count += 1
        exponent = begin - i
        if i == begin:
            return 0.0, -1
    if i < end and (load_byte(text + i) == 69 or load_byte(text + i) == 101):
        i += 1
        sign = 1
        if i < end and (load_byte(text + i) == _MINUS or load_byte(text + i) == 43):
            sign = -1 if load_byte(text + i) == _MINUS else 1
            i += 1
        begin = i
        power = 0
        while i < end and _ZERO <= load_byte(text + i) <= _NINE and i - begin < 4:
            power = power * 10 + load_byte(text + i) - _ZERO
            i += 1
        if i == begin:
            return 0.0, -1
        exponent += sign * power
    if (i < end and _ZERO <= load_byte(text + i) <= _NINE) or digits > _EXACT_DOUBLE or exponent < -22 or exponent > 22:
        return 0.0, -1
    value = np.float64(digits)
    value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
    return (-value if negative else value), i


@njit(cache=True)
def scan_word(text: int, i: int, end: int, word: int, length: int) -> int:
    """The position after the literal whose `length` bytes `word` has, the first one lowest."""
    if end - i < length:
        return -1
    for k in range(length):
        if load_byte(text + i + k) != (word >> (8 * k)) & 255:
            return -1
    return i + length


@njit(cache=True)
def scan_true(text: int, i: int, end: int) -> int:
    """The position after `true`."""
    return scan_word(text, i, end, _TRUE, 4)


@njit(cache=True)
def scan_false(text: int, i: int, end: int) -> int:
    """The position after `false`."""
    return scan_word(text, i, end, _FALSE, 5)


@njit(cache=True)
def scan_null(text: int, i: int, end: int) -> int:
    """The position after `null`."""
    return scan_word(text, i, end, _NULL, 4)


@njit(cache=True)
def scan_utf8(text: int, i: int, end: int) -> int:
    """The position after a character of more than one byte that is legal by RFC 3629; or -1."""
    lead = load_byte(text + i)
    if 0xC2 <= lead <= 0xDF:
        more = 1
    elif 0xE0 <= lead <= 0xEF:
        more = 2
    elif 0xF0 <= lead <= 0xF4:
        more = 3
    else:
        return -1
    if i + more >= end:
        return -1
    for k in range(1, more + 1):
        if load_byte(text + i + k) & 0xC0 != 0x80:
            return -1
    second = load_byte(text + i + 1)
    # Overlong forms, surrogates, and code points beyond U+10FFFF.
    if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second > 0x9F):
        return -1
    if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
        return -1
    return i + more + 1


@njit(cache=True)
def scan_hex(text: int, i: int, end: int) -> int:
    """The number that four hexadecimal digits at `i` spell, or -1."""
    if i + 4 > end:
        return -1
    value = np.int64(0)
    for at in range(i, i + 4):
        digit = load_byte(text + at)
        if _ZERO <= digit <= _NINE:
            digit -= _ZERO
        elif 65 <= (digit & 0xDF) <= 70:
            digit = (digit & 0xDF) - 55
        else:
            return -1
        value = value * 16 + digit
    return value


@njit(cache=True)
def scan_text(text: int, i: int, end: int) -> tuple[int, int]:
    """Scan a string: (its span, position). Returns -1 for escaped surrogates and for strings longer than a row may
    hold."""
    if i >= end or load_byte(text + i) != _QUOTE:
        return 0, -1
    first = i + 1
    i = first
    escaped = np.int64(0)
    while i < end and load_byte(text + i) != _QUOTE:
        if load_byte(text + i) == _BACKSLASH:
            escaped = np.int64(SPAN_ESCAPED)
            i += 1
            if i >= end:
                return 0, -1
            if load_byte(text + i) == 117:
                point = scan_hex(text, i + 1, end)
                if point < 0 or 0xD800 <= point <= 0xDFFF:
                    return 0, -1
                i += 5
            else:
                known = False
                for k in range(len(_ESCAPES)):
                    known = known or load_byte(text + i) == _ESCAPES[k]
                if not known:
                    return 0, -1
                i += 1
        elif load_byte(text + i) < 32:
            return 0, -1
        elif load_byte(text + i) < 128:
            i += 1
        else:
            i = scan_utf8(text, i, end)
            if i < 0:
                return 0, -1
    length = i - first
    if i >= end or length > TEXT_BYTES or first >= SPAN_LENGTH:
        return 0, -1
    return (np.int64(first) << SPAN_START) | escaped | length, i + 1


@njit(cache=True)
def scan_decimal(text: int, i: int, end: int, whole: int, fraction: int) -> tuple[int, int]:
    """Scan a number, or a number in a string, with at most `whole` and `fraction` digits before and after the point:
    (its span, position)."""
    quoted = i < end and load_byte(text + i) == _QUOTE
    if quoted:
        i += 1
    first = i
    if i < end and load_byte(text + i) == _MINUS:
        i += 1
    begin = i
    while i < end and _ZERO <= load_byte(text + i) <= _NINE:
        i += 1
    if i == begin or i - begin > max(whole, 1) or (load_byte(text + begin) == _ZERO and i - begin > 1):
        return 0, -1
    if whole == 0 and load_byte(text + begin) != _ZERO:
        return 0, -1
    if i < end and load_byte(text + i) == _POINT:
        i += 1
        begin = i
        while i < end and _ZERO <= load_byte(text + i) <= _NINE:
            i += 1
        if i == begin or i - begin > fraction:
            return 0, -1
    if i >= end or load_byte(text + i) == 69 or load_byte(text + i) == 101 or first >= SPAN_LENGTH:
        return 0, -1
    span = (np.int64(first) << SPAN_START) | (i - first)
    if quoted:
        return span, (i + 1 if load_byte(text + i) == _QUOTE else -1)
    return span, i


@njit(cache=True)
def skip_text(text: int, i: int, end: int) -> int:
    """The position of the quote that ends the string whose first quote is at `i`; `end` if there is none. What is
    inside is not checked."""
    i += 1
    while i < end and load_byte(text + i) != _QUOTE:
        i += 2 if load_byte(text + i) == _BACKSLASH else 1
    return min(i, end)


@njit(cache=True)
def scan_nested(text: int, i: int, end: int) -> tuple[int, int]:
    """Find the end of an array or object: (its span, position). What is inside is not checked: kernels/json_nested.py
    reads it."""
    first, depth = i, 0
    while i < end:
        byte = load_byte(text + i)
        if byte == _QUOTE:
            i = skip_text(text, i, end)
        elif byte == _OPEN_LIST or byte == _OPEN_OBJECT:
            depth += 1
            if depth > NESTED_DEPTH:
                return 0, -1
        elif byte == _CLOSE_LIST or byte == _CLOSE_OBJECT:
            depth -= 1
        i += 1
        if depth == 0:
            length = i - first
            if (byte != _CLOSE_LIST and byte != _CLOSE_OBJECT) or length > NESTED_BYTES or first >= SPAN_LENGTH:
                return 0, -1
            return (np.int64(first) << SPAN_START) | length, i
    return 0, -1


@njit(cache=True)
def scan_cell(text: int, i: int, end: int, kind: int, whole: int, fraction: int) -> tuple[int, int]:
    """Scan a value of the kind, neither an INT64 nor null: (its cell, position). whole, fraction: of a DECIMAL."""
    cell, at = np.int64(0), -1
    if kind == FLOAT64:
        value, at = scan_double(text, i, end)
        cell = np.float64(value).view(np.int64)
    elif kind == TIMESTAMP:
        cell, at = scan_instant(text, i, end)
    elif kind == BOOL:
        at = scan_true(text, i, end)
        cell = np.int64(at >= 0)
        at = at if at >= 0 else scan_false(text, i, end)
    elif (kind == DATE or kind == DAY) and i < end and load_byte(text + i) == _QUOTE:
        cell, at = scan_day(text, i + 1, end)
        at = at + 1 if 0 <= at < end and load_byte(text + at) == _QUOTE else -1
    elif kind == DAY:
        cell, at = scan_integer(text, i, end)
        at = at if FIRST_DAY <= cell <= LAST_DAY else -1
    elif kind == TEXT:
        cell, at = scan_text(text, i, end)
    elif kind == DECIMAL:
        cell, at = scan_decimal(text, i, end, whole, fraction)
    elif kind == NESTED:
        cell, at = scan_nested(text, i, end)
    return cell, at


@njit(cache=True)
def scan_column(text: int, i: int, end: int, facts: int) -> tuple[int, bool, int]:
    """Scan a value or null of a column: (its cell, whether it is null, position). facts: the address of the column's
    KIND to FRACTION."""
    if i < end and load_byte(text + i) == 110:
        return np.int64(0), True, (scan_null(text, i, end) if load(facts, NULLABLE) else -1)
    kind = load(facts, KIND)
    if kind == INT64:
        cell, at = scan_integer(text, i, end)
        return cell, False, at
    cell, at = scan_cell(text, i, end, kind, load(facts, WHOLE), load(facts, FRACTION))
    return cell, False, at


@njit(cache=True)
def scan_name(text: int, i: int, end: int, pool: int, names: int, first: int, last: int) -> tuple[int, int]:
    """Scan a string that is one of the names first .. last-1, spelt without escapes: (its number, position).

    pool, names: addresses of uint8[.] and int64[k + 1]; the bytes of k names, and where each begins.
    """
    if i >= end or load_byte(text + i) != _QUOTE:
        return -1, -1
    i += 1
    for name in range(first, last):
        begin = load(names, name)
        length = load(names, name + 1) - begin
        if i + length >= end or load_byte(text + i + length) != _QUOTE:
            continue
        same = True
        for k in range(length):
            if load_byte(text + i + k) != load_byte(pool + begin + k):
                same = False
                break
        if same:
            return name, i + length + 1
    return -1, -1


@njit(cache=True)
def scan_colon(text: int, i: int, end: int) -> int:
    """The start of the value after a member's name."""
    i = skip_space(text, i, end)
    if i >= end or load_byte(text + i) != _COLON:
        return -1
    return skip_space(text, i + 1, end)


@njit(cache=True)
def scan_next(text: int, i: int, end: int, close: int) -> tuple[bool, int]:
    """After a member or element: (whether another one follows, the position where it or what is after the bracket
    begins)."""
    i = skip_space(text, i, end)
    if i >= end or (load_byte(text + i) != _COMMA and load_byte(text + i) != close):
        return False, -1
    if load_byte(text + i) == close:
        return False, i + 1
    return True, skip_space(text, i + 1, end)


@njit(cache=True)
def scan_row(
    text: int,
    i: int,
    end: int,
    pool: int,
    names: int,
    base: int,
    facts: int,
    count: int,
    cells: int,
    nulls: int,
) -> int:
    """Scan a row of `count` columns, at most 62, an array or an object with every column once; returns the position
    after it.

    base: the number of the first column's name. facts: the address of the columns' KIND to FRACTION, four words each.
    cells, nulls: the addresses of int64[count] and bool[count]; the row's cells are written to them, doubles as their
    bits.
    """
    if i >= end:
        return -1
    if load_byte(text + i) == _OPEN_LIST:
        i = skip_space(text, i + 1, end)
        for column in range(count):
            cell, null, i = scan_column(text, i, end, facts + FACTS_BYTES * column)
            if i < 0:
                return -1
            store_unaligned(cells + 8 * column, cell)
            store_byte(nulls + column, np.int64(null))
            more, i = scan_next(text, i, end, _CLOSE_LIST)
            if i < 0 or more != (column < count - 1):
                return -1
        return i
    if load_byte(text + i) != _OPEN_OBJECT:
        return -1
    i = skip_space(text, i + 1, end)
    seen = np.int64(0)
    for turn in range(count):
        # Producers usually write columns in the same order, so the next column in order is tried first.
        name, at = scan_name(text, i, end, pool, names, base + turn, base + turn + 1)
        if at < 0:
            name, at = scan_name(text, i, end, pool, names, base, base + count)
        if at < 0:
            return -1
        column = name - base
        if seen & (np.int64(1) << column):
            return -1
        seen |= np.int64(1) << column
        i = scan_colon(text, at, end)
        if i < 0:
            return -1
        cell, null, i = scan_column(text, i, end, facts + FACTS_BYTES * column)
        if i < 0:
            return -1
        store_unaligned(cells + 8 * column, cell)
        store_byte(nulls + column, np.int64(null))
        more, i = scan_next(text, i, end, _CLOSE_OBJECT)
        if i < 0 or more != (turn < count - 1):
            return -1
    return i
