"""Every hostile message is one dead letter with a reason, beside good messages that enter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from tests.attack.hostile import FORMATS, KEY, SCHEMAS, Hostile, Message, hostile_messages
from tests.attack.hostile_binary import stream
from tests.attack.hostile_protobuf import protobuf
from tests.ingest.log import Record, Service, Topics, batch
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.formats.one_by_one import UNFORESEEN
from vernier.service.ingest.ingestion import Decoded, Ingestion
from vernier.service.ingest.rejects import REASONS
from vernier.storage.strings.string_heap import Heap

GOOD: dict[str, Message] = {
    "vernier": (None, b'{"v":1,"t":0,"u":[[{"id":1},1,1]]}'),
    "json": (None, b'{"id":1}'),
    "insert_delete": (None, b'{"insert":{"id":1}}'),
    "debezium": (None, b'{"op":"c","after":{"id":1}}'),
    "upsert": (b"1", b"{}"),
    "arrow": (None, stream({"id": pa.array([1])})),
    "avro": (None, b"\2" + b"\0" * 7 + b"\2"),
    "protobuf": (None, b"\x08\1"),
}


def ingestion(form: str, **about: int) -> Ingestion:
    """An ingestion with the source of the hostile messages."""
    source = SourceConfig("t", format=form, schemas=SCHEMAS.get(form, ()), key=KEY if form == "upsert" else ())
    return Ingestion({"s": Hostile.row_type}, IngestionConfig({"s": source}, **about))


def decoded(form: str, messages: Sequence[Message], **about: int) -> Decoded:
    """Messages through ingestion."""
    records = [Record("t", 0, number, 1_000, value, key) for number, (key, value) in enumerate(messages)]
    return ingestion(form, **about).decode([batch(records)], {}, {}, {}, Heap())


def test_there_are_enough_of_them() -> None:
    assert sum(len(hostile_messages(form)) for form in FORMATS) >= 1_500
    assert all(len(hostile_messages(form)) >= 100 for form in FORMATS)


@pytest.mark.parametrize("form", FORMATS)
def test_each_is_a_dead_letter_beside_good_ones(form: str) -> None:
    """In a process of its own: one of them may end it."""
    code = f"from tests.attack.test_hostile import check_all; check_all({form!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]


def check_all(form: str) -> None:
    """Raises AssertionError with the first message that is no dead letter."""
    messages = hostile_messages(form)
    mixed = [one for pair in zip(messages, [GOOD[form]] * len(messages), strict=True) for one in pair]
    (found,) = decoded(form, mixed).batches
    assert found.parsed is not None
    refused = [one.message for one in found.refused]
    for number, message in enumerate(messages):
        assert refused.count(2 * number) == 1, message
    assert found.parsed.message.tolist() == list(range(1, len(mixed), 2))
    assert refused == list(range(0, len(mixed), 2))
    for one in found.refused:
        assert one.reason in REASONS
        assert 0 < len(one.detail) <= 1_100
        assert not one.detail.startswith(UNFORESEEN), (one.detail, mixed[one.message])
        one.detail.encode()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("diff", [2**31, -(2**31), 2**31 + 1, -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_a_diff_is_within_its_range(form: str, diff: int) -> None:
    if form in ("insert_delete", "debezium", "upsert"):
        return  # whose messages have no diff
    avro = b"\2" + b"\0" * 7
    left = (diff << 1) ^ (diff >> 63)
    while left & ~0x7F:
        avro, left = avro + bytes([left & 0x7F | 0x80]), left >> 7
    message = {
        "vernier": b'{"v":1,"t":0,"u":[[{"id":1},1,%d]]}' % diff,
        "json": b'{"data":{"id":1},"diff":%d}' % diff,
        "arrow": stream({"id": pa.array([1]), "_diff": pa.array([diff])}),
        "avro": avro + bytes([left]),
        "protobuf": protobuf(id=1, _diff=diff),
    }[form]
    (found,) = decoded(form, [(None, message), GOOD[form]]).batches
    assert found.parsed is not None
    if abs(diff) <= 2**31:
        assert (found.parsed.diff.tolist(), list(found.refused)) == ([diff, 1], [])
        return
    (refused,) = found.refused
    assert (refused.message, refused.reason, refused.source) == (0, "overflow", "s")
    assert f"a diff is {diff}, outside the diff_range of -2147483648 to 2147483648" in refused.detail
    (wide,) = decoded(form, [(None, message)], diff_range=2**62).batches
    assert bool(wide.refused) == (abs(diff) > 2**62)


def test_an_upsert_that_is_too_long_leaves_its_row_alone() -> None:
    """It was decoded as one without a value, which took the row back."""
    long = b'{"note":"%b"}' % (b"x" * 2_000)
    (found,) = decoded("upsert", [(b"1", b"{}"), (b"1", long), (b"2", None)], max_message_bytes=1_024).batches
    assert found.parsed is not None
    assert found.parsed.message.tolist() == [0, 2]
    assert [(one.message, one.reason) for one in found.refused] == [(1, "decode")]


def test_what_no_format_foresees_is_one_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of a format's own refuses the messages that it fails on, of a whole epoch none else."""
    from vernier.service.ingest.formats import json_lines

    judged = json_lines.judge_row

    def judge(value: object, *rest: object) -> object:
        if value == {"id": 666}:
            raise ZeroDivisionError("of all things")
        return judged(value, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(json_lines, "judge_row", judge)
    topics = Topics()
    row_type = RowType([("id", Int64(), False)])
    source = SourceConfig("t", format="json")
    service = Service(Ingestion({"s": row_type}, IngestionConfig({"s": source}, partitions={"t": 1})))
    bad = {7, 8, 500, 999}
    for number in range(1_000):
        topics.append("t", 0, '{"i\\u0064":666}' if number in bad else f"[{number}]", 1)
    service.epoch(topics.records)
    assert [letter.offset for letter in service.letters] == sorted(bad)
    assert {letter.reason for letter in service.letters} == {"decode"}
    assert service.letters[0].detail == f"{UNFORESEEN}: ZeroDivisionError of all things"
    assert sum(service.entered.values()) + service.waiting == 1_000 - len(bad)

    def exhausted(value: object, *_: object) -> object:
        raise MemoryError

    monkeypatch.setattr(json_lines, "judge_row", exhausted)
    with pytest.raises(MemoryError):
        service.epoch([topics.append("t", 0, '{"i\\u0064":666}', 1)])


def test_a_detail_fits_a_header() -> None:
    text = "\\ud800" * 5_000
    (found,) = decoded(
        "json", [(None, b'{"id":1,"%b":1}' % text.encode()), (None, b'{"data":"%b"}' % (b"x" * 10**6))]
    ).batches
    assert len(found.refused) == 2
    assert all(len(one.detail.encode()) < 2_000 for one in found.refused)
    assert np.all([one.detail.isprintable() for one in found.refused])
