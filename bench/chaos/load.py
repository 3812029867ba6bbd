"""Load: a seeded stream of updates for every source, each in its own format, mixed with hostile messages.

It waits for the brokers' acknowledgement before it promises progress, so none of its updates is ever late. The final
content of the topics is read from there (bench/chaos/topics.py): a message that was sent again after a broker's death
may be there twice, and then it counts twice, for the service and for the truth.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from bench.chaos.poison import hostile
from bench.chaos.sources import COLUMNS, HOSTILE, PARTITIONS, SETTINGS, clicks, partitions, resolved

TICK_SECONDS = 0.25
NODES, LINKS, PEOPLE, ORDERS, PAYMENTS, CLICKS, NOTES = 24, 40, 30, 60, 40, 60, 30
"""How many nodes and persons there are; how many rows of each source exist at once."""
HOSTILE_SECONDS = 20
LONG = "a text that is longer than fifteen bytes, which is to say no word of its own: "
_ACK_SECONDS = 300

Message = tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]]]
"""(topic, partition, key, value, headers)."""


@dataclass(eq=False)
class Load(threading.Thread):
    """Sends until stopped; `finish` promises that nothing follows before `end`."""

    bootstrap: str
    seed: int
    speed: float = 1.0
    foreign: bool = True
    request_ms: int = 30_000
    """How long a broker may take to answer before the load looks for another one."""
    sent: int = 0
    hostile_sent: int = 0
    slowest: float = 0.0
    failure: BaseException | None = None
    end: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    poisoning: threading.Event = field(default_factory=threading.Event)
    """Set it when there is a frontier: before that no update is late."""

    def __post_init__(self) -> None:
        super().__init__(name="load", daemon=True)
        self._chance = random.Random(f"load {self.seed}")
        self._hostile = hostile(random.Random(f"hostile {self.seed}"), self.foreign)
        self._live: dict[str, deque[tuple[Any, ...]]] = {name: deque() for name in SETTINGS}
        self._last = time.time_ns()
        self._ident = 0
        self._producer: KafkaProducer | None = None

    def run(self) -> None:
        """A turn at regular intervals, while the brokers accept messages."""
        following = time.monotonic() + HOSTILE_SECONDS / 4
        try:
            while not self.stopping.wait(TICK_SECONDS / self.speed):
                self._turn()
                if self.poisoning.is_set() and time.monotonic() >= following:
                    self._poison()
                    following += HOSTILE_SECONDS * self._chance.uniform(0.6, 1.2)
            # The last message needs a time, too: later than all others.
            self.end = max(time.time_ns(), self._last) + 1_000_000_000
            self._deliver(self._promises(self.end))
        except BaseException as error:
            self.failure = error
        finally:
            if self._producer is not None:
                self._producer.close(timeout=5)

    def finish(self) -> int:
        """Stop; returns the time before which all sources are final. Raises the error of the sender."""
        self.stopping.set()
        self.join(2 * _ACK_SECONDS)
        if self.failure is not None:
            raise self.failure
        if self.is_alive():
            raise TimeoutError(f"the load did not end within {2 * _ACK_SECONDS} s; do the brokers answer?")
        return self.end

    # --- a turn -------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        begun, now = self._last, max(time.time_ns(), self._last + 1_000)
        messages: list[Message] = []
        spread = iter(sorted(self._chance.sample(range(begun, now), min(64, now - begun))))
        for make in (self._links, self._orders, self._payments, self._clicks, self._notes, self._people):
            make(messages, lambda: next(spread))
        self._deliver(messages)
        self._last = now
        self._deliver(self._promises(now))

    def _promises(self, until: int) -> list[Message]:
        events = [name for name, about in SETTINGS.items() if about["clock"] == "event"]
        return [(name, p, None, resolved(name, until), []) for name in events for p in range(partitions(name))]

    def _replaced(self, source: str, most: int, row: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], int]]:
        """A row is inserted, and the oldest one is deleted when there are more than the bound."""
        live = self._live[source]
        live.append(row)
        return [(row, 1)] + ([(live.popleft(), -1)] if len(live) > most else [])

    def _links(self, messages: list[Message], at: Callable[[], int]) -> None:
        for partition in range(PARTITIONS):
            updates = []
            for _ in range(self._chance.randrange(3)):
                link = (self._chance.randrange(NODES), self._chance.randrange(NODES))
                updates += [[list(row), str(at()), diff] for row, diff in self._replaced("links", LINKS, link)]
            if updates:
                value = json.dumps({"v": 1, "t": updates[0][1], "u": updates})
                messages.append(("links", partition, None, value.encode(), []))

    def _orders(self, messages: list[Message], at: Callable[[], int]) -> None:
        self._ident += 1
        person = self._chance.choice((None, *range(PEOPLE)))
        row = (self._ident, person, self._text("item", 20), self._amount())
        for order, diff in self._replaced("orders", ORDERS, row):
            said = {"data": order, "time": str(at()), "diff": diff}
            messages.append(("orders", order[0] % PARTITIONS, None, json.dumps(said).encode(), []))

    def _payments(self, messages: list[Message], at: Callable[[], int]) -> None:
        def send(op: str, before: tuple[Any, ...] | None, after: tuple[Any, ...] | None) -> None:
            names = COLUMNS["payments"]
            sides = [None if row is None else dict(zip(names, row)) for row in (before, after)]
            said = {"before": sides[0], "after": sides[1], "op": op, "source": {"ts_ns": at()}}
            messages.append(("payments", 0, None, json.dumps(said).encode(), []))

        live, orders = self._live["payments"], self._live["orders"]
        for number in (-1, 0):
            if self._chance.random() < 0.4:
                row = (self._ident * 2 + number, self._chance.choice(orders)[0], self._text("method", 4))
                live.append(row)
                send("c", None, row)
        if live and self._chance.random() < 0.2:
            place = self._chance.randrange(len(live))
            before = live[place]
            live[place] = (before[0], before[1], self._text("method", 4))
            send("u", before, live[place])
        if len(live) > PAYMENTS:
            send("d", live.popleft(), None)

    def _clicks(self, messages: list[Message], at: Callable[[], int]) -> None:
        for partition in range(PARTITIONS):
            updates = []
            for _ in range(self._chance.randrange(2)):
                row = (self._chance.randrange(PEOPLE), self._text("page", 8), at())
                updates += self._replaced("clicks", CLICKS, row)
            if updates:
                messages.append(("clicks", partition, None, clicks(updates), []))

    def _notes(self, messages: list[Message], at: Callable[[], int]) -> None:
        if self._chance.random() < 0.5:
            row = (self._chance.randrange(PEOPLE), self._text("page", 8), self._chance.randrange(6))
            named = [
                {"insert" if diff > 0 else "delete": dict(zip(COLUMNS["notes"], row))}
                for row, diff in self._replaced("notes", NOTES, row)
            ]
            messages.append(("notes", self._chance.randrange(PARTITIONS), None, json.dumps(named).encode(), []))

    def _people(self, messages: list[Message], at: Callable[[], int]) -> None:
        if self._chance.random() < 0.6:
            ident = self._chance.randrange(PEOPLE)
            key = json.dumps({"id": ident}).encode()
            row = {"name": self._text("name", 12), "city": self._text("city", 6)}
            value = None if self._chance.random() < 0.15 else json.dumps(row).encode()
            messages.append(("people", ident % PARTITIONS, key, value, []))

    def _text(self, what: str, different: int) -> str | None:
        """Nothing, nearly nothing, a word, or a long one; one of `different` texts."""
        number = self._chance.randrange(different)
        return (None, "", f"{what} {number}")[self._chance.randrange(3)] if number < 3 else f"{LONG}{what} {number}"

    def _amount(self) -> str | None:
        cents = self._chance.randrange(-50, 20_000)
        sign = "-" if cents < 0 else ""
        return None if self._chance.random() < 0.1 else f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02}"

    def _poison(self) -> None:
        message = next(self._hostile)
        partition = self._chance.randrange(partitions(message.source))
        headers = [(HOSTILE, message.name.encode())]
        self._deliver([(message.source, partition, message.key, message.value, headers)])
        self.hostile_sent += 1

    # --- delivery -----------------------------------------------------------------------------------------------------

    def _deliver(self, messages: list[Message]) -> None:
        """Send and wait for acknowledgements; messages without one are sent again by a new producer."""
        began = time.monotonic()
        while messages:
            try:
                messages = self._tried(messages)
            except KafkaError:
                if time.monotonic() - began > _ACK_SECONDS:
                    raise
            if messages:
                if self._producer is not None:
                    self._producer.close(timeout=0)
                    self._producer = None
                time.sleep(0.2)
        self.slowest = max(self.slowest, time.monotonic() - began)

    def _tried(self, messages: list[Message]) -> list[Message]:
        """The messages that were not acknowledged, in order."""
        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks="all",
                enable_idempotence=True,
                max_request_size=16 << 20,
                delivery_timeout_ms=_ACK_SECONDS * 1000,
                request_timeout_ms=self.request_ms,
                max_block_ms=_ACK_SECONDS * 1000,
            )
        futures = [
            (message, self._producer.send(message[0], message[3], message[2], message[4], message[1]))
            for message in messages
        ]
        left = []
        for message, future in futures:
            try:
                future.get(timeout=_ACK_SECONDS)
                self.sent += 1
            except KafkaError:
                left.append(message)
        return left
