"""Throughput through the whole service, Kafka, Spark and commit, beside the local engine's on the same updates.

    python -m bench.through --batch 100000 --batches 20 --rounds 3 --workers 2

All updates are in Kafka before the service starts, in the native format (a thousand rows a message, each at its own
time, and progress behind each), and an epoch takes as many messages as a batch has. The measured time is from the
commit of the first epoch to that of the last full one. The local engine (as many workers, processes as `vernier replay`
has them, and the service's plan, which keeps its view) runs batches of the same size before and after it. The speed of
a machine changes, so this may be repeated; the ratio is the median of those of each round's local runs to its service.
The answers are compared. One JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaProducer

from bench.edges import write_words
from bench.players import ROOT, Player, Spec
from bench.record import tell
from bench.running import free_port, serving
from bench.stream import Ints, Stream, Sums, random_graph
from vernier.service.client.client import Client, ServerError, connect
from vernier.service.config.settings import load
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics
from vernier.storage.state.state import StateDirectory

TOPIC = "graph"
EACH = 1000


def fill(bootstrap: str, stream: Stream, updates: int, partitions: int) -> None:
    """Put the root, the window and the updates into the topic."""
    create_topics(bootstrap, {TOPIC: partitions})
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks=1, linger_ms=20, batch_size=1 << 20)

    def send(partition: int, message: dict[str, Any]) -> None:
        producer.send(TOPIC, value=json.dumps(message, separators=(",", ":")).encode(), partition=partition)

    def promise(lower: int, upper: int) -> None:
        for partition in range(partitions):
            send(partition, {"v": 1, "p": {"lower": [str(lower)], "upper": [str(upper)]}})

    def put(source: str, data: Ints) -> None:
        for partition in range(partitions):
            rows = [[row[:-2], str(row[-2]), row[-1]] for row in data[partition::partitions].tolist()]
            if rows:
                send(partition, {"v": 1, "t": rows[0][1], "input": source, "u": rows})

    put("roots", np.array([[0, 0, 1]], np.int64))
    first = stream.first()
    for begin in range(0, len(first), EACH * partitions):
        put("edges", first[begin : begin + EACH * partitions])
    promise(0, 1)
    step = EACH * partitions // 2  # an update is two rows
    for at in range(0, updates, step):
        stop = min(updates, at + step)
        put("edges", stream.updates(at, stop, step, True))
        promise(at + 1, stop + 1)
    producer.flush()
    producer.close()


def frontier(client: Client) -> int:
    """The answer's frontier; -1 while there is none."""
    try:
        return int(client.view("answer")["frontier"])
    except (ServerError, TypeError):  # no epoch yet, no frontier yet
        return -1


def served(stream: Stream, updates: int, batch: int, workers: int, folder: Path) -> dict[str, Any]:
    """Microseconds an update through the service, from commit to commit; what it answers at the end, as a sum."""
    with EmbeddedBroker(folder / "kafka") as broker:
        fill(broker.bootstrap, stream, updates, workers)
        source = {"topic": TOPIC, "format": "vernier", "clock": "event"}
        flags: dict[str, object] = {
            "program": str(ROOT / "bench" / "moving.py"), "workers": workers, "kafka.embedded": "false",
            "kafka.bootstrap": broker.bootstrap, "state.path": str(folder / "state"), "http.port": free_port(),
            "epoch.max_messages": 2 * 2 * batch // EACH, "sources.edges": source, "sources.roots": source,
            "state.keep": 4096, "publish.views": "none",
        }  # fmt: skip
        with serving(load(None, flags, {}), None, flags) as supervisor, connect(supervisor.url) as client:
            while frontier(client) <= updates:
                time.sleep(2)  # every question takes some of the cores that are measured
            rows = [list(row.values()) for row in client.rows("answer", limit=1000)]
        state = StateDirectory(folder / "state")
        commits = [(one.upper, one.committed_ns) for one in map(state.manifest, state.epochs())]
    sums = Sums()
    sums.add(np.array([[*row[:2], 0, 1] for row in rows], np.int64))
    epochs = [one for i, one in enumerate(commits) if i == 0 or one[0] > commits[i - 1][0]]
    # The first epoch has the window, and starts the workers; the last one has the remaining updates.
    (first, began), (last, ended) = epochs[1], epochs[-2]
    return {
        "wall_us": round((ended - began) / (last - first) / 1e3, 3), "epochs": len(epochs) - 3,
        "updates_an_epoch": [after[0] - before[0] for before, after in pairwise(epochs[1:])],
        "timeless": sums.timeless,
    }  # fmt: skip


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(ROOT)  # for the program's import in the service's processes
    updates, half = args.batch * args.batches, args.batches // 2
    runs = [half, args.batches - half] + [half] * (args.rounds - 1)
    edges = random_graph(args.nodes, args.edges + args.batch * sum(runs))
    stream = Stream(edges, args.edges)
    before = os.getloadavg()[0]
    local, through = [], []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_words(Path(folder) / "edges", edges)
        spec = Spec.of(f"vernier-views:{args.workers}")
        player = stack.enter_context(Player(spec, "bfs", Path(folder) / "edges", args.edges))
        player.load()
        local.append(player.run(runs[0], args.batch))
        for number, run in enumerate(runs[1:]):
            through.append(served(stream, updates, args.batch, args.workers, Path(folder) / str(number)))
            local.append(player.run(run, args.batch))
    # After two runs, the local engine has had as many updates as the service.
    if {one.pop("timeless") for one in through} != {local[1]["timeless"]}:
        raise SystemExit("the answers of the service and the local engine differ")
    locally = [float(np.mean(one["wall_ns"])) / args.batch / 1e3 for one in local]
    ratios = [(one + other) / 2 / own["wall_us"] for (one, other), own in zip(pairwise(locally), through)]
    result = through[0] | {
        "wall_us": [one["wall_us"] for one in through], "program": "bfs", "nodes": args.nodes, "edges": args.edges,
        "batch": args.batch, "workers": args.workers, "local_us": [round(one, 3) for one in locally],
        "ratios": [round(one, 3) for one in ratios], "throughput_of_local": round(float(np.median(ratios)), 3),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip
    tell(result)


if __name__ == "__main__":
    main()
