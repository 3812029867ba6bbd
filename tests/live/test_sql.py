"""`vernier up program.sql`: answers over HTTP against DuckDB's on the rows as of their time, through a `kill -9` of the
driver and a change of the program."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from kafka import KafkaProducer

from tests.live.service import PATIENCE, Service, wait_for
from vernier.service.client.client import Client, connect
from vernier.service.client.errors import ServerError
from vernier.service.kafka.embedded_broker import EmbeddedBroker

TOPIC = "shop-in-sql"
TABLES = f"""
CREATE TABLE orders (id BIGINT NOT NULL, customer STRING NOT NULL, amount DECIMAL(12, 2) NOT NULL)
  WITH (topic = '{TOPIC}', format = 'vernier', clock = 'event', retain = '1 hour');
CREATE TABLE vips (customer STRING NOT NULL) WITH (topic = '{TOPIC}', clock = 'event');
SET retain = '1 hour';
"""
OF_VIPS = "SELECT * FROM orders WHERE customer IN (SELECT customer FROM vips)"
VIEWS = {
    "revenue": "SELECT customer, count(*) AS orders, sum(amount) AS amount FROM of_vips GROUP BY customer",
    "best": "SELECT id, customer, amount FROM orders ORDER BY amount DESC, id LIMIT 3",
}
ADDED = {"counted": "SELECT count(*) AS n, sum(amount) AS amount, max(id) AS newest FROM orders"}
CUSTOMERS = ("ada", "bob", "cid", "a customer with a name of more than fifteen bytes")
Rows = Counter[tuple[Any, ...]]


def program(views: dict[str, str]) -> str:
    """The program with these views."""
    made = (f"CREATE MATERIALIZED VIEW {name} AS {query};\n" for name, query in views.items())
    return f"{TABLES}CREATE VIEW of_vips AS {OF_VIPS};\n{''.join(made)}"


class Shop(threading.Thread):
    """Sends orders that come and go, and customers that are VIPs for a while, and writes down what it sent."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.log: list[tuple[str, tuple[Any, ...], int, int]] = []
        self.frontier = 0
        self.stopped = threading.Event()
        self.failure: BaseException | None = None
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)

    def run(self) -> None:
        """Send until stopped; the newest progress covers everything sent."""
        choose, held, vips = random.Random(3), [], set[str]()
        last = time.time_ns()
        try:
            while not self.stopped.wait(0.02):
                begun, last = last, max(time.time_ns(), last + 1)
                updates: dict[str, list[Any]] = {"orders": [], "vips": []}

                def put(source: str, row: tuple[Any, ...], at: int, diff: int) -> None:
                    self.log.append((source, row, at, diff))
                    sent = [str(one) if isinstance(one, Decimal) else one for one in row]
                    updates[source].append([sent, str(at), diff])  # noqa: B023

                for step in range(4):
                    at = begun + step * ((last - begun) // 8)
                    order = (len(self.log), choose.choice(CUSTOMERS), Decimal(choose.randint(1, 9999)) / 100)
                    held.append(order)
                    put("orders", order, at, 1)
                    if len(held) > 60:
                        put("orders", held.pop(choose.randrange(len(held))), at, -1)
                if choose.random() < 0.2:
                    name = choose.choice(CUSTOMERS)
                    put("vips", (name,), begun, -1 if name in vips else 1)
                    vips ^= {name}
                for source, given in updates.items():
                    if given:
                        low = min(int(one[1]) for one in given)
                        self._send({"v": 1, "t": str(low), "input": source, "u": given})
                self._send({"v": 1, "p": {"lower": [str(begun)], "upper": [str(last)]}})
                self.frontier = last
            self.producer.flush(PATIENCE)
        except BaseException as error:
            self.failure = error
        finally:
            self.producer.close()

    def _send(self, message: dict[str, Any]) -> None:
        self.producer.send(TOPIC, json.dumps(message).encode(), partition=0)

    def finish(self) -> int:
        """Stop; returns the time before which all is sent."""
        self.stopped.set()
        self.join(PATIENCE)
        if self.failure is not None:
            raise self.failure
        return self.frontier

    def answers(self, views: dict[str, str], at: int) -> dict[str, Rows]:
        """The rows of views as of a time, by DuckDB."""
        rows: dict[str, Rows] = {"orders": Counter(), "vips": Counter()}
        for source, row, when, diff in list(self.log):
            if when <= at:
                rows[source][row] += diff
        with duckdb.connect() as tables:
            tables.execute("CREATE TABLE orders (id BIGINT, customer VARCHAR, amount DECIMAL(12, 2))")
            tables.execute("CREATE TABLE vips (customer VARCHAR)")
            for source, bag in rows.items():
                if bag.total():
                    marks = ", ".join("?" * len(next(iter(bag))))
                    tables.executemany(f"INSERT INTO {source} VALUES ({marks})", list(bag.elements()))
            tables.execute(f"CREATE VIEW of_vips AS {OF_VIPS}")
            return {name: Counter(tables.execute(query).fetchall()) for name, query in views.items()}


class Asking:
    """Reads views at one time, over HTTP and in SQL, and keeps what it read."""

    def __init__(self, url: str, views: dict[str, str]) -> None:
        self.url, self.views = url, views
        self.read: dict[int, dict[str, Rows]] = {}

    def ask(self, client: Client, as_of: int | None = None) -> int:
        """The time of the answer; two answers of one time are the same."""
        found = client.read(list(self.views), as_of=as_of)
        at = next(iter(found.values())).as_of
        if at < 0:  # nothing was sent yet
            return at
        rows = {name: Counter(map(_values, given)) for name, given in found.items()}
        assert self.read.setdefault(at, rows) == rows, at
        for name in self.views:
            assert Counter(map(_values, client.sql(f"SELECT * FROM {name}", as_of=at))) == rows[name], (name, at)
        return at

    def until(self, frontier: int, samples: int = 0) -> None:
        """Ask until the answers are final before a time, and at least `samples` times were seen."""
        with connect(self.url) as client:

            def enough() -> bool:
                try:
                    return self.ask(client) >= frontier - 1 and len(self.read) >= samples
                except ServerError as error:
                    if error.status in (404, 409, 410, 503):
                        return False
                    raise

            wait_for(f"answers before {frontier}", enough)

    def check(self, shop: Shop) -> None:
        """All that was read is what DuckDB makes of the rows."""
        for at, rows in sorted(self.read.items()):
            assert rows == shop.answers(self.views, at), at


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(Decimal(value) if name == "amount" and value is not None else value for name, value in row.items())


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_program_in_sql_is_exact_through_a_kill_and_a_change(tmp_path: Path, broker: EmbeddedBroker) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(program(VIEWS), "utf-8")
    broker.create_topics({TOPIC: 1})
    service = Service(tmp_path, 1, file, kafka={"bootstrap": broker.bootstrap}, sources={})
    shop = Shop(broker.bootstrap)
    with service:
        shop.start()
        before = Asking(service.url, VIEWS)
        before.until(1, samples=5)
        service.kill("driver", random.Random(1))
        before.until(shop.frontier, samples=8)
        before.until(shop.frontier, samples=12)
        # The next version of the program has another view, which is filled from the kept history of the table.
        file.write_text(program(VIEWS | ADDED), "utf-8")
        service.stop()
        service.start()
        after = Asking(service.url, VIEWS | ADDED)
        after.until(shop.frontier, samples=5)
        end = shop.finish()
        after.until(end)
    before.check(shop)
    after.check(shop)
    assert max(after.read) >= end - 1
    assert any(rows["revenue"] for rows in before.read.values())
