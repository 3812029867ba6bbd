"""Explode: a separate service whose join of one key makes 3.6 thousand million pairs, within the same memory.

The service must name the join and its key on /readyz, and no process may be killed for memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from kafka import KafkaProducer

from bench.chaos.memory import Group
from tests.live.service import Service, wait_for

PROGRAM = Path(__file__).with_name("crowded.py")
ROWS, EACH = 60_000, 1_000
PATIENCE = 300


def messages(source: str) -> Iterator[bytes]:
    """Rows of the key 7, and the promise that no others follow."""
    for first in range(0, ROWS, EACH):
        rows = [[[7, value], "1", 1] for value in range(first, first + EACH)]
        yield json.dumps({"v": 1, "t": "1", "input": source, "u": rows}).encode()


def explode(folder: Path, group: Group, say: Callable[[str], None]) -> str:
    """The service's message about it. Raises AssertionError if there is none, or if a process was killed."""
    folder.mkdir()
    event = {"topic": "pairs", "format": "vernier", "clock": "event", "partitions": 1}
    megabytes = (group.limit or 0) >> 20
    with Service(
        folder,
        1,
        PROGRAM,
        group.enter,
        PATIENCE,
        sources={"left": event, "right": event},
        publish={"views": "none"},
        worker_memory_max_mb=max(512, megabytes // 3),
    ) as service:
        say("a second service gets a join that explodes")
        producer = KafkaProducer(bootstrap_servers=service.bootstrap, acks="all", linger_ms=20)
        for source in ("left", "right"):
            for value in messages(source):
                producer.send("pairs", value, partition=0)
        producer.send("pairs", b'{"v":1,"p":{"lower":["0"],"upper":["10"]}}', partition=0)
        producer.flush(PATIENCE)
        producer.close()

        def named() -> str | None:
            assert not group.killed(), "a process of the service whose join explodes was killed for memory"
            answer = httpx.get(f"{service.url}/readyz", timeout=5)
            laggards = answer.json().get("laggards", []) if answer.status_code == 503 else []
            said = [one["why"] for one in laggards if "join on key" in one["why"] and "key=7" in one["why"]]
            return said[0] if said else None

        said: str = wait_for("the join that explodes is named by /readyz", named, PATIENCE)
        say(f"named: {said}")
        return said
