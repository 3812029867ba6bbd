"""Producers: how fine message times are, against throughput and freshness.

`python -m bench.producer --seconds 10 --rate 2000 --rows 200000 --plot FILE`: for each policy, `vernier.Producer` sends
rows of two integers to a broker on this machine, in two parts. At a fixed rate, with data times of the wall clock: how
many messages and bytes a row costs, and how long after its data time another process has read from every partition
that the row is final. Then as fast as it goes, once row by row and once a thousand rows a call, with the same data
times for every policy (one each microsecond): rows a second, from the first call to the last acknowledgement. The row
"plain" is kafka-python without message times: the same rows in messages of 500, no promises. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import vernier as vn
from bench.players import ROOT
from bench.record import Table, tell
from bench.tables import number
from vernier.service.codec.native import update, updates_message
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics
from vernier.storage.updates import CLOSED

POLICIES: dict[str, Any] = {
    "100us": "100us",
    "1ms": "1ms",
    "10ms": "10ms",
    "1s": "1s",
    "records(1)": vn.records(1),
    "records(1024)": vn.records(1024),
}
STEP_SECONDS = 0.001
MANY = 1_000


class Pair(vn.Schema):
    """The rows."""

    a: vn.Int64
    b: vn.Int64


def read(bootstrap: str, topic: str, partitions: int) -> None:
    """In a process of its own: print when which time was final in every partition, until the topic is complete."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, fetch_max_wait_ms=100)
    parts = [TopicPartition(topic, one) for one in range(partitions)]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    uppers, reached = dict.fromkeys(parts, -1), -1
    messages = size = 0
    found: list[tuple[int, int]] = []
    print("ready", flush=True)
    while reached < CLOSED:
        for part, records in consumer.poll(timeout_ms=1_000).items():
            messages += len(records)
            for record in records:
                size += len(record.value) + len(record.key or b"")
                if record.value.startswith(b'{"v":1,"p"'):
                    upper = json.loads(record.value)["p"]["upper"]
                    uppers[part] = int(upper[0]) if upper else CLOSED
        if min(uppers.values()) > reached:
            reached = min(uppers.values())
            found.append((reached, time.time_ns()))
    print(json.dumps({"messages": messages, "bytes": size, "reached": found}), flush=True)
    consumer.close()


