"""Poison: messages that must not enter, each of which must become exactly one dead letter and stop nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from bench.chaos.sources import ODD, SETTINGS, clicks
from tests.attack.hostile import FORMATS, hostile_messages


@dataclass(frozen=True, slots=True)
class Hostile:
    """A message for a source's topic. reason: why it is refused; None if any reason is right."""

    name: str
    source: str
    value: bytes | None
    key: bytes | None = None
    reason: str | None = None


def _link(*update: object, t: object = "1") -> bytes:
    return json.dumps({"v": 1, "t": t, "u": [list(update)]}).encode()


def _payment(**members: object) -> bytes:
    return json.dumps({"before": None, "source": {"ts_ns": 1}, "op": "c", **members}).encode()


MESSAGES: tuple[Hostile, ...] = (
    Hostile("cut", "links", b'{"v":1,"t":', reason="decode"),
    Hostile("text for a number", "links", _link(["one", 2], "5", 1), reason="schema"),
    Hostile("too few columns", "links", _link([1], "5", 1), reason="schema"),
    Hostile("beyond 64 bits", "links", _link([2**63, 1], "5", 1), reason="overflow"),
    Hostile("diff of 0", "links", _link([1, 2], "5", 0), reason="schema"),
    Hostile("long ago", "links", _link([1, 2], "5", 1), reason="late"),
    Hostile("nested", "links", b"[" * 5_000, reason="decode"),
    Hostile("huge", "links", b" " * (9 << 20), reason="decode"),
    Hostile("no text", "orders", b'{"data":[1,2,"\xff\xfe",null],"time":5}'),
    Hostile("fraction", "orders", b'{"data":[1.5,2,null,null],"time":5}', reason="schema"),
    Hostile("members that are none", "orders", b'{"data":{"id":1,"who":2},"time":5}', reason="schema"),
    Hostile("empty", "orders", b"", reason="decode"),
    Hostile("no value", "orders", None, b"key", reason="decode"),
    Hostile("a decimal that is a word", "orders", b'{"data":[1,2,null,"abc"],"time":5}', reason="schema"),
    Hostile("no op", "payments", _payment(op="x")),
    Hostile("created without after", "payments", _payment(after=None), reason="schema"),
    Hostile("no json", "payments", b"\x00\x01\x02", reason="decode"),
    Hostile("no stream", "clicks", b"ARROW1\x00\x00" * 9, reason="decode"),
    Hostile("half a stream", "clicks", clicks([((1, "page", 5), 1)])[:-60], reason="decode"),
    Hostile("diffs of 0", "clicks", clicks([((1, "page", 5), 0)]), reason="schema"),
    Hostile("neither", "notes", b'{"person":1}', reason="decode"),
    Hostile("both", "notes", b'{"insert":{"person":1},"delete":{"person":1}}', reason="decode"),
    Hostile("null for a number", "notes", b'{"insert":{"person":null,"text":"a","stars":1}}', reason="schema"),
    Hostile("no key", "people", b'{"name":"a","city":"b"}', reason="key"),
    Hostile("another key", "people", b'{"id":2,"name":"a","city":"b"}', b'{"id":1}', reason="key"),
    Hostile("a key of words", "people", b'{"name":"a","city":"b"}', b'{"id":"one"}'),
)


def hostile(chance: random.Random, foreign: bool = True) -> Iterator[Hostile]:
    """All of them in random order, again and again. foreign: between two of them one of the messages that attack
    decoding in every way (tests/attack/hostile.py), for the sources that get nothing else."""
    forms = chance.sample(FORMATS, len(FORMATS))
    while True:
        for message in chance.sample(MESSAGES, len(MESSAGES)):
            yield message
            if foreign:
                forms.append(forms.pop(0))
                # The client does not send a message with neither key nor value.
                key, value = chance.choice([one for one in hostile_messages(forms[0]) if one != (None, None)])
                yield Hostile(f"foreign {forms[0]}", f"{ODD}{forms[0]}", value, key)


assert {message.source for message in MESSAGES} == SETTINGS.keys()
