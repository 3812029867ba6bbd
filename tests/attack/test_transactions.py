"""What is committed is all there: also when records expire while the broker is away, and the client does not mind."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata

from tests.attack import numbers
from tests.attack.numbers import Numbers, attack, bare
from tests.crash.machines import DiskMachine
from tests.crash.simservice import Log, SimService
from tests.service.test_dead_letter_sender import LETTERS, commit, received
from tests.service.test_dead_letter_sender import service as letters_service
from tests.sinks.test_publisher import state
from tests.sinks.topic import changes, committed, publish, settings
from vernier.service.coordinator.dead_letter_sender import DeadLetterSender
from vernier.service.errors import DeadLettersNotSent
from vernier.service.kafka.clients import Producer
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.transactions import Fenced, Transactions
from vernier.service.sinks.publisher import Publisher
from vernier.service.status import publisher as publisher_status
from vernier.storage.state.state import StateDirectory


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of this file alone, which may be killed; it is running when a test begins."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


class Expiring:
    """A producer one of whose records expires: it is not sent, its future fails, everything else goes on."""

    def __init__(self, at: int) -> None:
        self.at, self.sent = at, 0
        self.made: list[KafkaProducer] = []

    def __call__(self, **about: Any) -> Any:
        self.made.append(Producer(**about))
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made[-1], name)

    def send(self, topic: str, **about: Any) -> Any:
        self.sent += 1
        if self.sent == self.at:
            result = FutureProduceResult(TopicPartition(topic, 0))
            return FutureRecordMetadata(result, -1, None, None, -1, -1, -1).failure(KafkaTimeoutError("expired"))
        return self.made[-1].send(topic, **about)


@pytest.mark.broker
def test_the_clients_own_commit_succeeds_without_a_record(broker: EmbeddedBroker) -> None:
    """Why a commit of ours looks at every future first. If this fails, the client has changed for the better."""
    broker.create_topics({"bare": 1})
    producer = bare(broker, "bare")
    try:
        producer.begin_transaction()
        producer.send("bare", value=b"one").get(30)
        broker.kill()
        lost = producer.send("bare", value=b"two")
        with pytest.raises(KafkaError):
            lost.get(30)
        broker.start()
        producer.commit_transaction()
    finally:
        broker.start()
        producer.close(timeout=1)
    assert [record.value for record in committed(broker.bootstrap, "bare")] == [b"one"]


@pytest.mark.broker
def test_a_transaction_with_an_expired_record_is_not_committed(broker: EmbeddedBroker) -> None:
    broker.create_topics({"whole": 1})
    client = {"bootstrap_servers": broker.bootstrap}
    records = [{"topic": "whole", "value": str(n).encode()} for n in range(3)]
    for at in (1, 2, 3):
        transactions = Transactions(client, "whole", Expiring(at))
        transactions.open()
        with pytest.raises(KafkaTimeoutError, match="expired"):
            transactions.commit(records)
        assert not transactions.is_open
    transactions = Transactions(client, "whole")
    transactions.open()
    transactions.commit(records)
    transactions.close()
    assert [record.value for record in committed(broker.bootstrap, "whole")] == [b"0", b"1", b"2"]


@pytest.mark.broker
def test_a_second_producer_of_the_name_fences_the_first(broker: EmbeddedBroker) -> None:
    broker.create_topics({"fenced": 1})
    one, two = (Transactions({"bootstrap_servers": broker.bootstrap}, "fenced") for _ in range(2))
    one.open()
    two.open()
    with pytest.raises(Fenced, match="another producer has taken over the name fenced"):
        one.commit([{"topic": "fenced", "value": b"one"}])
    two.commit([{"topic": "fenced", "value": b"two"}])
    two.close()
    assert [record.value for record in committed(broker.bootstrap, "fenced")] == [b"two"]


@pytest.mark.broker
def test_a_producer_that_is_fenced_between_two_records_says_so(broker: EmbeddedBroker) -> None:
    """The client then refuses the second record with an error of its own, which holds the cause."""
    broker.create_topics({"between": 1})
    client = {"bootstrap_servers": broker.bootstrap}

    class Slow(Producer):
        """A producer that sends a record when the one before it has its answer."""

        def send(self, topic: str, **about: Any) -> Any:
            before = getattr(self, "before", None)
            while before is not None and not before.is_done:
                threading.Event().wait(0.01)
            self.before = super().send(topic, **about)
            return self.before

    one, two = Transactions(client, "between", Slow), Transactions(client, "between")
    one.open()
    two.open()
    with pytest.raises(Fenced, match="another producer has taken over the name between"):
        one.commit({"topic": "between", "value": str(n).encode()} for n in range(2))
    two.close()
    assert not committed(broker.bootstrap, "between")


@pytest.mark.broker
def test_a_transaction_that_the_broker_aborts_as_too_old_is_no_other_producer(broker: EmbeddedBroker) -> None:
    broker.create_topics({"old": 1})
    client = {"bootstrap_servers": broker.bootstrap}
    one = Transactions(client, "old", transaction_timeout_ms=1)
    one.open()

    def records() -> Iterator[dict[str, Any]]:
        yield {"topic": "old", "value": b"one", "partition": 0}
        two = Transactions(client, "old")  # the broker's abort looks as this does
        two.open()
        two.close()

    with pytest.raises(KafkaTimeoutError, match="aborted a transaction that was open for"):
        one.commit(records())
    one.open()
    one.commit([{"topic": "old", "value": b"two"}])
    one.close()
    assert [record.value for record in committed(broker.bootstrap, "old")] == [b"two"]


@pytest.mark.broker
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_output_topic_lacks_nothing_when_records_expire(broker: EmbeddedBroker, tmp_path: Path, at: int) -> None:
    chance, app = random.Random(at), f"expire-{at}"
    builder = state(tmp_path / "state", app)
    given = settings(broker, builder.path)
    builder.grow(chance)
    publisher = Publisher(given, StateDirectory(given.state.place), Expiring(at))
    with pytest.raises(KafkaTimeoutError, match="expired"):
        publisher.turn()
    builder.grow(chance)
    publisher.close()
    assert publish(given) > 0
    builder.close()
    assert changes(committed(broker.bootstrap, f"{app}.reach")) == builder.truth()
    found = publisher_status.read(StateDirectory(builder.path).blob)
    assert found is not None
    assert found.sinks["reach"].frontier == builder.frontier


@pytest.mark.broker
@pytest.mark.parametrize("at", [1, 2])
def test_a_dead_letter_that_expires_is_sent_before_the_next_epoch(
    broker: EmbeddedBroker, tmp_path: Path, at: int
) -> None:
    app = f"letters-{at}"
    given = letters_service(broker, app)
    before = len(received(broker, "edges.dlq"))
    with StateDirectory(tmp_path / "state") as directory:
        letters = DeadLetterSender(given, app, directory, Expiring(at))
        with pytest.raises(DeadLettersNotSent, match="expired"):
            letters.send(commit(directory, 1, LETTERS[1:3]))
        letters.settle()
        letters.settle()
        letters.send(commit(directory, 2, LETTERS[2:3]))
        letters.close()
    assert [value for _, value, _ in received(broker, "edges.dlq")[before:]] == [LETTERS[1].value, None, None]


def test_no_epoch_is_made_before_the_letters_of_the_last_one_are_out() -> None:
    log = Log()
    service = SimService(DiskMachine(1), log, 1, "letters")
    log.partitions[0] += [b"{", b"["]
    log.refusals = 2
    with pytest.raises(DeadLettersNotSent):
        service.epoch([1, 0])
    service.requery()
    with pytest.raises(DeadLettersNotSent):
        service.epoch([1, 0])
    assert service.epochs.start.epoch == 2
    service.epoch([1, 0])
    assert log.letters == [(0, 0), (0, 1)]


@pytest.mark.broker
def test_close_ends_a_producer_that_cannot_send(broker: EmbeddedBroker) -> None:
    broker.create_topics({"closed": 1})
    producer = Producer(bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=True)
    try:
        producer.send("closed", value=b"one").get(30)
        broker.kill()
        late = producer.send("closed", value=b"two")
        producer.close(timeout=0)
        with pytest.raises(KafkaError):
            late.get(60)
    finally:
        broker.start()
    assert [record.value for record in committed(broker.bootstrap, "closed")] == [b"one"]


def hold(broker: EmbeddedBroker, topic: str, times: int) -> None:
    """Each number is there once, whatever happens to the broker."""
    numbers.prepare(broker, topic)
    with Numbers(broker.bootstrap, topic) as producer:
        done = attack(broker, producer, times, random.Random(times))
    found = numbers.read(broker, topic)
    print(f"{dict(done)}: {len(found)} records in {producer.commits} transactions, {len(producer.failures)} failures")
    assert producer.broken is None
    assert not any("Fenced" in failure for failure in producer.failures)
    assert [number for number, count in found.items() if count != 1] == []
    assert sorted(found) == list(range(len(found)))
    assert len(found) >= numbers.RECORDS * producer.commits
    assert producer.failures, "no fault was felt"


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_record_once_under_ten_faults(broker: EmbeddedBroker) -> None:
    hold(broker, "ten", 10)


@pytest.mark.broker
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_each_record_once_under_a_hundred_faults(broker: EmbeddedBroker) -> None:
    hold(broker, "hundred", 100)
