"""The page of producers: its programs do what it shows."""

import functools
import re
from pathlib import Path
from typing import Any

import kafka
import pytest

import vernier as vn
from tests.ingest.log import Record, Service
from tests.producer.fake import Kafka
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import String
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.ingestion import Ingestion


def _blocks(root: Path, language: str) -> list[str]:
    text = (root / "docs" / "producer.md").read_text("utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [body for found, body in fenced if found == language]


def test_the_programs_send_what_is_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Kafka(1)
    made = functools.partial(vn.Producer, _make=kafka.make, _end=kafka.end)
    monkeypatch.setattr(vn, "Producer", made)
    names: dict[str, Any] = {}
    first, _, again = _blocks(root, "python")
    exec(compile(first, "producer.md", "exec"), names)
    (shown,) = _blocks(root, "json")
    sent = [record.value.decode() for record in kafka.log[0]]
    assert [line for line in sent if '"u"' in line] == shown.splitlines()[:-1]
    assert sent[-1] == shown.splitlines()[-1]
    # All of the history is there but the last row.
    names["history"] = [
        ((1, 2), "2026-01-31T12:00:00.000000007Z"),
        ((1, 3), "2026-01-31T12:00:00.000999999Z"),
        ((1, 2), "2026-01-31T12:00:00.004000001Z"),
        ((5, 6), "2026-01-31T12:00:00.004000002Z"),
    ]
    exec(compile(again, "producer.md", "exec"), names)
    more = [record.value.decode() for record in kafka.log[0]][len(sent) :]
    assert [line for line in more if '"u"' in line] == [
        '{"v":1,"t":"1769860800004000001","u":[[[5,6],"1769860800004000002",1]]}'
    ]


class _Client:
    """What the page uses of a Kafka client: it writes to the log of one partition."""

    def __init__(self, *, bootstrap_servers: str, key_serializer: Any, value_serializer: Any) -> None:
        self._key, self._value = key_serializer, value_serializer
        self.sent: list[Record] = []

    def __enter__(self) -> "_Client":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def send(self, topic: str, *, key: Any, value: Any, timestamp_ms: int = 0, partition: int = 0) -> None:
        self.sent.append(Record(topic, partition, len(self.sent), timestamp_ms, self._value(value), key=self._key(key)))

    def flush(self) -> None:
        pass

    def partitions_for(self, topic: str) -> set[int]:
        return {0}


def test_upserts_are_read_as_the_page_says(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[_Client] = []

    def make(**settings: Any) -> _Client:
        clients.append(_Client(**settings))
        return clients[-1]

    monkeypatch.setattr(kafka, "KafkaProducer", make)
    _, upserts, _ = _blocks(root, "python")
    exec(compile(upserts, "producer.md", "exec"), {})
    items = RowType([("id", Int64(), False), ("name", String(), True), ("price", Int64(), True)])
    config = SourceConfig("items", format="upsert", clock="event", idle_timeout_ms=None, key=("id",))
    service = Service(Ingestion({"items": items}, IngestionConfig({"items": config}, partitions={"items": 1})))
    service.epoch(clients[0].sent)
    assert service.letters == []
    first = 1769860800000
    # The sign of an upsert's diff says whether there is a row; the number is its place among those of one time.
    found = sorted((time // 1_000_000 - first, diff > 0) for (_, _, time, diff) in service.entered)
    assert found == [(0, True), (250, True), (250, True), (400, False)]
