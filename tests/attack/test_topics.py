"""Topics that change under a running service: created again, with more partitions, without messages not yet read."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from tests.service.conftest import service  # noqa: F401
from tests.service.driven import PATIENCE, Service
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.status import trouble
from vernier.service.status.trouble import STOPPED
from vernier.storage.blob.local_blob import LocalBlob

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    """A client that changes topics."""
    made = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield made
    made.close()


def create_again(admin: KafkaAdminClient, topic: str) -> None:
    """Delete a topic of two partitions and create it again."""
    admin.delete_topics([topic])
    for _ in range(600):
        try:
            admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
            break
        except KafkaError:  # it is being deleted
            threading.Event().wait(0.1)
    admin.wait_for_topics([topic])


def send_many(service: Service, count: int) -> int:  # noqa: F811
    """Pairs in a message each; the frontier behind them."""
    for number in range(count):
        reached = service.send((number % 3, number))
    return reached


def told(folder: Path) -> trouble.Trouble:
    found = trouble.read(LocalBlob(folder / "state"))
    assert found is not None
    return found


def ended(service: Service) -> int:  # noqa: F811
    assert service.process is not None
    return service.process.wait(PATIENCE)


def test_a_topic_created_again_is_noticed_and_read_from_its_beginning_if_wanted(
    service: Service,  # noqa: F811
    admin: KafkaAdminClient,
) -> None:
    service.start()
    service.final(send_many(service, 4))
    epoch, before = service.epoch(), Counter(service.totals)
    # The new topic soon has more messages than were read of the old one, so its offsets tell nothing.
    create_again(admin, service.topic)
    reached = send_many(service, 15)
    assert ended(service) == STOPPED
    found = told(service.folder)
    assert found.stopped
    assert f"topic {service.topic} was deleted and created again" in found.reason
    assert "--rebuild" in found.reason
    assert "sources.pairs.on_new_topic: restart" in found.reason
    # Nothing of the new topic is in the answers; a start says the same.
    service.reader.poll()
    assert service.reader.snapshot is not None
    rows = service.reader.snapshot.views["sums"].rows_as_of(service.frontier() - 1).flat().rows.tolist()
    assert {key: total for key, total, _ in rows} == dict(before)
    assert service.epoch() >= epoch
    service.start()
    assert ended(service) == STOPPED
    assert "driver: topic" in (service.folder / "log").read_text("utf-8")
    # The way out that keeps the state: every message of the new topic, once, after those of the old one.
    service.start(sources__pairs__on_new_topic="restart")
    service.final(reached)
    service.wait(lambda: trouble.read(LocalBlob(service.folder / "state")) is None)
    service.final(send_many(service, 3))
    # While it runs it goes on with the next one by itself.
    create_again(admin, service.topic)
    service.final(send_many(service, 20))
    assert service.stop() == 0
    # The other way out begins with nothing.
    create_again(admin, service.topic)
    service.totals.clear()
    reached = send_many(service, 5)
    service.start(state__rebuild="true")
    service.final(reached)
    assert service.stop() == 0
    service.start()
    service.final(send_many(service, 2))


def test_partitions_that_are_added_are_read_by_this_query_and_the_next(
    service: Service,  # noqa: F811
    broker: EmbeddedBroker,
    admin: KafkaAdminClient,
) -> None:
    service.start()
    service.final(service.send((1, 10)))
    admin.create_partitions({service.topic: 3})
    admin.wait_for_topics([service.topic])
    service.producer.close()
    service.producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")

    def progress() -> None:
        promise = {"v": 1, "p": {"lower": ["0"], "upper": [str(service.time)]}}
        service.raw(json.dumps(promise).encode(), 2)

    def partitions() -> set[str]:
        service.reader.poll()
        snapshot = service.reader.snapshot
        assert snapshot is not None
        return {str(partition) for partition in snapshot.manifest.sources["pairs"].partitions}

    service.send((2, 5), partition=2)
    progress()
    service.final(service.time)
    service.wait(lambda: partitions() == {"0", "1", "2"})
    # Another query of the same driver, after a failure that has nothing to do with the topic.
    service.wait(service.workers)
    for _ in range(5):
        for worker in service.workers():
            worker.kill()
        reached = service.send((3, 1), partition=2)
        progress()
        service.final(reached)
    log = (service.folder / "log").read_text("utf-8", "replace")
    assert "must specify all TopicPartitions" not in log
    assert service.stop() == 0


def test_messages_that_are_gone_unread_stop_the_service_until_somebody_lets_it_skip_them(
    service: Service,  # noqa: F811
    admin: KafkaAdminClient,
) -> None:
    service.start()
    service.final(service.send((1, 10)))
    assert service.stop() == 0
    before = Counter(service.totals)
    next_offset = 2  # a message and a promise
    send_many(service, 6)
    service.totals = before
    reached = service.send((1, 7))
    service.reader.poll()
    assert service.reader.snapshot is not None
    assert service.reader.snapshot.manifest.offsets[service.topic][0] == next_offset
    end = service.producer.send(service.topic, b'{"v":1,"t":"0","u":[]}', partition=0).get(60).offset
    kept = end - 3  # the last message of a pair, with its promise
    admin.delete_records({TopicPartition(service.topic, 0): kept + 1})
    service.start()
    assert ended(service) == STOPPED
    reason = told(service.folder).reason
    assert f"removed {kept + 1 - next_offset} messages of partition 0 that no epoch has read" in reason
    assert "sources.pairs.on_lost: skip" in reason
    service.start(sources__pairs__on_lost="skip")
    service.final(reached)
    service.reader.poll()
    assert service.reader.snapshot is not None
    numbers = service.reader.snapshot.stats.numbers["source_lost_messages_total"]
    assert numbers == {("pairs",): kept + 1 - next_offset}
    # Counted once.
    assert service.stop() == 0
    service.start()
    service.final(service.send((2, 2)))
    assert service.reader.snapshot.stats.numbers["source_lost_messages_total"] == numbers
