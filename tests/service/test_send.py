"""`vernier send` and `vernier dlq` against a real broker."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.cli.command import PATIENCE, start
from tests.sinks.topic import committed
from vernier.service.cli.main import run
from vernier.service.kafka.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.broker
_NUMBER = itertools.count()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """A topic of three partitions that no other test uses."""
    name = f"send-{next(_NUMBER)}"
    broker.create_topics({name: 3})
    return name


def read(broker: EmbeddedBroker, topic: str) -> dict[int, list[Any]]:
    """All records of a topic, by partition."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, enable_auto_commit=False)
    parts = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends = consumer.end_offsets(parts)
    found: dict[int, list[Any]] = {part.partition: [] for part in parts}
    deadline = time.monotonic() + PATIENCE
    while any(len(found[part.partition]) < ends[part] for part in parts) and time.monotonic() < deadline:
        for part, records in consumer.poll(timeout_ms=500).items():
            found[part.partition] += records
    consumer.close()
    return found


def values(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    return [record.value for records in read(broker, topic).values() for record in records]


def line(node: int, at: int, diff: int = 1) -> str:
    return json.dumps({"input": "edges", "data": [node, node + 1], "time": at, "diff": diff})


def test_lines_become_native_messages(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "u.jsonl"
    lines = [line(node, 100 + node) for node in range(1200)] + [line(node, 5000, -1) for node in range(30)]
    file.write_text("\n".join(lines) + "\n\n")
    assert run(["send", str(file), "--topic", topic, "--bootstrap", broker.bootstrap]) == 0
    sent: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    places: dict[tuple[int, ...], set[int]] = {}
    for partition, records in read(broker, topic).items():
        assert records, "every partition has its share"
        for record in records:
            message = json.loads(record.value)
            assert (message["v"], message["input"]) == (1, "edges")
            assert int(message["t"]) == min(int(at) for _, at, _ in message["u"])
            assert len(message["u"]) <= 500
            for row, at, diff in message["u"]:
                sent.setdefault(tuple(row), []).append((int(at), diff))
                places.setdefault(tuple(row), set()).add(partition)
    expected = {(n, n + 1): [(100 + n, 1), *([(5000, -1)] if n < 30 else [])] for n in range(1200)}
    assert sent == expected
    assert all(len(where) == 1 for where in places.values()), "a row keeps to one partition"


def test_json_lines_go_as_they_stand(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "u.jsonl.gz"
    lines = [b'{"input":"edges", "data":[1,2]}', b"not json at all", b'["a row"]', b'{"half":']
    file.write_bytes(gzip.compress(b"\n".join(lines)))
    assert run(["send", str(file), "--topic", topic, "--format", "json", "--bootstrap", broker.bootstrap]) == 0
    assert sorted(values(broker, topic)) == sorted(lines)


def test_native_messages_pass_and_progress_goes_everywhere(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "u.jsonl"
    update, progress = '{"v":1,"t":"5","u":[[[1,2],"5",1]]}', '{"v":1,"p":{"upper":["9"]}}'
    file.write_text(f"{update}\n{progress}\n")
    assert run(["send", str(file), "--topic", topic, "--bootstrap", broker.bootstrap]) == 0
    found = [[record.value.decode() for record in records] for records in read(broker, topic).values()]
    assert all(records[-1] == progress for records in found)
    assert sorted(itertools.chain(*found)) == sorted([update, *[progress] * 3])


def test_a_line_without_time_gets_the_wall_clock(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "u.jsonl"
    file.write_text('{"data":[1]}\n')
    before = time.time_ns()
    assert run(["send", str(file), "--topic", topic, "--bootstrap", broker.bootstrap]) == 0
    (message,) = map(json.loads, values(broker, topic))
    assert "input" not in message
    assert before <= int(message["t"]) <= time.time_ns()


@pytest.mark.parametrize("form", ["vernier", "json"])
def test_promises_follow_the_updates(broker: EmbeddedBroker, topic: str, tmp_path: Path, form: str) -> None:
    file = tmp_path / "u.jsonl"
    file.write_text(f"{line(1, 7)}\n{line(2, 7)}\n{line(3, 12)}\n")
    words = ["send", str(file), "--topic", topic, "--promise", "--format", form, "--bootstrap", broker.bootstrap]
    assert run(words) == 0
    last = {"resolved": "13"} if form == "json" else {"v": 1, "p": {"upper": ["13"]}}
    for records in read(broker, topic).values():
        assert json.loads(records[-1].value) == last


def test_promises_need_order(
    broker: EmbeddedBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "u.jsonl"
    file.write_text(f"{line(1, 7)}\n{line(2, 6)}\n")
    assert run(["send", str(file), "--topic", topic, "--promise", "--bootstrap", broker.bootstrap]) == 1
    assert capsys.readouterr().err == (
        f"vernier: {file}, line 2: time 6 is before 7: promises need updates in time order; "
        "the 1 lines before it were sent\n"
    )


def test_a_bad_line_stops_and_is_named(
    broker: EmbeddedBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "u.jsonl"
    file.write_text(f'{line(1, 7)}\n{{"data":[1],"dif":2}}\n{line(2, 8)}\n')
    assert run(["send", str(file), "--topic", topic, "--bootstrap", broker.bootstrap]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"vernier: {file}, line 2: not an update: Object contains unknown field `dif`")
    assert len(values(broker, topic)) == 1


def test_standard_input_is_passed_on_while_it_comes(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    import subprocess

    words = ["send", "-", "--topic", topic, "--bootstrap", broker.bootstrap]
    process = start(*words, cwd=tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(line(1, 7) + "\n")
    process.stdin.flush()
    deadline = time.monotonic() + PATIENCE
    while not values(broker, topic) and time.monotonic() < deadline:
        assert process.poll() is None
    assert len(values(broker, topic)) == 1
    _, err = process.communicate(line(2, 8), timeout=PATIENCE)
    assert (process.returncode, err) == (0, f"sent 2 lines to {topic}\n")
    assert len(values(broker, topic)) == 2


def test_a_rate_is_kept(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "u.jsonl"
    file.write_text("".join(f"{line(node, node)}\n" for node in range(200)))
    began = time.monotonic()
    assert run(["send", str(file), "--topic", topic, "--rate", "400", "--bootstrap", broker.bootstrap]) == 0
    assert time.monotonic() - began >= 0.4


def letters(broker: EmbeddedBroker, source: str, topic: str) -> None:
    """Two dead letters of a source, as the service writes them."""
    broker.create_topics({f"{source}.dlq": 1})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    for number, reason in enumerate(("decode", "late")):
        about = {"reason": reason, "detail": f"why {number}", "topic": topic, "partition": "0", "offset": str(number)}
        headers = [("mine", b"kept"), *((f"vernier-{name}", text.encode()) for name, text in about.items())]
        producer.send(f"{source}.dlq", key=b"k", value=f"letter {number}".encode(), headers=headers)
    producer.flush()
    producer.close()


def test_dead_letters_are_listed_and_sent_again(
    broker: EmbeddedBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"source-{topic}"
    letters(broker, source, topic)
    where = ["--bootstrap", broker.bootstrap]
    assert run(["dlq", "list", source, *where]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["letter", "reason", "topic", "partition", "offset", "detail"]
    assert out[1].split() == [f"{source}.dlq/0/0", "decode", topic, "0", "0", "why", "0"]
    assert run(["dlq", "list", source, "--reason", "late", "--format", "json", *where]) == 0
    (late,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (late["reason"], late["value"], late["bytes"], late["dlq_offset"]) == ("late", "letter 1", 8, 1)

    assert run(["dlq", "replay", source, "--reason", "late", *where]) == 0
    assert capsys.readouterr().out == "sent 1 dead letters again, skipped 1\n"
    (record,) = committed(broker.bootstrap, topic)
    assert (record.key, record.value) == (b"k", b"letter 1")
    assert record.headers == [("mine", b"kept"), ("vernier-replay-of", f"{topic}/0/1".encode())]
    # What was passed over is still to be dealt with.
    assert run(["dlq", "replay", source, *where]) == 0
    assert capsys.readouterr().out == "sent 1 dead letters again, skipped 0\n"
    assert run(["dlq", "replay", source, *where]) == 0
    assert capsys.readouterr().out == "sent 0 dead letters again, skipped 0\n"
    assert run(["dlq", "replay", source, "--again", *where]) == 0
    assert capsys.readouterr().out == "sent 2 dead letters again, skipped 0\n"
    sent = [record.value for record in committed(broker.bootstrap, topic)]
    assert sorted(sent) == [b"letter 0", b"letter 0", b"letter 1", b"letter 1"]


def test_an_unknown_source_has_no_letters(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dlq", "list", "absent", "--bootstrap", broker.bootstrap]) == 1
    assert f"cannot read dead letters from {broker.bootstrap}: there is no topic absent.dlq" in capsys.readouterr().err
