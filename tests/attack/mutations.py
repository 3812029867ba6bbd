"""Mutations of messages: bytes that change anywhere, and parts of a message that become other parts.

All randomness comes from one generator, so a number names a mutant.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence

_VARINTS = (b"\0", b"\1", b"\x7f", b"\x80\1", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\1",
            b"\xff" * 9 + b"\1", b"\xff" * 10 + b"\1", b"\xff" * 9 + b"\x7f")  # fmt: skip
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?[0-9][0-9.eE+-]*|[a-zA-Z]+|.', re.DOTALL)
_BYTES = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\x7f",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-",
    b"0",
    b"1",
    b"e",
    b" ",
    b"\n",
)
_LITERALS = (
    b"null", b"true", b"false", b"0", b"-0", b"1", b"-1", b"1.0", b"1e2", b"1e999", b"-1e999", b"1e-999",
    b"1e-999999999", b"0e999999999",
    b"2147483648", b"2147483649", b"-2147483649", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775808", b"9" * 40,
    b"9" * 5_000, b"1." + b"0" * 300, b'""', b'"1"', b'"+5"', b'" 5"', b'"1_0"', b'"NaN"', b'"Infinity"',
    b'"1e-999999999"', b'"0.001"',
    b'"2026-W01-1"', b'"2026-01-31"', b'"2026-01-31T12:00:00.000000001Z"', b'"2026-01-31T12:00:00+99:99"', b'"\\ud800"',
    b'"\\ud83d\\ude00"',
    b'"\xff"', b'"\xed\xa0\x80"', b'"\xe2\x82\xac"', b'"a text of more than fifteen bytes"', b'"AA=="', b'"A"',
    b'"' + b"A" * 300 + b'"',
    b"[]", b"{}", b"[[]]", b"[1,2,3]", b"[null]", b'{"a":1}', b'{"a":1,"a":2}', b"[" * 200 + b"]" * 200,
    b'{"a":' * 140 + b"1" + b"}" * 140,
    b'"id"', b'"m"', b'"note"', b'"at"', b'"day"', b'"x"', b'"tags"', b'"raw"', b'"data"', b'"time"', b'"diff"',
    b'"input"', b'"insert"',
    b'"delete"', b'"resolved"', b'"before"', b'"after"', b'"op"', b'"payload"', b'"schema"', b'"fields"', b'"field"',
    b'"name"',
    b'"parameters"', b'"scale"', b'"value"', b'"v"', b'"t"', b'"u"', b'"p"', b'"upper"', b'"lower"', b'"counts"',
    b'"ts_ms"', b'"source"',
)  # fmt: skip
_TEXTS = tuple(text for text in _LITERALS if text[:1] == b'"')
_DIGITS = tuple(text for text in _LITERALS if text[:1] in b"-0123456789")
_MARKS = frozenset((b"{", b"}", b"[", b"]", b",", b":"))
_NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    8,
    127,
    128,
    255,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
_VARIED = tuple(struct.pack("<q", number) for number in _NUMBERS)
_ZIGZAG: list[bytes] = []
for _number in _NUMBERS:
    _left, _out = (_number << 1) ^ (_number >> 63), b""
    while _left & ~0x7F:
        _out, _left = _out + bytes([_left & 0x7F | 0x80]), _left >> 7
    _ZIGZAG.append(_out + bytes([_left]))


def tokens(value: bytes) -> list[bytes]:
    """A JSON message as its tokens, of which it is the concatenation, whatever it holds."""
    return _TOKEN.findall(value)


def mutate_json(seeds: Sequence[list[bytes]], rng: random.Random) -> bytes:
    """A mutant of one of the seeds, which are tokens."""
    seed = seeds[int(rng.random() * len(seeds))]
    if rng.random() < 0.25:
        return mutate_bytes(b"".join(seed), rng)
    parts = seed.copy()
    for _ in range(1 + int(rng.random() * 2)):
        if not parts:
            break
        at = int(rng.random() * len(parts))
        if parts[at] in _MARKS and rng.random() < 0.8:
            at = int(rng.random() * len(parts))
        turn = rng.random()
        if turn < 0.6:
            parts[at] = _literal(parts[at], rng)
        elif turn < 0.7:
            other = seeds[int(rng.random() * len(seeds))]
            parts[at] = other[int(rng.random() * len(other))] if other else b""
        elif turn < 0.8:
            until = at + 1 + int(rng.random() * 6)
            parts[at:at] = parts[at:until]
        elif turn < 0.9:
            del parts[at : at + 1 + int(rng.random() * 4)]
        else:
            other = seeds[int(rng.random() * len(seeds))]
            begin = int(rng.random() * len(other)) if other else 0
            parts[at : at + 1] = other[begin : begin + 1 + int(rng.random() * 8)]
    return b"".join(parts)


def mutate_value(seeds: Sequence[list[bytes]], rng: random.Random) -> bytes:
    """A value by itself, as people write one: texts often without their quotes."""
    seed = seeds[int(rng.random() * len(seeds))]
    value = _literal(seed[int(rng.random() * len(seed))] if seed else b"", rng)
    if rng.random() < 0.5:
        value = mutate_bytes(value, rng)
    return value[1:-1] if value[:1] == b'"' and rng.random() < 0.8 else value


def _literal(given: bytes, rng: random.Random) -> bytes:
    """Something in place of a token, often of its kind."""
    if rng.random() < 0.1:
        return given
    if rng.random() < 0.6:
        if given[:1] == b'"':
            return _TEXTS[int(rng.random() * len(_TEXTS))]
        if given[:1] in b"-0123456789":
            return _DIGITS[int(rng.random() * len(_DIGITS))]
    return _LITERALS[int(rng.random() * len(_LITERALS))]


def mutate_bytes(value: bytes, rng: random.Random) -> bytes:
    """The message with bytes turned, put in, taken out or cut off."""
    mutant = bytearray(value)
    for _ in range(1 + int(rng.random() * 3)):
        if not mutant:
            return bytes(rng.randbytes(1 + int(rng.random() * 8)))
        at = int(rng.random() * len(mutant))
        turn = rng.random()
        if turn < 0.4:
            mutant[at] ^= 1 << int(rng.random() * 8)
        elif turn < 0.6:
            mutant[at : at + 1] = _BYTES[int(rng.random() * len(_BYTES))]
        elif turn < 0.7:
            mutant[at:at] = _BYTES[int(rng.random() * len(_BYTES))]
        elif turn < 0.8:
            del mutant[at : at + 1 + int(rng.random() * 8)]
        elif turn < 0.9:
            until = at + 1 + int(rng.random() * 32)
            mutant[at:at] = mutant[at:until]
        elif turn < 0.95:
            del mutant[at:]
        else:
            mutant[at:at] = rng.randbytes(1 + int(rng.random() * 8))
    return bytes(mutant)


def mutate_arrow(value: bytes, rng: random.Random) -> bytes:
    """The message with numbers of four or eight bytes where Arrow has some, and as `mutate_bytes` does."""
    if rng.random() < 0.35 or len(value) < 16:
        return mutate_bytes(value, rng)
    mutant = bytearray(value)
    for _ in range(1 + int(rng.random() * 3)):
        number = _VARIED[int(rng.random() * len(_VARIED))]
        size = (2, 4, 8)[int(rng.random() * 3)]
        at = int(rng.random() * (len(mutant) // size)) * size
        mutant[at : at + size] = number[:size]
    return bytes(mutant)


def mutate_avro(value: bytes, rng: random.Random) -> bytes:
    """The message with integers as Avro writes them, and as `mutate_bytes` does."""
    if rng.random() < 0.4 or not value:
        return mutate_bytes(value, rng)
    mutant = bytearray(value)
    for _ in range(1 + int(rng.random() * 3)):
        at = int(rng.random() * len(mutant))
        mutant[at : at + 1] = _ZIGZAG[int(rng.random() * len(_ZIGZAG))]
    return bytes(mutant)


def mutate_protobuf(value: bytes, rng: random.Random) -> bytes:
    """The message with other tags, lengths and integers, and as `mutate_bytes` does."""
    if rng.random() < 0.4 or not value:
        return mutate_bytes(value, rng)
    mutant = bytearray(value)
    for _ in range(1 + int(rng.random() * 3)):
        at = int(rng.random() * len(mutant))
        turn = rng.random()
        if turn < 0.5:
            mutant[at : at + 1] = _VARINTS[int(rng.random() * len(_VARINTS))]
        else:
            # A tag: a field that is there or not, of any kind of bytes.
            mutant[at : at + int(turn < 0.75)] = bytes([int(rng.random() * 12) << 3 | int(rng.random() * 8)])
    return bytes(mutant)