def paced(bootstrap: str, name: str, partitions: int, rate: float, seconds: float) -> dict[str, Any]:
    """What a row costs, and when it is final, at a fixed rate."""
    topic = f"paced-{name.strip(')').replace('(', '-')}"
    create_topics(bootstrap, {topic: partitions})
    command = [sys.executable, "-m", "bench.producer", "--read", f"{bootstrap} {topic} {partitions}"]
    reader = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    reader.stdout.readline()
    rows, times = 0, []
    producer = vn.Producer(topic, Pair, bootstrap=bootstrap, policy=POLICIES[name])
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        for _ in range(int(passed * rate) - rows):
            at = time.time_ns()
            producer.send((rows, rows % 97))
            times.append(at)
            rows += 1
        time.sleep(STEP_SECONDS)
    producer.close(60, complete=True)
    told = json.loads(reader.communicate()[0])
    reached = np.array([one for one, _ in told["reached"]])
    heard = np.array([at for _, at in told["reached"]])
    # The rows of the first half warm everything up; those after the last promise but one end with the topic.
    counted = np.array(times[len(times) // 2 :])
    places = np.searchsorted(reached, counted, side="right")
    kept = places < len(reached) - 1
    late = (heard[places[kept]] - counted[kept]) / 1e6
    return {
        "rate": round(rows / passed),
        "messages_a_row": round(told["messages"] / rows, 3),
        "bytes_a_row": round(told["bytes"] / rows, 1),
        "final_p50_ms": round(float(np.quantile(late, 0.5)), 1) if len(late) else None,
        "final_p99_ms": round(float(np.quantile(late, 0.99)), 1) if len(late) else None,
    }


def flat_out(bootstrap: str, name: str, partitions: int, rows: int, many: int) -> int:
    """Rows a second, many a call."""
    topic = f"fast-{many}-{name.strip(')').replace('(', '-')}"
    create_topics(bootstrap, {topic: partitions})
    with vn.Producer(topic, Pair, bootstrap=bootstrap, policy=POLICIES[name], clock="rows") as producer:
        began = time.monotonic()
        if many == 1:
            for number in range(rows):
                producer.send((number, number % 97), number * 1_000)
        else:
            for first in range(0, rows, many):
                numbers = range(first, min(rows, first + many))
                producer.send_many([(n, n % 97) for n in numbers], [n * 1_000 for n in numbers])
        producer.flush(600)
        return round(rows / (time.monotonic() - began))


def plain(bootstrap: str, partitions: int, rows: int) -> int:
    """Rows a second of the client alone."""
    create_topics(bootstrap, {"plain": partitions})
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", batch_size=1 << 17)
    began = time.monotonic()
    for first in range(0, rows, 500):
        texts = [update(b"[%d,%d]" % (n, n % 97), n * 1_000, 1) for n in range(first, min(rows, first + 500))]
        producer.send("plain", value=updates_message(first * 1_000, texts), partition=first // 500 % partitions)
    producer.flush()
    took = time.monotonic() - began
    producer.close()
    return round(rows / took)


def main() -> None:
    """Run, print one line of JSON, plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=2_000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        bootstrap, topic, partitions = given.read.split()
        read(bootstrap, topic, int(partitions))
        return
    load = [round(os.getloadavg()[0], 1)]
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "kafka") as broker:
        alone = plain(broker.bootstrap, given.partitions, given.rows)
        for name in given.policies.split(","):
            results[name] = {
                **paced(broker.bootstrap, name, given.partitions, given.rate, given.seconds),
                "rows_per_s": flat_out(broker.bootstrap, name, given.partitions, given.rows, 1),
                "rows_per_s_many": flat_out(broker.bootstrap, name, given.partitions, given.rows, MANY),
            }
            print(f"bench: {name} {results[name]}", file=sys.stderr, flush=True)
    load.append(round(os.getloadavg()[0], 1))
    values = {
        "bench": "producer", "rate": given.rate, "rows": given.rows, "partitions": given.partitions,
        "policies": results, "plain_rows_per_s": alone, "load": load,
    }  # fmt: skip
    tell(values, tables={"policies": tabled(values)})
    if given.plot is not None:
        plot(given.plot, results)


def tabled(values: dict[str, Any]) -> Table:
    """What each policy costs and gives."""
    names = ("messages_a_row", "bytes_a_row", "final_p50_ms", "final_p99_ms", "rows_per_s", "rows_per_s_many")
    rows = [[name, *(number(one[each]) for each in names)] for name, one in values["policies"].items()]
    rows.append(["without message times", *["–"] * (len(names) - 1), number(values["plain_rows_per_s"])])
    head = [
        "policy", f"messages a row at {values['rate']:,.0f} rows/s", "bytes a row", "final after, p50, ms", "p99, ms",
        "rows a second, one a call", f"{MANY:,} a call",
    ]  # fmt: skip
    return {"head": head, "rows": rows}


def plot(path: Path, results: dict[str, dict[str, Any]]) -> None:
    """Freshness over throughput, a point for each policy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, one in results.items():
        if one["final_p50_ms"] is None:
            continue
        axes.plot([one["rows_per_s_many"]] * 2, [one["final_p50_ms"], one["final_p99_ms"]], marker="o", label=name)
        axes.annotate(name, (one["rows_per_s_many"], one["final_p50_ms"]), fontsize=8, xytext=(4, -10),
                      textcoords="offset points")  # fmt: skip
    axes.set(
        yscale="log",
        xlabel="rows a second, as fast as it goes",
        ylabel="ms until a row is final, p50 and p99",
        title="policies of message times",
    )
    axes.grid(alpha=0.3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
