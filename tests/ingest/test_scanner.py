"""The scanner's kernels never take what the judge would refuse, nor read it differently."""

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.guarded import GuardedMemory
from tests.ingest.log import EDGES, ROOTS, values
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String
from vernier.service.codec.instants import format_instant, parse_instant
from vernier.service.ingest.formats import FORMATS, json_lines, native
from vernier.service.ingest.formats.messages import Format, Parsed
from vernier.service.kernels import json_values
from vernier.storage.strings.string_heap import Heap

MIXED = RowType(
    [
        ("i", Int64(), True),
        ("b", Bool(), False),
        ("f", Float64(), False),
        ("d", Date(), True),
        ("t", TimestampNs(), False),
    ]
)
TEXTS = RowType(
    [("s", String(), True), ("p", Decimal(5, 2), False), ("q", Decimal(2, 2), True), ("e", String(), False)]
)
RECORDS = RowType(
    [
        ("l", List(String() | None), True),
        ("z", Struct(a=Decimal(38, 10), b=Date() | None), False),
        ("y", Binary(), False),
    ]
)
INNER = Struct(t=String(), f=Float64(), time=Bool())
NESTED = RowType(
    [
        ("i", Int64(), False),
        ("l", List(String() | None), True),
        ("z", Struct(a=Decimal(38, 10), b=Date() | None), False),
        ("deep", List(Struct(n=List(Int64() | None), s=INNER | None) | None), True),
    ]
)
KINDS = ("vernier", "json")
"""The formats that have kernels of their own."""
SOURCES: list[Mapping[str, RowType]] = [
    {"edges": EDGES},
    {"edges": EDGES, "roots": ROOTS},
    {"mixed": MIXED},
    {"texts": TEXTS},
    {"texts": TEXTS, "edges": EDGES},
    {"records": RECORDS},
    {"nested": NESTED},
    {"nested": NESTED, "edges": EDGES},
    {"records": RECORDS, "texts": TEXTS},
]


