"""What each format takes and what it refuses, message by message."""

import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from tests.ingest.log import EDGES, ROOTS, values
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats import ALONE, FORMATS
from vernier.service.ingest.formats.messages import NO_TIME, Parsed, Progress
from vernier.service.ingest.rejects import REASONS
from vernier.storage.updates import CLOSED, MIN_TIME

WIDE = RowType(
    [
        ("i", Int64(), True),
        ("b", Bool(), False),
        ("f", Float64(), False),
        ("d", Date(), True),
        ("t", TimestampNs(), False),
    ]
)
ONE: Mapping[str, RowType] = {"edges": EDGES}
TWO: Mapping[str, RowType] = {"edges": EDGES, "roots": ROOTS}
T = 1_700_000_000_123_456_789


def decode(kind: str, sources: Mapping[str, RowType], *messages: str | bytes | None) -> Parsed:
    return FORMATS[kind](sources).decode(values(*messages))


def updates(parsed: Parsed) -> list[tuple[str, tuple[int, ...], int, int]]:
    """(source, words, time, diff) in message order."""
    rest = {name: iter(rows.tolist()) for name, rows in parsed.words.items()}
    found = []
    for source, time, diff in zip(parsed.source.tolist(), parsed.time.tolist(), parsed.diff.tolist()):
        name = parsed.names[source]
        found.append((name, tuple(next(rest[name])), time, diff))
    return found


