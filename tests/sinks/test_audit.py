"""`vernier sinks verify` finds what a topic lacks, has twice or has wrong, and nothing in one that is right."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.sidecar.builder import Change, row_type
from tests.sinks.test_publisher import Named, state
from tests.sinks.topic import publish, settings
from vernier.service.cli.main import run
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.sinks.audit import TopicAudit, audit_topics
from vernier.service.sinks.publisher import Publisher
from vernier.storage.state.state import StateDirectory

pytestmark = pytest.mark.broker
PAIRS = {"pairs": (row_type(key="Int64", note="String", weight="Float64 | None"), ["key"])}
LONG = 'a text of more than fifteen bytes, with "quotes"'


def audited(broker: EmbeddedBroker, builder: Named) -> TopicAudit:
    """What the audit says of the only view."""
    (found,) = audit_topics({"bootstrap_servers": broker.bootstrap}, StateDirectory(builder.path))
    return found


class Faulty:
    """A producer that leaves records out of its transactions, or sends them twice, as a defect would."""

    def __init__(self, copies: dict[int, int]) -> None:
        self.copies, self.sent = copies, 0

    def __call__(self, **about: Any) -> Any:
        self.made = KafkaProducer(**about)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made, name)

    def send(self, topic: str, **about: Any) -> Any:
        self.sent += 1
        copies = self.copies.get(self.sent, 1)
        for _ in range(copies):
            future = self.made.send(topic, **about)
        return future if copies else self.made.send("scrap", value=b"instead")


@pytest.mark.parametrize("form", ["vernier", "debezium", "upsert"])
def test_a_topic_that_is_right(broker: EmbeddedBroker, tmp_path: Path, form: str) -> None:
    app = f"right-{form}"
    builder = state(tmp_path / "state", app, views=PAIRS)
    given = settings(broker, builder.path, **{"sinks.pairs.format": form, "sinks.pairs.partitions": 2})
    chance, rows = random.Random(3), dict[int, tuple[Any, ...]]()
    for number in range(8):
        own: list[Change] = []
        for key in chance.sample(range(9), 5):
            at = number * 10 + chance.randrange(10)
            if key in rows:
                own.append((rows.pop(key), at, -1))
            if chance.random() < 0.8:
                rows[key] = (key, chance.choice(["a", LONG, "é\n"]), chance.choice([None, 1e22, 0.1, float("nan")]))
                own.append((rows[key], at, 1))
        # Half of them folded by now: rows as of the least time, and each change since.
        since = number * 10 - 35 if number > 4 else None
        builder.commit(number * 10 + 10, {"pairs": own}, keep=4, since=since, merge=since is not None)
        if number != 5:
            publish(given)
    found = audited(broker, builder)
    assert (found.equal, found.differences, found.problem) == (True, [], None)
    assert (found.frontier, found.format) == (80, form)
    assert found.changes > 10
    # What has not gone out yet is no difference.
    builder.commit(90, {"pairs": [((100, "new", None), 85, 1)]})
    found = audited(broker, builder)
    assert (found.equal, found.frontier) == (True, 80)
    builder.close()


def damaged(broker: EmbeddedBroker, path: Path, app: str, copies: dict[int, int], form: str = "vernier") -> Named:
    """A state whose third epoch was published with records left out, or sent twice."""
    broker.create_topics({"scrap": 1})
    builder = state(path, app, views=PAIRS)
    given = settings(broker, builder.path, **{"sinks.pairs.format": form})
    for number in range(4):
        lower = number * 10
        own: list[Change] = [((number, "came", None), lower + 1, 1), ((number + 10, LONG, 0.5), lower + 2, 1)]
        builder.commit(lower + 10, {"pairs": own}, keep=10)
        publisher = Publisher(given, StateDirectory(given.state.place), Faulty(copies if number == 2 else {}))
        publisher.turn()
        publisher.close()
    builder.close()
    return builder


def test_what_is_missing_is_named_with_its_epoch(broker: EmbeddedBroker, tmp_path: Path) -> None:
    builder = damaged(broker, tmp_path / "state", "lacking", {1: 0})
    found = audited(broker, builder)
    assert not found.equal
    shown = [(one.kind, json.loads(one.row), one.time, one.expected, one.found, one.epoch) for one in found.differences]
    assert shown == [
        ("missing", [2, "came", None], 21, 1, 0, 3),
        ("missing", [12, LONG, 0.5], 22, 1, 0, 3),
    ]  # fmt: skip


def test_what_is_missing_of_progress_is_named(broker: EmbeddedBroker, tmp_path: Path) -> None:
    found = audited(broker, damaged(broker, tmp_path / "state", "halting", {2: 0}))
    assert [one.describe() for one in found.differences] == [
        "missing: progress of partition 0 from 20 to 30, expected +1, found +0 (partition 0 offset 9)"
    ]


def test_what_is_doubled_is_named_with_its_offsets(broker: EmbeddedBroker, tmp_path: Path) -> None:
    found = audited(broker, damaged(broker, tmp_path / "state", "twice", {1: 2}))
    assert [(one.kind, one.row, one.expected, one.found, one.epoch) for one in found.differences] == [
        ("doubled", "message pairs:20:30:0:0", 1, 2, 3),
        ("doubled", '[2,"came",null]', 1, 2, 3),
        ("doubled", json.dumps([12, LONG, 0.5], separators=(",", ":")), 1, 2, 3),
    ]
    (first, second) = found.differences[0].places
    assert second == (0, first[1] + 1)
    assert found.differences[1].places == (first, second)


@pytest.mark.parametrize("form", ["debezium", "upsert"])
def test_other_formats_miss_rows_too(broker: EmbeddedBroker, tmp_path: Path, form: str) -> None:
    found = audited(broker, damaged(broker, tmp_path / "state", f"other-{form}", {1: 0}, form))
    (one,) = found.differences
    assert (one.kind, json.loads(one.row)) == ("missing", {"key": 2, "note": "came", "weight": None})


def test_a_message_of_somebody_else_is_wrong(broker: EmbeddedBroker, tmp_path: Path) -> None:
    builder = damaged(broker, tmp_path / "state", "strange", {})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    where = producer.send("strange.pairs", value=b'{"v":1,"t":"3","u":[[[7,"x",null],"3",2]]}').get(30)
    producer.send("strange.pairs", value=b"no JSON").get(30)
    producer.close()
    found = audited(broker, builder)
    assert [(one.kind, one.row, one.expected, one.found) for one in found.differences] == [
        ("wrong", "message without id: JSON is malformed: invalid character (byte 4)", 0, 1),
        ("wrong", '[7,"x",null]', 0, 2),
    ]
    assert found.differences[1].places == ((0, where.offset),)


def test_after_a_snapshot_only_what_replaced_the_rest_counts(broker: EmbeddedBroker, tmp_path: Path) -> None:
    chance, app = random.Random(10), "replaced"
    builder = state(tmp_path / "state", app)
    given = settings(broker, builder.path)
    builder.grow(chance)
    publish(given)
    for _ in range(6):
        builder.grow(chance, keep=2, since=builder.frontier - 5, merge=True)
    publish(given)
    builder.grow(chance)
    publish(given)
    builder.close()
    found = audited(broker, builder)
    assert (found.equal, found.differences, found.frontier) == (True, [], builder.frontier)
    assert found.base is not None


def test_the_command_says_it_and_ends_with_its_status(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = damaged(broker, tmp_path / "state", "command", {1: 0, 3: 1})
    where = ["--set", f"kafka.bootstrap={broker.bootstrap}", "--set", f"state.path={builder.path}"]
    assert run(["sinks", "verify", *where, "--limit", "1"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split()[-3:] == ["2", "0", "0"]
    assert out.splitlines()[2:] == [
        'pairs: missing: [2,"came",null] at 21, expected +1, found +0 (epoch 3)',
        "pairs: and 1 more",
    ]
    assert err == "vernier: 1 of 1 output topics differ from their views: pairs: differs\n"
    assert run(["sinks", "verify", "pairs", *where, "--format", "json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert (json.loads(line)["missing"], json.loads(line)["equal"]) == (2, False)
    assert run(["sinks", "verify", "pair", *where]) == 1
    assert "nothing of it has been published (published views: pairs)" in capsys.readouterr().err

    right = state(tmp_path / "right", "fine")
    right.grow(random.Random(1))
    publish(settings(broker, right.path))
    right.close()
    where[-1] = f"state.path={right.path}"
    assert run(["sinks", "verify", *where]) == 0
    assert capsys.readouterr().err == ""
