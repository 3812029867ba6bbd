"""What encryption costs the workers' exchange: rounds of all-to-all between processes, in the clear and under CURVE.

`python -m bench.exchange --workers 2 --rounds 2000 --bytes 4096`: every worker sends that many bytes to every other
one, in lock step, as the rounds of a loop do. The two kinds take turns, each with its own processes. What arrives is
checked. Prints one JSON line: microseconds a round (median and 99th percentile of the runs' workers), MB a second, the
ratio.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np

from bench.record import tell
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.transport import Mailbox

SECONDS = 60.0
COLUMNS = 4


def worker(keys: Keys, index: int, workers: int, rounds: int, size: int, pipe: Connection) -> None:
    """One end: sends its address, receives all addresses, and reports the microseconds of each round."""
    box = Mailbox(keys)
    pipe.send(box.address)
    exchange = Exchange(box, "bench", index, pipe.recv(), None, SECONDS)
    rows = max(1, size // (8 * COLUMNS))
    parts = [np.full((rows, COLUMNS), index * workers + to, np.int64) for to in range(workers)]
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        got = exchange.all_to_all(parts)
        took.append((time.perf_counter() - began) * 1e6)
        if any((part != sender * workers + index).any() for sender, part in enumerate(got)):
            raise SystemExit(f"worker {index} got what was not meant for it")
    pipe.send(took)
    pipe.recv()
    box.close()


def connected(
    workers: int, target: Callable[..., None], arguments: Callable[[int], tuple[Any, ...]]
) -> tuple[list[Connection], list[SpawnProcess]]:
    """Start processes that run `target(*arguments(index), pipe)`, and give each the addresses that all have sent."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for index in range(workers):
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(*arguments(index), theirs), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)
    addresses = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(addresses)
    return pipes, processes


def run(keys: Keys, workers: int, rounds: int, size: int) -> list[float]:
    """Microseconds of all workers' rounds, except the first tenth (connections are made then)."""
    pipes, processes = connected(workers, worker, lambda index: (keys, index, workers, rounds, size))
    took = [each for pipe in pipes for each in pipe.recv()[rounds // 10 :]]
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.exchange", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    told: dict[str, list[tuple[float, float]]] = {"clear": [], "curve": []}
    for _ in range(given.runs):
        for name, keys in (("clear", Keys.plain()), ("curve", Keys.sealed("a certificate"))):
            took = run(keys, given.workers, given.rounds, given.bytes)
            told[name].append((float(np.median(took)), float(np.quantile(took, 0.99))))
    medians = {name: float(np.median([p50 for p50, _ in runs])) for name, runs in told.items()}
    result = {
        "workers": given.workers,
        "bytes": given.bytes,
        "rounds": given.rounds,
        "runs": given.runs,
        **{f"{name}_us_p50": round(medians[name], 1) for name in told},
        **{f"{name}_us_p99": round(float(np.median([p99 for _, p99 in runs])), 1) for name, runs in told.items()},
        **{f"{name}_mb_s": round(given.bytes * (given.workers - 1) / medians[name], 1) for name in told},
        "ratio": round(float(np.median([c[0] / p[0] for p, c in zip(told["clear"], told["curve"], strict=True)])), 2),
    }
    tell(result)


if __name__ == "__main__":
    main()