NATIVE_GOOD = [
    ('{"v":1,"t":"5","u":[[[1,2],"5",1],[[-3,4],"7",-2]]}', [((1, 2), 5, 1), ((-3, 4), 7, -2)]),
    ('{"v":1,"t":5,"u":[[[1,2],5,1]]}', [((1, 2), 5, 1)]),
    ('{"v":1,"t":"5","u":[]}', []),
    (' {"u" : [ [ {"dst":2 , "src":1} , "6" , 1 ] ] , "v" : 1 , "t" : "5"}\r\n', [((1, 2), 6, 1)]),
    ('{"v":1,"t":"5","u":[[{"src":1,"dst":2},"6",1]],"input":"edges"}', [((1, 2), 6, 1)]),
    ('{"\\u0076":1,"t":"5","u":[[[1,2],"5",1]]}', [((1, 2), 5, 1)]),
    (f'{{"v":1,"t":"5","u":[[[{2**63 - 1},{-(2**63)}],"{CLOSED - 1}",{-(2**63)}]]}}',
     [((2**63 - 1, -(2**63)), CLOSED - 1, -(2**63))]),
    (f'{{"v":1,"t":"{MIN_TIME}","u":[[[0,-0],{MIN_TIME},1]]}}', [((0, 0), MIN_TIME, 1)]),
    ('{"v":1,"t":"1970-01-01T00:00:00Z","u":[[[1,2],"2023-11-14T22:13:20.123456789Z",1]]}', [((1, 2), T, 1)]),
    ('{"v":1,"t":"0","u":[[[1,2],"2023-11-14T23:13:20.123456789+01:00",1]]}', [((1, 2), T, 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "expected"), NATIVE_GOOD)
def test_native_messages_that_enter(message: str, expected: list[tuple[tuple[int, ...], int, int]]) -> None:
    parsed = decode("vernier", ONE, message)
    assert parsed.refused == []
    assert updates(parsed) == [("edges", *update) for update in expected]


JSON_GOOD = [
    ('{"data":[1,2],"time":"5","diff":-1}', ((1, 2), 5, -1)),
    ('{"diff":3,"data":{"dst":2,"src":1},"input":"edges"}', ((1, 2), NO_TIME, 3)),
    ('{"data":[1,2],"time":null,"diff":null}', ((1, 2), NO_TIME, 1)),
    ("[1,2]", ((1, 2), NO_TIME, 1)),
    ('{"src":1,"dst":2}', ((1, 2), NO_TIME, 1)),
    ('{"time":"2023-11-14t22:13:20.123456789z","dst":2,"diff":-1,"src":1}', ((1, 2), T, -1)),
    ('\t{"data" : [ 1 , 2 ] , "time" : 17 } ', ((1, 2), 17, 1)),
]


@pytest.mark.parametrize(("message", "expected"), JSON_GOOD)
def test_json_messages_that_enter(message: str, expected: tuple[tuple[int, ...], int, int]) -> None:
    parsed = decode("json", ONE, message)
    assert parsed.refused == []
    assert updates(parsed) == [("edges", *expected)]


def test_a_shared_topic_tells_its_sources_apart() -> None:
    parsed = decode(
        "json", TWO, '{"input":"roots","data":[7]}', '{"data":[1,2],"input":"edges"}', '{"data":[8],"input":"roots"}'
    )
    assert updates(parsed) == [
        ("roots", (7,), NO_TIME, 1), ("edges", (1, 2), NO_TIME, 1), ("roots", (8,), NO_TIME, 1)
    ]  # fmt: skip
    parsed = decode(
        "vernier", TWO, '{"v":1,"input":"roots","t":"1","u":[[[7],"1",1]]}',
        '{"v":1,"t":"1","u":[[[1,2],"2",1]],"input":"edges"}',
    )  # fmt: skip
    assert updates(parsed) == [("roots", (7,), 1, 1), ("edges", (1, 2), 2, 1)]


def test_every_type_of_column() -> None:
    rows = {
        '[7,true,1.5,"2024-02-29","1970-01-01T00:00:01Z"]': (7, True, 1.5, 19782, 1_000_000_000),
        '[null,false,-2,null,"17"]': (None, False, -2.0, None, 17),
        '{"t":17,"b":true,"f":"NaN"}': (None, True, math.nan, None, 17),
        '{"t":17,"b":true,"f":"-Infinity","i":null,"d":"0001-01-01"}': (None, True, -math.inf, -719162, 17),
        "[1,true,9007199254740993,null,17]": (1, True, 9007199254740992.0, None, 17),
        "[1,true,1e22,null,17]": (1, True, 1e22, None, 17),
        "[1,true,0.1,null,17]": (1, True, 0.1, None, 17),
        "[1,true,123456789.123456789e-30,null,17]": (1, True, 123456789.123456789e-30, None, 17),
    }
    parsed = decode("json", {"wide": WIDE}, *rows)
    assert parsed.refused == []
    decoded = WIDE.decode(parsed.words["wide"]).to_pydict()
    epoch = date(1970, 1, 1)
    days = [None if day is None else (day - epoch).days for day in decoded["d"]]
    found = list(zip(decoded["i"], decoded["b"], decoded["f"], days, [t.value for t in decoded["t"]]))
    for one, expected in zip(found, rows.values(), strict=True):
        np.testing.assert_equal(one, expected)


NATIVE_BAD = [
    (b"", "decode", "empty"),
    (b"  ", "decode", "empty"),
    (None, "decode", "no value"),
    (b"null", "decode", "an object"),
    (b"{", "decode", "not JSON"),
    (b'{"v":1,"t":"1","u":[]} x', "decode", "not JSON: Extra data"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",1]]', "decode", "not JSON"),
    (b'\xef\xbb\xbf{"v":1,"t":"1","u":[]}', "decode", "not JSON"),
    (b'{"v":1,"t":"\xff","u":[]}', "decode", "not UTF-8: byte 0xff at position 12"),
    (b"[" * 100_000, "decode", "nested too deeply"),
    (b'{"v":1,"t":"1","u":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "decode", "nested too deeply"),
    (b'{"v":2,"t":"1","u":[]}', "decode", "v is 2"),
    (b'{"v":true,"t":"1","u":[]}', "decode", "v is True"),
    (b'{"t":"1","u":[]}', "decode", "no v"),
    (b'{"v":1,"u":[]}', "decode", "no 't'"),
    (b'{"v":1,"t":"1"}', "decode", "no 'u'"),
    (b'{"v":1,"t":"1","u":{}}', "decode", "u is {}"),
    (b'{"v":1,"t":"1","u":[],"x":1}', "decode", "unknown member 'x'"),
    (b'{"v":1,"t":"1","t":"1","u":[]}', "decode", "'t' comes twice"),
    (b'{"v":1,"t":"1","u":[[{"src":1,"dst":2,"src":1},"1",1]]}', "decode", "'src' comes twice"),
    (b'{"v":1,"t":"1","u":[[{"src":1,"dst":2,"s\\u0072c":1},"1",1]]}', "decode", "'src' comes twice"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1"]]}', "decode", "should be [row, time, diff]"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",1,1]]}', "decode", "should be [row, time, diff]"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",0]]}', "schema", "the diff of update 0 is 0"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",1.0]]}', "schema", "the diff of update 0 is 1.0"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",true]]}', "schema", "the diff of update 0 is True"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",9223372036854775808]]}', "overflow", "9223372036854775808"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",-9223372036854775809]]}', "overflow", "-9223372036854775809"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",' + b"9" * 5_000 + b"]]}", "overflow", "the diff of update 0 is 999"),
    (b'{"v":1,"t":"9","u":[[[1,2],"8",1]]}', "decode", "update 0 is at 8, before the time of its message, 9"),
    (b'{"v":1,"t":"1","u":[[[1,2],null,1]]}', "decode", "the time of update 0 is None"),
    (b'{"v":1,"t":"1","u":[[[1,2],1.0,1]]}', "decode", "the time of update 0 is 1.0"),
    (b'{"v":1,"t":"1","u":[[[1,2],true,1]]}', "decode", "the time of update 0 is True"),
    (b'{"v":1,"t":"1","u":[[[1,2],"soon",1]]}', "decode", "'soon', which is neither"),
    (b'{"v":1,"t":"1","u":[[[1,2],"2023-02-29T00:00:00Z",1]]}', "decode", "neither an integer nor RFC 3339"),
    (b'{"v":1,"t":"1","u":[[[1,2],"2023-01-01T00:00:00.0000000001Z",1]]}', "decode", "neither an integer nor RFC"),
    (b'{"v":1,"t":"1","u":[[[1,2],"2023-01-01T00:00:00",1]]}', "decode", "a time without a zone"),
    (b'{"v":1,"t":"1","u":[[[1,2],"2300-01-01T00:00:00Z",1]]}', "overflow", "outside"),
    (b'{"v":1,"t":"1","u":[[[1,2],"9223372036854775807",1]]}', "overflow", "outside"),
    (b'{"v":1,"t":"1","u":[[[1,2],9223372036854775808,1]]}', "overflow", "outside"),
    (b'{"v":1,"t":"-9223372036854775808","u":[]}', "overflow", "t is '-9223372036854775808', outside"),
    (b'{"v":1,"t":"1","u":[[[1,2],"' + b"9" * 5_000 + b'",1]]}', "overflow", "does not fit 64 bits"),
    (b'{"v":1,"t":"1","u":[[[1],"1",1]]}', "schema", "has 1 values, but the source has 2 columns (src, dst)"),
    (b'{"v":1,"t":"1","u":[[[1,2,3],"1",1]]}', "schema", "has 3 values"),
    (b'{"v":1,"t":"1","u":[[7,"1",1]]}', "schema", "the row of update 0 is 7"),
    (b'{"v":1,"t":"1","u":[[{"src":1},"1",1]]}', "schema", "has no field 'dst'"),
    (b'{"v":1,"t":"1","u":[[{"src":1,"dst":2,"w":3},"1",1]]}', "schema", "field 'w'"),
    (b'{"v":1,"t":"1","u":[[[1,null],"1",1]]}', "schema", "dst of the row of update 0 is null"),
    (b'{"v":1,"t":"1","u":[[[1,2.0],"1",1]]}', "schema", "dst of the row of update 0 is 2.0, which is not Int64"),
    (b'{"v":1,"t":"1","u":[[[1,2e0],"1",1]]}', "schema", "not Int64"),
    (b'{"v":1,"t":"1","u":[[[1,true],"1",1]]}', "schema", "True, which is not Int64"),
    (b'{"v":1,"t":"1","u":[[[1,"2"],"1",1]]}', "schema", "'2', which is not Int64"),
    (b'{"v":1,"t":"1","u":[[[1,[2]],"1",1]]}', "schema", "not Int64"),
    (b'{"v":1,"t":"1","u":[[[1,NaN],"1",1]]}', "decode", "NaN is not JSON"),
    (b'{"v":1,"t":"1","u":[[[1,01],"1",1]]}', "decode", "not JSON"),
    (b'{"v":1,"t":"1","u":[[[1,9223372036854775808],"1",1]]}', "overflow", "9223372036854775808"),
    (b'{"v":1,"t":"1","u":[[[1,2],"1",1],[[3,4],"1",1],[[5,"x"],"1",1]]}', "schema", "update 2"),
    (b'{"v":1,"t":"1","u":[],"input":"nodes"}', "unknown_source", "no source 'nodes' reads this topic"),
    (b'{"v":1,"t":"1","u":[],"input":7}', "decode", "input is 7"),
    (b'{"v":1,"p":7}', "decode", "p is 7"),
    (b'{"v":1,"p":{"lower":["1"]}}', "decode", "p has no upper"),
    (b'{"v":1,"p":{"upper":"9"}}', "decode", "upper of p is '9'"),
    (b'{"v":1,"p":{"upper":["8","9"]}}', "decode", "upper of p is ['8', '9']"),
    (b'{"v":1,"p":{"lower":["9"],"upper":["8"]}}', "decode", "after its upper"),
    (b'{"v":1,"p":{"upper":["8"]},"t":"1"}', "decode", "unknown member 't'"),
    (b'{"v":1,"p":{"upper":["8"],"counts":[["1",1]]}}', "decode", "no lower"),
    (b'{"v":1,"p":{"lower":["1"],"upper":["8"],"counts":[["8",1]]}}', "decode", "not in its interval"),
    (b'{"v":1,"p":{"lower":["1"],"upper":["8"],"counts":[["2",1],["2",1]]}}', "decode", "the time 2 twice"),
    (b'{"v":1,"p":{"lower":["1"],"upper":["8"],"counts":[["2",-1]]}}', "decode", "not a number of updates"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "reason", "detail"), NATIVE_BAD)