def judged(kind: str, sources: Mapping[str, RowType]) -> Format:
    """The format with a kernel that leaves every message to the judge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "scan_native", lambda *arrays: 0)
        reader = FORMATS[kind](sources)
    if isinstance(reader, json_lines.JsonLines):
        patched = pytest.MonkeyPatch()
        patched.setattr(reader._scanner, "_kernel", lambda *arrays: 0)
    return reader


GUARDED = GuardedMemory()
READERS = [(FORMATS[kind](sources), judged(kind, sources)) for kind in KINDS for sources in SOURCES]

integers = st.one_of(
    st.integers(-3, 300), st.integers(-(2**66), 2**66), st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1])
)
numbers = st.one_of(
    integers.map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["01", "-", "1.", ".5", "1e", "-0", "-0.0", "1e400", "NaN", "Infinity", "+1", "1_0"]),
)
instants = st.one_of(
    integers.map(str).map(json.dumps),
    integers.map(str),
    st.integers(-(2**62), 2**62).map(format_instant).map(json.dumps),
    st.from_regex(
        r'"[0-2][0-9]{3}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9](:[0-6][0-9]){2}'
        r'(\.[0-9]{1,10})?([Zz]|[+-][0-2][0-9]:[0-6][0-9])"',
        fullmatch=True,
    ),
)
dates = st.one_of(st.dates().map(str), st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", fullmatch=True)).map(json.dumps)
texts = st.one_of(
    st.text(max_size=4),
    st.text(st.characters(codec="utf-8"), min_size=12, max_size=20),
    st.sampled_from(["\\", '"', "\x00", "\x1f", "\u2028", "\U0001f600", "é" * 8, "a" * 15, "a" * 16]),
)
spelt = st.one_of(
    texts.map(json.dumps),
    texts.map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(['"\\ud83d\\ude00"', '"\\ud800"', '"\\u00e9\\u0041\\/"', '"\\x41"', '"\\u12"', '"a\tb"', '"']),
)
cells = st.one_of(
    numbers, instants, dates, st.sampled_from(["null", "true", "false", "nul", '"NaN"', "[]", "{}", '""'])
)
space = st.sampled_from(["", "", "", " ", "\n", "\t\r "])


@st.composite
def arrays(draw: st.DrawFn, items: list[str]) -> str:
    return "[" + ",".join(draw(space) + item + draw(space) for item in items) + "]"


@st.composite
def objects(draw: st.DrawFn, members: list[tuple[str, str]]) -> str:
    members = draw(st.permutations(members))
    return "{" + ",".join(f'{draw(space)}"{k}"{draw(space)}:{draw(space)}{v}{draw(space)}' for k, v in members) + "}"


prices = st.decimals(-999, 999, places=2).map(str)
odd_values = st.one_of(cells, spelt, numbers, instants)


@st.composite
def nested(draw: st.DrawFn, kind: Type, spoilt: bool) -> str:
    """A value of a list or struct; a spoilt one may have an odd value, or brackets and members that are wrong."""
    if spoilt and draw(st.integers(0, 9)) == 0:
        return draw(odd_values)
    match kind:
        case List():
            items = [draw(slots(kind.element, spoilt)) for _ in range(draw(st.integers(0, 3)))]
            text = draw(arrays(items))
        case Struct():
            given = [(name, draw(slots(slot, spoilt))) for name, slot in kind.fields.items()]
            if spoilt and draw(st.integers(0, 3)) == 0:
                given = draw(st.lists(st.sampled_from(given), max_size=4))
            text = draw(objects(given)) if draw(st.booleans()) else draw(arrays([value for _, value in given]))
        case _:
            text = draw(ODD[kind.name] if spoilt and draw(st.integers(0, 3)) == 0 else PLAIN[kind.name])
    if spoilt and draw(st.integers(0, 9)) == 0:
        text = draw(st.sampled_from([text[:-1], text[1:], text + "]", text[:-1] + "}", text[:-1] + ",]", "[" + text]))
    return text


def slots(slot: Slot, spoilt: bool) -> st.SearchStrategy[str]:
    """A value of a place, or null where it may be."""
    value = nested(slot.type, spoilt)
    return st.one_of(st.just("null"), value) if slot.nullable or spoilt else value


PLAIN: dict[str, st.SearchStrategy[str]] = {
    "String": st.one_of(texts.map(json.dumps), texts.map(lambda text: json.dumps(text, ensure_ascii=False))),
    "Decimal": st.one_of(st.sampled_from(["0", "0.5", '"0.25"', "-0.1", '"-0.00"']), prices, prices.map(json.dumps)),
    "Binary": st.binary(max_size=20).map(lambda data: json.dumps(base64.b64encode(data).decode())),
    "Int64": st.one_of(st.integers(-9, 99), st.integers(-(2**63), 2**63 - 1)).map(str),
    "Bool": st.sampled_from(["true", "false"]),
    "Float64": st.one_of(st.integers(-9, 99).map(str), st.sampled_from(["1.5", "-0.25", "1e3", "0.1"])),
    "Date": st.one_of(st.dates().map(str).map(json.dumps), st.just("null")),
    "TimestampNs": st.one_of(st.integers(0, 99).map(str), st.integers(0, 2**62).map(format_instant).map(json.dumps)),
}
ODD: dict[str, st.SearchStrategy[str]] = {
    "Int64": numbers, "Bool": cells, "Float64": numbers, "Date": dates, "TimestampNs": instants, "String": spelt,
    "Decimal": numbers, "List": spelt, "Struct": cells, "Binary": spelt,
}  # fmt: skip
PLAIN_TIMES = st.one_of(st.integers(0, 99).map(str), st.integers(0, 99).map(lambda time: f'"{time}"'))
PLAIN_DIFFS = st.sampled_from(["1", "-1", "2"])


@st.composite
def rows(draw: st.DrawFn, row_type: RowType, spoilt: bool) -> str:
    """A row; a spoilt one has an odd value, or fields too many or too few."""
    given = [
        (field.name, draw(slots(Slot(field.type, field.nullable), False)))
        if isinstance(field.type, (List, Struct))
        else (field.name, draw(PLAIN[field.type.name]))
        for field in row_type.fields
    ]
    if spoilt and draw(st.booleans()):
        given = draw(st.lists(st.sampled_from(given), max_size=6))
    elif spoilt:
        at = draw(st.integers(0, len(given) - 1))
        kind = row_type.fields[at].type
        odd = nested(kind, True) if isinstance(kind, (List, Struct)) and draw(st.booleans()) else ODD[kind.name]
        given[at] = given[at][0], draw(st.one_of(odd, cells))
    if draw(st.integers(0, 1)):
        return draw(objects(given))
    return draw(arrays([value for _, value in given]))


@st.composite
def messages(draw: st.DrawFn, kind: str, sources: Mapping[str, RowType]) -> bytes:
    """A message, spoilt in one way or not at all."""
    name = draw(st.sampled_from(sorted(sources)))
    spoilt = draw(st.sampled_from(["", "", "row", "row", "time", "diff", "member", "input", "bytes"]))
    times, diffs = instants if spoilt == "time" else PLAIN_TIMES, numbers if spoilt == "diff" else PLAIN_DIFFS
    members: list[tuple[str, str]] = []
    if len(sources) > 1 or draw(st.booleans()):
        members.append(("input", json.dumps("nodes" if spoilt == "input" else name)))
    if kind == "vernier":
        batch = []
        for number in range(draw(st.integers(0, 3))):
            row = draw(rows(sources[name], spoilt == "row" and number == 0))
            batch.append(draw(arrays([row, draw(times), draw(diffs)])))
        members += [("v", "1"), ("t", draw(times) if spoilt == "time" else "0"), ("u", draw(arrays(batch)))]
    else:
        row = draw(rows(sources[name], spoilt == "row"))
        extra = [("time", draw(times)), ("diff", draw(diffs))]
        members += draw(st.lists(st.sampled_from(extra), max_size=2, unique=True))
        bare = draw(st.booleans())
        if members or not bare:
            members.append(("data", row))
    if spoilt == "member":
        members += draw(st.lists(st.sampled_from([*members, ("x", "1"), ("time", "null")]), max_size=2))
    text = draw(objects(members)) if members else row
    if kind == "json" and row.startswith("{") and len(row) > 2 and draw(st.booleans()):
        own = [member for member in members if member[0] not in ("data", "input")]
        text = row[:-1] + "," + draw(objects(own))[1:] if own else row
    data = (draw(space) + text + draw(space)).encode()
    for _ in range(draw(st.integers(1, 2)) if spoilt == "bytes" else 0):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        change = draw(st.sampled_from([b"", b",", b'"', b"}", b"]", b"0", b"\\", b"\xff", b" ", b"-", b"e", b"\x00"]))
        data = data[:at] + change + data[at + draw(st.integers(0, 1)) :]
    return data


def assert_same(found: Parsed, expected: Parsed) -> None:
    for column in ("source", "message", "time", "diff"):
        assert getattr(found, column).tolist() == getattr(expected, column).tolist()
    assert {name: rows.tolist() for name, rows in found.words.items()} == {
        name: rows.tolist() for name, rows in expected.words.items()
    }
    assert (found.progress, found.refused) == (expected.progress, expected.refused)


@settings(max_examples=max(300, settings().max_examples))
@given(st.data())
def test_scanner_and_judge_agree(data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(READERS) - 1))
    kind, sources = KINDS[which // len(SOURCES)], SOURCES[which % len(SOURCES)]
    batch = data.draw(st.lists(messages(kind, sources), max_size=5))
    scanner, judge = READERS[which]
    heap, other = Heap(), Heap()
    found, expected = scanner.decode(values(*batch), heap), judge.decode(values(*batch), other)
    assert_same(found, expected)
    for name, row_type in sources.items():
        words = found.words[name]
        assert row_type.decode_rows(words, heap) == row_type.decode_rows(words, other)


@settings(max_examples=max(300, settings().max_examples))
@given(st.data())
def test_nothing_behind_the_messages_is_read(data: st.DataObject) -> None:
    """Wherever a message ends. A kernel that reads on would end this process."""
    which = data.draw(st.integers(0, len(READERS) - 1))
    batch = data.draw(st.lists(messages(KINDS[which // len(SOURCES)], SOURCES[which % len(SOURCES)]), max_size=2))
    last = data.draw(messages(KINDS[which // len(SOURCES)], SOURCES[which % len(SOURCES)]))
    for end in {len(last), *data.draw(st.lists(st.integers(0, len(last)), max_size=8))}:
        given = [*batch, last[:end]]
        found = READERS[which][0].decode(GUARDED.messages(given), Heap())
        assert_same(found, READERS[which][0].decode(values(*given), Heap()))


@pytest.mark.parametrize("reader", READERS[:2], ids=["one", "two"])
def test_the_kernel_takes_what_producers_write(reader: tuple[Format, Format]) -> None:
    """The agreement above would hold for a kernel that takes nothing."""
    message = '{"v":1,"t":"5","input":"edges","u":[[[1,2],"5",1],[{"src":1,"dst":2},"2023-11-14T22:13:20Z",-1]]}'
    assert kernel_takes(FORMATS["vernier"]({"edges": EDGES, "roots": ROOTS}), message)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (SOURCES[0], '{"data":[1,2],"time":"5","diff":1}'),
        (SOURCES[0], '{"src":1,"dst":2,"time":17}'),
        (SOURCES[0], "[1,2]"),
        (SOURCES[1], '{"input":"roots","data":{"node":1}}'),
        (SOURCES[2], '[null,true,1.25,"2024-02-29","2023-11-14T22:13:20.5Z"]'),
        (SOURCES[6], '[1,[null,"a\\u00e9"],{"a":1.10,"b":null},[{"s":null,"n":[1,null,-2]},null]]'),
        (SOURCES[6], '[1, null, ["-12345678901234567890.5", "2024-02-29"], [[[], ["x,y]", 1.5, true]] , null ]]'),
        (SOURCES[7], '{"input":"edges","data":[1,2]}'),
        (SOURCES[8], '{"input":"texts","data":[null,1.5,null,"x"]}'),
        (SOURCES[3], '["a text of more than 15 bytes, é and \\u00e9\\n",12.5,"0.25",""]'),
    ],
)
def test_the_kernel_takes_lines_that_producers_write(sources: Mapping[str, RowType], message: str) -> None:
    assert kernel_takes(FORMATS["json"](sources), message)


def kernel_takes(reader: Any, message: str) -> bool:
    """Whether the message is taken without the judge."""
    asked: list[bytes] = []

    def judge(value: bytes) -> list[Any]:
        asked.append(value)
        return []

    reader._scanner._judge = judge
    return len(reader.decode(values(message), Heap()).time) > 0 and not asked


@given(st.integers(-(2**63) + 2, 2**63 - 2))
def test_instants_are_read_as_everywhere(time: int) -> None:
    text = np.frombuffer(json.dumps(format_instant(time)).encode(), np.uint8)
    found, at = json_values.scan_instant(text.ctypes.data, 0, len(text))
    if at == len(text):
        assert found == time == parse_instant(format_instant(time))
    else:
        assert not 1678 <= int(format_instant(time)[:4]) <= 2261


@given(st.floats(allow_nan=False, allow_infinity=False, width=32) | st.decimals(-(10**9), 10**9, places=6).map(float))
def test_doubles_are_exact_or_left(number: float) -> None:
    text = np.frombuffer(repr(number).encode(), np.uint8)
    found, at = json_values.scan_double(text.ctypes.data, 0, len(text))
    assert at in (-1, len(text))
    if at > 0:
        assert found == number
        assert math.copysign(1, found) == math.copysign(1, number)


def test_chunks_of_a_large_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are scanned in chunks of bytes; messages keep their numbers and their order across them."""
    monkeypatch.setattr("vernier.service.ingest.formats.scan._CHUNK_BYTES", 100)
    texts = [f'{{"v":1,"t":"0","u":[[[{k},2],"{k}",1]]}}' for k in range(50)]
    texts[20], texts[31] = "oops", '{"u":[[[31,2],"31",1]],"\\u0076":1,"t":"0"}'
    texts[40] = '{"v":1,"t":"0","u":[' + ",".join(f'[[40,{k}],"40",1]' for k in range(30)) + "]}"
    parsed = FORMATS["vernier"]({"edges": EDGES}).decode(values(*texts))
    assert [refused.message for refused in parsed.refused] == [20]
    expected = [k for k in range(50) if k != 20 for _ in range(30 if k == 40 else 1)]
    assert parsed.message.tolist() == parsed.time.tolist() == parsed.words["edges"][:, 0].tolist() == expected
    sliced = FORMATS["vernier"]({"edges": EDGES}).decode(values(*texts).slice(21, 5))
    assert sliced.time.tolist() == [21, 22, 23, 24, 25]


