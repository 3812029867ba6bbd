"""Dead letters: stored with their epoch, sent in one transaction, each once whatever dies in between."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import CoordinatorNotAvailableError

from tests.sinks.topic import committed
from vernier.operators.language.collection.app import App
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import Schema
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.shard import Shard, read_dead_letters, store
from vernier.service.config.settings import Settings, heartbeat_topic, load
from vernier.service.coordinator.dead_letter_sender import DeadLetterSender
from vernier.service.ingest.rejects import DeadLetter
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics
from vernier.storage.state.manifest import Manifest, ViewEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME

LETTERS = [
    DeadLetter("decode", "no JSON: é", "graph", 1, 7, MIN_TIME, None, b"\x00key", b"{", (("h", b"\xff"), ("n", None))),
    DeadLetter("late", "1 of 1", "graph", 0, 8, 5, "edges", None, bytes(range(256)) * 400, ()),
    DeadLetter("schema", "null", "graph", 0, 9, 5, "edges", None, None, ()),
]


class _Row(Schema):
    x: Int64


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDirectory]:
    """An owned, empty state directory."""
    with StateDirectory(tmp_path / "state") as owned:
        yield owned


def commit(
    state: StateDirectory, epoch: int, letters: list[DeadLetter], began: int = 0, topics: dict[str, str] | None = None
) -> Manifest:
    """An epoch that has nothing but dead letters. began: the epoch that made the state anew last. topics: their ids."""
    app = App("letters")
    app.view("rows", app.source("edges", _Row), key="x")
    plan = compile_app(app)
    shard = Shard.empty(plan, 0)
    shard.epoch, shard.attempt = epoch, "a"
    stored = store(state, plan, shard, (0, 1), {}, letters)
    manifest = Manifest(
        epoch=epoch, attempt="a", lower=0, upper=1, committed_ns=1, workers=1, app="letters", program="p",
        dead=[stored.dead] if stored.dead else [], views={"rows": ViewEntry([], [], "rows", 0, began)},
        topics=topics or {},
    )  # fmt: skip
    state.commit(manifest)
    return manifest


def received(broker: EmbeddedBroker, topic: str) -> list[tuple[bytes | None, bytes | None, dict[str, bytes | None]]]:
    """What readers of committed messages see in a topic."""
    return [(one.key, one.value, dict(one.headers)) for one in committed(broker.bootstrap, topic)]


def service(broker: EmbeddedBroker, app: str) -> Settings:
    """Settings of an app whose topics exist."""
    create_topics(broker.bootstrap, {heartbeat_topic(app): 1, "edges.dlq": 1, "graph.dlq": 1})
    return load(None, {"kafka.bootstrap": broker.bootstrap}, {}).settings


def test_they_are_stored_whole(state: StateDirectory) -> None:
    manifest = commit(state, 1, LETTERS)
    (ref,) = manifest.dead
    entry = state.open(ref.segment).entry(ref.label)
    assert read_dead_letters(entry) == LETTERS
    assert ref.updates == len(LETTERS)
    assert entry.meta["letters"][1]["bytes"] == len(LETTERS[1].value or b"")
    assert commit(state, 2, []).dead == []


@pytest.mark.broker
def test_each_arrives_once_with_its_reason(broker: EmbeddedBroker, state: StateDirectory) -> None:
    settings = service(broker, "once")
    before = {topic: len(received(broker, topic)) for topic in ("edges.dlq", "graph.dlq")}
    letters = DeadLetterSender(settings, "once", state)
    letters.recover(None)
    first = commit(state, 1, LETTERS)
    assert letters.send(first) == len(LETTERS)
    letters.close()
    # The next start finds that they are out.
    again = DeadLetterSender(settings, "once", state)
    again.recover(first)
    again.close()
    edges, graph = (received(broker, topic)[before[topic] :] for topic in ("edges.dlq", "graph.dlq"))
    assert [(key, value) for key, value, _ in edges] == [(None, LETTERS[1].value), (None, None)]
    ((key, value, headers),) = graph
    assert (key, value, headers["h"], headers["n"]) == (b"\x00key", b"{", b"\xff", b"")
    ours = {"vernier-reason": b"decode", "vernier-topic": b"graph", "vernier-partition": b"1", "vernier-offset": b"7"}
    assert {name: headers[name] for name in ours} == ours
    assert headers["vernier-detail"] == "no JSON: é".encode()


@pytest.mark.broker
def test_a_service_that_died_before_or_while_sending(broker: EmbeddedBroker, state: StateDirectory) -> None:
    settings = service(broker, "died")
    before = len(received(broker, "edges.dlq"))
    first = commit(state, 1, LETTERS[1:2])
    # It died in the middle of its transaction: the producer sends nothing more.
    dying = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="died.dead-letters", acks="all")
    dying.init_transactions()
    dying.begin_transaction()
    dying.send("edges.dlq", value=b"never committed").get(30)
    try:
        letters = DeadLetterSender(settings, "died", state)
        letters.recover(first)
        assert [value for _, value, _ in received(broker, "edges.dlq")[before:]] == [LETTERS[1].value]
        second = commit(state, 2, LETTERS[2:])
        letters.send(second)
        letters.close()
        # A start has a producer of its own, which waits until the transaction before has ended everywhere.
        letters = DeadLetterSender(settings, "died", state)
        letters.recover(second)
        letters.close()
        assert [value for _, value, _ in received(broker, "edges.dlq")[before:]] == [LETTERS[1].value, None]
    finally:
        dying.close(timeout=1)


@pytest.mark.broker
def test_a_cluster_that_has_no_offsets_yet_is_asked_again(
    broker: EmbeddedBroker, state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answer(self: KafkaAdminClient, groups: dict[str, list[TopicPartition]]) -> dict[str, Any]:
        asked.append(groups)
        if len(asked) < 3:
            raise CoordinatorNotAvailableError
        return {}

    monkeypatch.setattr(KafkaAdminClient, "list_group_offsets", answer)
    letters = DeadLetterSender(service(broker, "new"), "new", state)
    letters.recover(commit(state, 1, LETTERS[1:2]))
    letters.close()
    assert len(asked) == 3