def test_native_messages_that_are_refused(message: bytes | None, reason: str, detail: str) -> None:
    good = '{"v":1,"t":"1","u":[[[1,2],"1",1]]}'
    parsed = decode("vernier", ONE, good, message, good)
    assert updates(parsed) == [("edges", (1, 2), 1, 1)] * 2
    assert parsed.message.tolist() == [0, 2]
    (refused,) = parsed.refused
    assert (refused.message, refused.reason) == (1, reason)
    assert detail in refused.detail
    assert refused.source == "edges"
    assert len(refused.detail) < 500


JSON_BAD = [
    (ONE, b"17", "decode", "the message is 17"),
    (ONE, b'{"data":[1,2],"tiem":5}', "decode", "unknown member 'tiem'"),
    (ONE, b'{"src":1,"dst":2,"weight":5}', "schema", "field 'weight'"),
    (ONE, b'{"src":1}', "schema", "no field 'dst'"),
    (ONE, b'{"src":1,"dst":2,"diff":0}', "schema", "diff is 0"),
    (ONE, b'{"data":7}', "schema", "the row is 7"),
    (ONE, b'{"data":[1,2],"data":[1,2]}', "decode", "'data' comes twice"),
    (ONE, b'{"input":"nodes","data":[1,2]}', "unknown_source", "'nodes'"),
    (ONE, b'{"resolved":"never"}', "decode", "resolved is 'never'"),
    (TWO, b'{"data":[1,2]}', "unknown_source", "names no input, and this topic carries edges, roots"),
    (TWO, b"[1,2]", "decode", "a bare row does not name its source in a topic that carries several (edges, roots)"),
    (TWO, b'{"input":"roots","data":[1,2]}', "schema", "has 2 values"),
]  # fmt: skip


