"""The parts of an epoch that are measured one by one, for bench/scale.py: a call of the exchange between two processes,
a stage of Spark, the driver's part of a commit. All in seconds and bytes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np

from bench.exchange import connected
from tests.crash.simstore import SimStore
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange import transport
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.transport import Mailbox
from vernier.storage.blob.object_store import ObjectBlob
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry
from vernier.storage.state.state import StateDirectory


def _peer(keys: Keys, index: int, rings: bool, rounds: int, sizes: list[int], pipe: Connection) -> None:
    box = Mailbox(keys)
    if not rings:
        transport.Ring.make = staticmethod(lambda: None)  # type: ignore[method-assign,assignment]
    pipe.send(box.address)
    exchange = Exchange(box, "scale", index, pipe.recv(), None, 60)
    for size in sizes:
        parts = [np.zeros((max(1, size // 8), 1), np.int64) for _ in range(2)]
        took = []
        for _ in range(rounds):
            began = time.perf_counter()
            exchange.all_to_all(parts)
            took.append(time.perf_counter() - began)
        pipe.send(float(np.quantile(took, 0.1)))  # others disturb it, and only make it longer
    pipe.recv()
    box.close()


def _one_way(keys: Keys, index: int, count: int, pipe: Connection) -> None:
    """Sends small messages to the other one, or receives them; reports seconds of CPU for each."""
    transport.Ring.make = staticmethod(lambda: None)  # type: ignore[method-assign,assignment]
    box = Mailbox(keys)
    pipe.send(box.address)
    peer = pipe.recv()[1 - index]
    header, words, taken = np.zeros(transport.HEADER_WORDS, np.int64), np.zeros(8, np.int64), 0
    header[transport.SIZE] = words.nbytes
    header[transport.MARK] = 1
    if index == 0:
        out = box.outbox(peer)
        out.send(header, words)
        pipe.recv()  # connected
        began = time.process_time()
        for _ in range(count):
            out.send(header, words)
        pipe.recv()  # all have arrived, so the thread that encrypts has done its work, too
        pipe.send((time.process_time() - began) / count)
    else:
        while box.receive() is None:
            box.inbox.poll(1000)
        pipe.send(None)
        began = time.process_time()
        while taken < count:
            box.inbox.poll(1000)
            while box.receive() is not None:
                taken += 1
        pipe.send((time.process_time() - began) / count)
    pipe.recv()
    box.close()


def messages(keys: Keys, count: int) -> tuple[float, float]:
    """Seconds of CPU, of all threads, for sending and for receiving a small message by a socket."""
    pipes, processes = connected(2, _one_way, lambda index: (keys, index, count))
    pipes[1].recv()
    pipes[0].send(None)
    receive = pipes[1].recv()
    pipes[0].send(None)
    send = pipes[0].recv()
    _end(pipes, processes)
    return send, receive


def _end(pipes: Sequence[Connection], processes: Sequence[SpawnProcess]) -> None:
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()


def calls(keys: Keys, rounds: int, sizes: list[int], rings: bool = True) -> list[float]:
    """Seconds of a call between two processes, for each size of its messages."""
    pipes, processes = connected(2, _peer, lambda index: (keys, index, rings, rounds, sizes))
    found = [min(pipe.recv() for pipe in pipes) for _ in sizes]
    _end(pipes, processes)
    return found


def commits(workers: int, traces: int, epochs: int) -> dict[str, float]:
    """The driver's part of commits: seconds of CPU, bytes of a manifest, requests to a store."""
    store = SimStore()
    clock = time.time_ns() // 1_000_000
    state = StateDirectory("sim://scale", ObjectBlob("sim://scale", store, lambda: clock, beating=False))
    state.acquire()
    kept: list[list[list[BatchRef]]] = [[[] for _ in range(workers)] for _ in range(traces)]  # sizes fall by half
    seconds, sizes = [], []
    for epoch in range(1, epochs + 1):
        stems = [f"{epoch:012d}-a-{shard}" for shard in range(workers)]
        for stem in stems:
            store.put(f"epochs/{stem}.seg", b"")
        for trace, shards in enumerate(kept):
            for shard, refs in enumerate(shards):
                new = BatchRef(stems[shard], f"l{trace}", 100, 6400, epoch, epoch + 1, epoch)
                while refs and refs[-1].updates <= new.updates:  # merged, as soon as that may be
                    updates = new.updates + refs.pop().updates
                    new = BatchRef(stems[shard], f"l{trace}", updates, 64 * updates, epoch, epoch + 1, epoch)
                refs.append(new)
        manifest = Manifest(
            epoch=epoch, attempt="a", lower=epoch, upper=epoch + 1, committed_ns=0, workers=workers, app="scale",
            program="1", traces={f"t{n}": TraceEntry(1, 1, 0, [list(refs) for refs in kept[n]]) for n in range(traces)},
        )  # fmt: skip
        began = time.process_time()
        state.commit(manifest)
        if epoch > epochs // 2:  # the first ones have no rollup
            seconds.append(time.process_time() - began)
            sizes.append(store.size(f"epochs/{epoch:012d}.json"))
    return {"seconds": statistics.median(seconds), "longest": max(seconds), "bytes": statistics.median(sizes)}


def stages(tasks: Sequence[int], turns: int) -> dict[str, float]:
    """Seconds of a stage of Spark by its number of tasks, which do nothing, on this machine."""
    from vernier.service.config.settings import load
    from vernier.service.coordinator.session import start_session

    with tempfile.TemporaryDirectory() as name:
        settings = load(None, {"workers": 2, "state.path": f"{name}/state"}, {}).settings
        spark = start_session(settings, "scale", Path(name))
        found = {}
        try:
            for count in tasks:
                frame: Any = spark.range(0, count, 1, count)
                rdd = frame._jdf.queryExecution().toRdd()
                took = []
                for _ in range(turns):
                    began = time.perf_counter()
                    rdd.count()
                    took.append(time.perf_counter() - began)
                found[str(count)] = statistics.median(took)
        finally:
            spark.stop()
    return found


def ring(turns: int) -> dict[str, float]:
    """A call between two processes of one host, by memory: seconds, and seconds a byte."""
    small, large = 64, 1 << 20
    found = calls(Keys.plain(), 200 * turns, [small, large])
    return {"call_s": found[0], "byte_s": (found[1] - found[0]) / large}


def measure(turns: int, tasks: Sequence[int], sizes: Sequence[int]) -> dict[str, Any]:
    """The parts, in seconds and bytes."""
    small, large = 64, 1 << 20
    sealed = Keys.sealed("a certificate")  # as between hosts
    wires = calls(sealed, 100 * turns, [small, large], rings=False)
    send, receive = messages(sealed, 2000 * turns)
    return {
        "ring": ring(turns),
        "wire": {
            "call_s": wires[0],
            "send_s": send,
            "receive_s": receive,
            "byte_s": (wires[1] - wires[0]) / large,
        },
        "stage": stages(tasks, 5 * turns),
        "commit": {str(size): commits(size, 8, 80) for size in sizes},
    }