def test_texts_come_as_they_were_written() -> None:
    rows = [
        ("é" * 20, "1.50", "0.25", 'say "hi"\n\\ \u2028 ' * 3),
        (None, 999.99, None, ""),
        ("a\x7fb", "-0.01", "-0.99", "\U0001f600" * 9),
    ]
    lines = [json.dumps(row, ensure_ascii=bool(number % 2)) for number, row in enumerate(rows)]
    heap = Heap()
    parsed = FORMATS["json"]({"texts": TEXTS}).decode(values(*lines), heap)
    assert parsed.refused == []
    found = TEXTS.decode_rows(parsed.words["texts"], heap)
    assert [(row[0], row[3]) for row in found] == [(row[0], row[3]) for row in rows]
    assert [str(row[1]) for row in found] == ["1.50", "999.99", "-0.01"]
    assert [row[2] and str(row[2]) for row in found] == ["0.25", None, "-0.99"]


PROGRESS_TIMES = st.one_of(
    st.integers(-20, 20),
    st.integers(-(2**64), 2**64),
    st.sampled_from([2**63 + d for d in range(-3, 3)] + [-(2**63) + d for d in range(-2, 5)]),
    st.sampled_from(["007", "-0", "+1", "1.0", "1e3", "", " 1", "\u0661", "2023-11-14T22:13:20Z"]),
).map(str)


@given(
    lower=PROGRESS_TIMES,
    upper=PROGRESS_TIMES,
    form=st.sampled_from(
        [
            '{"v":1,"p":{"lower":["%s"],"upper":["%s"]}}',
            '{"v": 1, "p": {"lower": ["%s"], "upper": ["%s"]}}',
            '{"v":1,"p":{"lower":["%s"],"upper":["%s"]}}\n',
            '{"v":1,"p":{"lower":["%s"],"upper":["%s"],"upper":["9"]}}',
            '{"p":{"lower":["%s"],"upper":["%s"]},"v":1}',
        ]
    ),
)
def test_progress_is_the_same_read_either_way(lower: str, upper: str, form: str) -> None:
    """A plain progress message is read without the judge, with the result or the error that the judge would give."""

    def read() -> object:
        parsed = native.Native({"edges": EDGES}).decode(values(form % (lower, upper)))
        return parsed.progress, parsed.refused

    quickly = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_PROGRESS", re.compile(b"(?!)"))
        assert read() == quickly