@pytest.mark.parametrize(("sources", "message", "reason", "detail"), JSON_BAD)
def test_json_messages_that_are_refused(
    sources: Mapping[str, RowType], message: bytes, reason: str, detail: str
) -> None:
    parsed = decode("json", sources, message)
    assert len(parsed.time) == 0
    (refused,) = parsed.refused
    assert refused.reason == reason
    assert detail in refused.detail
    assert refused.reason in REASONS


def test_progress() -> None:
    parsed = decode(
        "vernier", ONE, '{"v":1,"p":{"lower":["3"],"upper":["9"]}}', '{"v":1,"p":{"upper":[]}}',
        '{"v":1,"p":{"lower":["0"],"upper":["2023-11-14T22:13:20.123456789Z"],"counts":[["7",2],["3","1"]]}}',
        '{"v":1,"p":{"lower":["0"],"upper":["9"],"counts":[["7",2],["3",1]]}}',
    )  # fmt: skip
    assert parsed.progress == [
        Progress(0, 3, 9), Progress(1, CLOSED, CLOSED), Progress(3, 0, 9, ((3, 1), (7, 2)))
    ]  # fmt: skip
    assert [refused.message for refused in parsed.refused] == [2]
    assert decode("json", ONE, '{"resolved":"9"}').progress == [Progress(0, MIN_TIME, 9)]
    assert decode("json", TWO, '{"resolved":9}').progress == [Progress(0, MIN_TIME, 9)]


def test_columns_named_like_the_envelope_belong_to_bare_rows() -> None:
    odd = RowType([("time", Int64(), False), ("resolved", Int64(), True)])
    parsed = decode("json", {"odd": odd}, '{"time":5}', '{"time":5,"resolved":6}', '{"data":[7,null],"time":8}')
    assert parsed.refused == []
    assert updates(parsed) == [
        ("odd", (5, 0, 0), NO_TIME, 1), ("odd", (5, 1, 6), NO_TIME, 1), ("odd", (7, 0, 0), 8, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", sorted({*FORMATS} - ALONE))
def test_an_empty_batch(kind: str) -> None:
    parsed = decode(kind, TWO)
    assert len(parsed.time) == 0
    assert parsed.words["edges"].shape == (0, 2)


@pytest.mark.parametrize("kind", sorted({*FORMATS} - {"arrow"}))
def test_the_documentation_shows_messages_that_enter(root: Path, kind: str) -> None:
    section = (root / "docs" / "messages.md").read_text(encoding="utf-8").partition(f"### Format `{kind}`")[2]
    examples = section.split("```")[1].removeprefix("json\n").splitlines()
    parsed = decode(kind, ONE, *examples)
    assert parsed.refused == []
    assert len(parsed.progress) == 1
    assert len(parsed.time) >= 2
