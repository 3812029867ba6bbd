"""A letter is dealt with once: after a rebuild, when it is refused again, and when a replay dies in the middle."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from tests.service.test_dead_letter_sender import commit
from tests.sinks.topic import committed
from vernier.service.cli.main import run
from vernier.service.config.settings import heartbeat_topic, load
from vernier.service.coordinator.dead_letter_sender import DeadLetterSender
from vernier.service.ingest.rejects import DeadLetter
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.transactions import Transactions
from vernier.service.views.recent_dead_letters import RecentDeadLetters
from vernier.storage.state.state import StateDirectory

_NUMBER = itertools.count()


class Topic:
    """A source's topic and its dead letters, and what the command line says of them."""

    def __init__(self, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker, self._capsys = broker, capsys
        self.name = f"dead-{next(_NUMBER)}"
        broker.create_topics({self.name: 2, f"{self.name}.dlq": 2})

    def refuse(self, *places: tuple[int, int], reason: str = "decode", headers: Sequence[Any] = ()) -> None:
        """Letters as a service writes them, of messages at (partition, offset)."""
        producer = KafkaProducer(bootstrap_servers=self.broker.bootstrap, acks="all")
        for partition, offset in places:
            letter = DeadLetter(
                reason, "why", self.name, partition, offset, 0, self.name, None, f"{offset}".encode(), tuple(headers)
            )  # type: ignore[arg-type]
            producer.send(letter.dlq_topic, value=letter.value, headers=letter.kafka_headers()).get(30)
        producer.close()

    def dlq(self, *words: str) -> str:
        """What a `dlq` command prints."""
        assert run(["dlq", *words, "--set", f"kafka.bootstrap={self.broker.bootstrap}"]) == 0
        return self._capsys.readouterr().out

    def listed(self, *words: str) -> list[tuple[str, int, str]]:
        """Reason, offset of the message and state of the letters that are listed."""
        lines = map(json.loads, self.dlq("list", self.name, "--format", "json", *words).splitlines())
        return sorted(((line["reason"], int(line["offset"]), line["state"]) for line in lines), key=lambda one: one[1])

    def sent(self) -> list[str]:
        """The values that were sent again."""
        return [record.value.decode() for record in committed(self.broker.bootstrap, self.name)]


@pytest.fixture
def topic(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Topic:
    """A topic of this test alone."""
    return Topic(broker, capsys)


@pytest.mark.broker
def test_a_letter_that_a_rebuild_doubles_is_listed_and_sent_once(topic: Topic) -> None:
    topic.refuse((0, 7), (1, 8))
    topic.refuse((0, 7), (1, 8))
    assert topic.listed() == [("decode", 7, "open"), ("decode", 8, "open")]
    assert sorted(state for _, _, state in topic.listed("--all")) == ["open", "open", "replaced", "replaced"]
    assert topic.dlq("replay", topic.name) == "sent 2 dead letters again, skipped 0\n"
    assert sorted(topic.sent()) == ["7", "8"]
    # Made again once more: the messages that were sent again are in the topic, too, so nothing is open.
    topic.refuse((0, 7), (1, 8))
    assert topic.listed() == []
    assert topic.dlq("replay", topic.name) == "sent 0 dead letters again, skipped 0\n"
    assert topic.dlq("replay", topic.name, "--again") == "sent 2 dead letters again, skipped 0\n"


@pytest.mark.broker
def test_a_letter_that_is_refused_again_takes_the_place_of_the_one_before(topic: Topic) -> None:
    topic.refuse((0, 7))
    topic.dlq("replay", topic.name)
    (again,) = committed(topic.broker.bootstrap, topic.name)
    topic.refuse((again.partition, 31), reason="late", headers=again.headers)
    assert topic.listed() == [("late", 31, "open")]
    assert topic.dlq("replay", topic.name) == "sent 1 dead letters again, skipped 0\n"
    assert topic.listed() == []
    # A rebuild refuses both again, and then a third: one message, whatever it is called.
    topic.refuse((0, 7))
    topic.refuse((again.partition, 31), reason="late", headers=again.headers)
    assert topic.listed() == []
    newest = committed(topic.broker.bootstrap, topic.name)[-1]
    assert dict(newest.headers)["vernier-replay-of"] == f"{topic.name}/0/7".encode()
    topic.refuse((newest.partition, 40), reason="schema", headers=newest.headers)
    assert topic.listed() == [("schema", 40, "open")]
    assert topic.dlq("replay", topic.name, "--reason", "late") == "sent 0 dead letters again, skipped 1\n"


@pytest.mark.broker
def test_what_is_dropped_is_gone_for_good(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    topic.refuse((0, 1), (0, 2))
    topic.refuse((0, 3), reason="late")
    (place,) = [line.split()[0] for line in topic.dlq("list", topic.name).splitlines() if " 2 " in line]
    assert topic.dlq("drop", topic.name, "--letter", place) == "dropped 1 dead letters, skipped 2\n"
    assert topic.dlq("drop", topic.name, "--reason", "late") == "dropped 1 dead letters, skipped 1\n"
    topic.refuse((0, 2))
    assert topic.listed() == [("decode", 1, "open")]
    assert topic.dlq("replay", topic.name) == "sent 1 dead letters again, skipped 0\n"
    assert topic.sent() == ["1"]
    where = ["--set", f"kafka.bootstrap={topic.broker.bootstrap}"]
    assert run(["dlq", "drop", topic.name, *where]) == 2
    assert "give one of --letter, --reason or --all" in capsys.readouterr().err
    assert run(["dlq", "drop", topic.name, "--letter", place, *where]) == 1
    assert f"there is no open dead letter {place}" in capsys.readouterr().err


@pytest.mark.broker
def test_a_replay_that_dies_sends_nothing_twice(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic.refuse((0, 1), (0, 2), (1, 3))

    def dies(*_: object) -> None:
        raise KafkaTimeoutError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(Transactions, "_wait", dies)
        assert run(["dlq", "replay", topic.name, "--bootstrap", topic.broker.bootstrap]) == 1
    assert topic.dlq("replay", topic.name) == "sent 3 dead letters again, skipped 0\n"
    assert sorted(topic.sent()) == ["1", "2", "3"]


@pytest.mark.broker
def test_headers_of_another_vernier_stay(topic: Topic) -> None:
    topic.refuse((0, 1), headers=[("vernier-kind", b"updates"), ("mine", b"x")])
    topic.dlq("replay", topic.name)
    (record,) = committed(topic.broker.bootstrap, topic.name)
    assert record.headers[:2] == [("vernier-kind", b"updates"), ("mine", b"x")]


@pytest.mark.broker
def test_letters_from_before_a_rebuild_count_no_more(topic: Topic, tmp_path: Path) -> None:
    settings = load(None, {"kafka.bootstrap": topic.broker.bootstrap}, {}).settings
    places = [(app, offset) for app in ("one", "other") for offset in (1, 2)]
    for app in ("one", "other"):
        topic.broker.create_topics({heartbeat_topic(f"{topic.name}-{app}"): 1})
        with StateDirectory(tmp_path / app) as state:
            letters = DeadLetterSender(settings, f"{topic.name}-{app}", state)
            for epoch, (_, offset) in enumerate(one for one in places if one[0] == app):
                number = offset if app == "one" else offset + 10
                letter = DeadLetter("decode", "", topic.name, 0, number, 0, topic.name, None, b"x", ())
                letters.send(commit(state, epoch + 1, [letter]))
            letters.close()
    assert sorted(offset for _, offset, _ in topic.listed()) == [1, 2, 11, 12]
    # The first one is made anew: this time message 1 enters.
    with StateDirectory(tmp_path / "one") as state:
        letters = DeadLetterSender(settings, f"{topic.name}-one", state)
        letters.anew = True
        assert letters.send(commit(state, 3, [])) == 0
        letter = DeadLetter("decode", "", topic.name, 0, 2, 0, topic.name, None, b"x", ())
        letters.send(commit(state, 4, [letter]))
        letters.close()
    assert sorted(offset for _, offset, _ in topic.listed()) == [2, 11, 12]
    assert topic.dlq("replay", topic.name) == "sent 3 dead letters again, skipped 0\n"


@pytest.mark.broker
@pytest.mark.parametrize("dies", ["before the mark", "before the letters", "after both"])
def test_a_death_behind_the_first_commit_of_a_rebuild_keeps_the_mark(topic: Topic, tmp_path: Path, dies: str) -> None:
    app = f"{topic.name}-app"
    settings = load(None, {"kafka.bootstrap": topic.broker.bootstrap}, {}).settings
    topic.broker.create_topics({heartbeat_topic(app): 1})
    letter = DeadLetter("decode", "", topic.name, 0, 2, 0, topic.name, None, b"x", ())
    with StateDirectory(tmp_path) as state:
        letters = DeadLetterSender(settings, app, state)
        letters.send(commit(state, 1, [replace(letter, offset=1), letter]))
        # The rebuild's first epoch: message 1 enters, message 2 is refused again.
        newest = commit(state, 2, [letter], began=2)
        letters.anew = True
        if dies == "before the letters":
            letters._begin_anew(newest.epoch)
        elif dies == "after both":
            letters.send(newest)
        letters.close()
        for _ in range(2):
            again = DeadLetterSender(settings, app, state)
            again.recover(newest)
            again.close()
            assert topic.listed() == [("decode", 2, "open")]
        again = DeadLetterSender(settings, app, state)
        again.recover(newest)
        again.send(commit(state, 3, [replace(letter, offset=3)]))
        again.close()
    assert topic.listed() == [("decode", 2, "open"), ("decode", 3, "open")]
    assert len(topic.listed("--all")) == 4


@pytest.mark.broker
def test_letters_of_a_topic_that_was_created_again_are_others(topic: Topic, tmp_path: Path) -> None:
    app = f"{topic.name}-app"
    settings = load(None, {"kafka.bootstrap": topic.broker.bootstrap}, {}).settings
    topic.broker.create_topics({heartbeat_topic(app): 1})
    letter = DeadLetter("decode", "", topic.name, 0, 1, 0, topic.name, None, b"old", ())
    with StateDirectory(tmp_path) as state:
        letters = DeadLetterSender(settings, app, state)
        old = {topic.name: "id-one"}
        letters.send(commit(state, 1, [replace(letter, offset=one) for one in (1, 2, 3)], topics=old))
        lines = map(json.loads, topic.dlq("list", topic.name, "--format", "json").splitlines())
        places = {line["offset"]: f"{line['dlq']}/{line['dlq_partition']}/{line['dlq_offset']}" for line in lines}
        assert topic.dlq("drop", topic.name, "--letter", places["1"]) == "dropped 1 dead letters, skipped 2\n"
        assert topic.dlq("replay", topic.name, "--letter", places["2"]) == "sent 1 dead letters again, skipped 1\n"
        new = {topic.name: "id-two"}
        letters.send(commit(state, 2, [replace(letter, offset=one, value=b"new") for one in (1, 2, 3)], topics=new))
        letters.close()
    assert topic.listed() == [
        ("decode", 1, "open"),
        ("decode", 2, "open"),
        ("decode", 3, "open"),
        ("decode", 3, "open"),
    ]
    assert topic.dlq("replay", topic.name) == "sent 4 dead letters again, skipped 0\n"
    assert sorted(topic.sent()) == ["new", "new", "new", "old", "old"]
    again = committed(topic.broker.bootstrap, topic.name)
    assert {dict(one.headers)["vernier-replay-of"] for one in again} == {
        f"{topic.name}/0/{offset}/{topic_id}".encode()
        for offset, topic_id in [(2, "id-one"), (3, "id-one"), (1, "id-two"), (2, "id-two"), (3, "id-two")]
    }


def test_the_newest_letters_are_one_for_each_message() -> None:
    letters = RecentDeadLetters()
    first = {"topic": "t", "partition": 0, "offset": 7, "headers": [], "value": "x" * 100}
    letters.add(1, [first, first | {"offset": 8}])
    letters.add(2, [first | {"reason": "late"}])
    header = ["vernier-replay-of", base64.b64encode(b"t/0/8/id").decode()]
    letters.add(3, [first | {"offset": 90, "headers": [["mine", None], header]}])
    assert [(one["epoch"], one["offset"]) for one in letters.newest(9)] == [(3, 90), (2, 7)]
