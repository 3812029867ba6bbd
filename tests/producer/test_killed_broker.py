"""A broker that dies twenty times while a producer sends: for readers of committed messages, each row is there once."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import vernier as vn
from tests.background import PATIENCE, Background
from tests.producer.fake import Edge
from tests.sinks.topic import committed
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.storage.updates import CLOSED

KILLS = 20
PARTITIONS = 3


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of this file alone."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


class Sending(Background):
    """Sends numbered rows in a thread, each at its own time, until it is stopped."""

    def __init__(self, producer: Any) -> None:
        self.producer, self.sent = producer, 0
        self.error: BaseException | None = None
        self.begin_in("sending")

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.producer.send((self.sent, self.sent % 7), 1_000 * self.sent)
                self.sent += 1
                if self.sent % 8 == 0:
                    self._stop.wait(0.004)  # so that reading it all back takes seconds
        except BaseException as error:
            self.error = error

    def until_acknowledged(self, position: int) -> None:
        """Wait until the topic has this many rows."""
        end = threading.Event()
        for _ in range(int(PATIENCE / 0.01)):
            if self.error is not None:
                raise AssertionError("the producer has ended") from self.error
            if self.producer.position >= position:
                return
            end.wait(0.01)
        raise AssertionError(f"{self.producer.position} rows of {position} after {PATIENCE:g} s")


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("transactional", "policy"), [(True, vn.records(64)), (False, "100us")], ids=["transactional", "idempotent"]
)
def test_nothing_is_lost_or_twice(mortal: EmbeddedBroker, transactional: bool, policy: Any) -> None:
    topic = f"mortal-{'transactions' if transactional else 'idempotent'}-{policy if isinstance(policy, str) else 'n'}"
    mortal.create_topics({topic: PARTITIONS})
    chance = random.Random(topic)
    producer = vn.Producer(
        topic, Edge, bootstrap=mortal.bootstrap, policy=policy, clock="rows", transactional=transactional
    )
    try:
        with Sending(producer) as sending:
            for _ in range(KILLS):
                sending.until_acknowledged(producer.position + chance.randrange(1, 400))
                mortal.kill()
                mortal.start()
            sending.until_acknowledged(producer.position + 1)
        assert sending.error is None
        producer.close(PATIENCE, complete=True)
    finally:
        if not mortal.running:
            mortal.start()
        producer._outbox.close()
    log = committed(mortal.bootstrap, topic)
    found: Counter[int] = Counter()
    uppers = dict.fromkeys(range(PARTITIONS), -1)
    for record in log:
        message = json.loads(record.value)
        if "p" in message:
            upper = int(message["p"]["upper"][0]) if message["p"]["upper"] else CLOSED
            assert upper >= uppers[record.partition]
            uppers[record.partition] = upper
            continue
        for row, time, diff in message["u"]:
            assert (int(time), diff) == (1_000 * row[0], 1)
            assert int(time) >= max(uppers[record.partition], int(message["t"]))
            found[row[0]] += 1
    assert [number for number, count in found.items() if count != 1] == []
    assert sorted(found) == list(range(sending.sent))
    assert set(uppers.values()) == {CLOSED}
    print(f"{topic}: {sending.sent} rows in {len(log)} messages, each once, over {KILLS} kills")
