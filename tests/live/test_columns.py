"""A source gets a nullable column while producers of both versions send: no dead letter, and nothing is lost."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.live.service import PATIENCE, Service, wait_for
from vernier.service.kafka.embedded_broker import EmbeddedBroker

TOPIC = "uses-whose-columns-change"
BEFORE = """
import vernier as vn

class Use(vn.Schema):
    account: vn.Int64
    spent: vn.Int64

app = vn.App("columns", retain="1h")
uses = app.source("uses", Use)
app.view("counts", uses.group_by("account").agg(n=vn.count(), total=vn.sum("spent")), key=["account"])
"""
NOTED = """
app.view("noted", uses.filter(vn.col("note").is_not_null()).group_by("note").agg(n=vn.count()), key=["note"])
"""


class Producing(threading.Thread):
    """Sends uses in one version's columns until it is stopped, and counts them."""

    def __init__(self, bootstrap: str, *, noted: bool) -> None:
        super().__init__(daemon=True)
        self.noted, self.chance = noted, random.Random(noted)
        self.counts: Counter[int] = Counter()
        self.totals: Counter[int] = Counter()
        self.notes: Counter[str] = Counter()
        self.stopped = threading.Event()
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)

    def run(self) -> None:
        while not self.stopped.wait(0.01):
            row = {"account": self.chance.randrange(20), "spent": self.chance.randrange(100)}
            self.counts[row["account"]] += 1
            self.totals[row["account"]] += row["spent"]
            if self.noted:
                note = self.chance.choice(["a", "b", "a note of more than fifteen bytes", None])
                self.notes[note or ""] += 1
                self.producer.send(TOPIC, json.dumps(row | {"note": note}).encode())
            else:
                self.producer.send(TOPIC, json.dumps(row).encode())
        self.producer.flush(PATIENCE)
        self.producer.close()

    def finish(self) -> None:
        self.stopped.set()
        self.join(PATIENCE)
        assert not self.is_alive()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_nullable_column_is_added_with_producers_of_both_versions(tmp_path: Path, broker: EmbeddedBroker) -> None:
    program = tmp_path / "program.py"
    program.write_text(BEFORE, "utf-8")
    service = Service(
        tmp_path,
        2,
        program,
        kafka={"bootstrap": broker.bootstrap},
        sources={"uses": {"topic": TOPIC, "format": "json", "clock": "arrival"}},
        # What the new view needs is kept from the start.
        state={"path": str(tmp_path / "state"), "keep_sources": True},
    )

    def rows(view: str) -> list[dict[str, object]]:
        answer = httpx.get(f"{service.url}/v1/read", params={"views": view, "limit": "1000"}, timeout=5)
        return [] if answer.status_code != 200 else list(answer.json()["views"][view]["rows"])

    def read() -> int:
        return sum(int(str(row["n"])) for row in rows("counts"))

    with service:
        old = Producing(broker.bootstrap, noted=False)
        old.start()
        wait_for("uses of the first version", lambda: read() > 100)
        program.write_text(BEFORE.replace("spent: vn.Int64", "note: vn.String | None\n    spent: vn.Int64") + NOTED)
        service.stop()
        before = sum(old.counts.values())
        service.start()
        new = Producing(broker.bootstrap, noted=True)
        new.start()
        wait_for("uses of both versions", lambda: read() > before + 100 and sum(new.counts.values()) > 100)
        old.finish()
        new.finish()
        sent = sum((old.counts + new.counts).values())
        wait_for("all that was sent", lambda: read() == sent)
        counts = {row["account"]: (row["n"], row["total"]) for row in rows("counts")}
        assert counts == {one: (n, (old.totals + new.totals)[one]) for one, n in (old.counts + new.counts).items()}
        assert {row["note"]: row["n"] for row in rows("noted")} == {one: n for one, n in new.notes.items() if one}
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
        letters = [TopicPartition(f"{name}.dlq", 0) for name in ("uses", TOPIC)]
        assert set(consumer.end_offsets(letters).values()) == {0}
        consumer.close()
