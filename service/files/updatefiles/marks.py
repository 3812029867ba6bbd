"""Byte order marks: the one of UTF-8 is skipped; those of UTF-16 identify text that is not UTF-8."""

from __future__ import annotations

import codecs

UTF16 = "it is UTF-16, as its byte order mark says; updates are UTF-8 (iconv -f UTF-16 -t UTF-8)"


def is_utf16(start: bytes) -> bool:
    """Whether a text that begins with these bytes is UTF-16."""
    return start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def without_mark(start: bytes) -> bytes:
    """The beginning of a text without the byte order mark of UTF-8."""
    return start.removeprefix(codecs.BOM_UTF8)
