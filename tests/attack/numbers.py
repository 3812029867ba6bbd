"""A producer of numbered records in transactions, a broker that is killed and stopped meanwhile, and who reads it."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.background import PATIENCE, Background
from tests.sinks.topic import committed
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.transactions import Transactions

PARTITIONS = 3
RECORDS = 40
"""Records of a transaction."""


@dataclass
class Numbers(Background):
    """Writes 0, 1, 2, … to `topic`, some in each transaction, and with them how far it is. In a thread of its own."""

    bootstrap: str
    topic: str
    commits: int = 0
    failures: list[str] = field(default_factory=list)
    broken: BaseException | None = None
    began: float = 0.0
    """When the transaction under way began; 0 between two."""

    def __post_init__(self) -> None:
        self.halt, self.halted = threading.Event(), threading.Event()
        """A long transaction: while `halt` is set, one waits when half of it is sent, and sets `halted`."""
        self.begin_in("numbers")

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for a condition, as long as the producer lives."""
        deadline = time.monotonic() + PATIENCE
        while not what():
            if self.broken is not None:
                raise AssertionError("the producer has ended") from self.broken
            assert time.monotonic() < deadline, f"{self.commits} commits, {self.failures[-3:]}"
            self._stop.wait(0.02)

    def _records(self, following: int) -> Iterator[dict[str, Any]]:
        for number, record in enumerate(records(self.topic, following)):
            if number == RECORDS // 2 and self.halt.is_set():
                self.halted.set()
                while self.halt.is_set() and not self._stop.is_set():
                    self._stop.wait(0.02)
                self.halted.clear()
            yield record

    def _run(self) -> None:
        client = {"bootstrap_servers": self.bootstrap}
        short = {"bootstrap_timeout_ms": 2_000, "max_block_ms": 5_000, "linger_ms": 2}
        transactions = Transactions(client, f"{self.topic}.numbers", delivery_ms=2_000, request_ms=1_000, **short)
        following = 0
        try:
            while not self._stop.is_set():
                try:
                    if not transactions.is_open:
                        transactions.open()
                        following = position(self.bootstrap, self.topic)
                    self.began = time.monotonic()
                    transactions.commit(self._records(following))
                    following += RECORDS
                    self.commits += 1
                except (KafkaError, AssertionError) as error:
                    self.failures.append(f"{type(error).__name__}: {error}")
                finally:
                    self.began = 0.0
        except BaseException as error:
            self.broken = error
        finally:
            transactions.close()


def records(topic: str, following: int) -> list[dict[str, Any]]:
    """A transaction's records: numbers over all partitions, and the position behind them."""
    made = [
        {"topic": topic, "value": str(number).encode(), "partition": number % PARTITIONS}
        for number in range(following, following + RECORDS)
    ]
    return [*made, {"topic": f"{topic}.position", "value": str(following + RECORDS).encode(), "partition": 0}]


def prepare(broker: EmbeddedBroker, topic: str) -> None:
    """The topics."""
    broker.create_topics({topic: PARTITIONS, f"{topic}.position": 1})


def position(bootstrap: str, topic: str) -> int:
    """The number behind the last one that is committed."""
    return max((int(record.value) for record in committed(bootstrap, f"{topic}.position")), default=0)


def read(broker: EmbeddedBroker, topic: str) -> Counter[int]:
    """How often a reader of committed messages sees each number."""
    return Counter(int(record.value) for record in committed(broker.bootstrap, topic))


def attack(broker: EmbeddedBroker, numbers: Numbers, times: int, chance: random.Random) -> Counter[str]:
    """Kill and stop the broker so often, at any moment of a transaction. Returns how often each was done."""
    done: Counter[str] = Counter()
    for _ in range(times):
        reached = numbers.commits + chance.randrange(1, 6)
        numbers.until(lambda reached=reached: numbers.commits >= reached)  # type: ignore[misc]
        if chance.random() < 0.7:
            numbers.until(lambda: numbers.began > 0)
        kind = chance.choice(("kill", "stop for long", "stop"))
        done[kind] += 1
        if kind == "kill" and chance.random() < 0.5:
            # In the middle of a transaction: what of it is sent expires, and the rest is sent to the next broker.
            done["of these halfway"] += 1
            numbers.halt.set()
            numbers.until(numbers.halted.is_set)
            broker.kill()
            end = time.monotonic() + 2.5
            numbers.until(lambda end=end: time.monotonic() >= end)  # type: ignore[misc]
            broker.start()
            numbers.halt.clear()
            continue
        if kind == "kill":
            broker.kill()
            if chance.random() < 0.5:
                # Until what was under way has expired.
                failures = len(numbers.failures)
                numbers.until(lambda failures=failures: len(numbers.failures) > failures)  # type: ignore[misc]
            broker.start()
            continue
        process = psutil.Process(broker.pid)
        process.send_signal(signal.SIGSTOP)
        try:
            if kind == "stop for long":
                failures = len(numbers.failures)
                numbers.until(lambda failures=failures: len(numbers.failures) > failures)  # type: ignore[misc]
            else:
                # About as long as the client waits: answers come just before, or just after it has given up.
                end = time.monotonic() + chance.uniform(0.5, 3.0)
                numbers.until(lambda end=end: time.monotonic() >= end)  # type: ignore[misc]
        finally:
            process.send_signal(signal.SIGCONT)
    settled = numbers.commits + 3
    numbers.until(lambda: numbers.commits >= settled)
    return done


def bare(broker: EmbeddedBroker, name: str, **options: Any) -> KafkaProducer:
    """The client's own transactional producer."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        transactional_id=name,
        acks="all",
        delivery_timeout_ms=2_000,
        request_timeout_ms=1_000,
        **options,
    )
    producer.init_transactions()
    return producer
