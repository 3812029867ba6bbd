"""Vernier's local engine, which reads commands from standard input as its peers do (bench/peers/differential has the
commands).

`python -m bench.ours PROGRAM EDGES WINDOW WORKERS [LOG] [--threads] [--keep-views]`. Several workers are processes, as
those of `vernier replay`, or threads of this process. As in `vernier replay`, and as in its peers, the answer is not
kept, only its changes are made; with `--keep-views` it is kept as in a service.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.programs import ROOTS, program
from bench.stream import Stream, Sums, random_graph
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.service.replay.forked_engine import ForkedWorkers
from vernier.storage.memory import peak_bytes
from vernier.storage.trace import spill
from vernier.storage.updates import MIN_TIME, Ints, Updates

Engine = LocalEngine | ForkedWorkers


HELD = 1 << 16
"""How many changes are kept before they are summed. Summing them after each epoch would slow the next one by what that
leaves in the processor's caches; keeping all would let each epoch take memory anew, which a service has freed by
then."""


class Runner:
    """An engine, its updates, and its answers."""

    def __init__(self, engine: Engine, stream: Stream, roots: int = 1) -> None:
        self.engine, self.stream, self.roots = engine, stream, roots
        self.sums = Sums()
        self.at = 0
        self.log: list[Ints] | None = None
        self.changes: list[Ints] = []
        self._held = 0
        self._processes = psutil.Process().children() if isinstance(engine, ForkedWorkers) else []
        # Linux's clocks of the CPU time of a process
        self._clocks = [time.CLOCK_PROCESS_CPUTIME_ID, *((~process.pid << 3) | 2 for process in self._processes)]

    def load(self) -> dict[str, Any]:
        """The first edges, and the roots."""
        first = {"roots": Updates.of(np.arange(self.roots)[:, None], 0, 1), "edges": Updates(self.stream.first(), 2, 0)}
        taken = [self._epoch(MIN_TIME, 1, first)]
        gc.collect()
        gc.freeze()  # as a worker of the service does with objects from its start
        return self._answer(taken)

    def run(self, count: int, size: int, exact: bool) -> dict[str, Any]:
        """A number of batches of equal size."""
        first = self.at
        data = self.stream.updates(first, first + count * size, size, exact)
        taken = []
        for batch in range(count):
            part = Updates(data[2 * batch * size : 2 * (batch + 1) * size], 2, 0)
            lower = first + batch * size + 1
            taken.append(self._epoch(lower, lower + size, {"edges": part}))
        self.at += count * size
        return self._answer(taken)

    def _epoch(self, lower: int, upper: int, inputs: dict[str, Updates]) -> tuple[int, int]:
        """Nanoseconds by the clock and of CPU that an epoch took."""
        before, began = self._cpu(), time.perf_counter_ns()
        changes = self.engine.run_epoch(lower, upper, inputs)["answer"]
        wall, cpu = time.perf_counter_ns() - began, self._cpu() - before
        self.changes.append(changes.data)
        self._held += len(changes)
        if self._held > HELD:
            self._sum()
        return wall, cpu

    def _sum(self) -> None:
        """Add the changes of the epochs to the sums, and drop them."""
        for changes in self.changes:
            self.sums.add(changes)
        if self.log is not None:
            self.log += self.changes
        self.changes.clear()
        self._held = 0

    def _cpu(self) -> int:
        return sum(map(time.clock_gettime_ns, self._clocks))

    def _answer(self, taken: list[tuple[int, int]]) -> dict[str, Any]:
        processes = [psutil.Process(), *self._processes]
        # Not after each small epoch: what that leaves in the processor's caches would slow the next one.
        self._sum()
        return {
            "wall_ns": [wall for wall, _ in taken],
            "cpu_ns": [cpu for _, cpu in taken],
            "resident": sum(process.memory_info().rss for process in processes),
            "highest": sum(peak_bytes(process.pid) for process in processes),
            "timed": self.sums.timed,
            "timeless": self.sums.timeless,
        }


def engine_of(plan: Plan, workers: int, threads: bool) -> Engine:
    """The local engine with a number of workers."""
    return LocalEngine(plan, workers, ordered=False) if threads or workers == 1 else ForkedWorkers(plan, workers)


def warm(name: str) -> None:
    """Load the kernels that a program needs, or compile them."""
    small = Runner(LocalEngine(compile_app(program(name))), Stream(random_graph(50, 6000), 100), ROOTS.get(name, 1))
    small.load()
    for size in (1, 10, 2000):
        small.run(2, size, True)


def main() -> None:
    """Execute the commands of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("edges", type=Path)
    parser.add_argument("window", type=int)
    parser.add_argument("workers", type=int)
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--keep-views", action="store_true")
    args = parser.parse_args()
    edges = np.fromfile(args.edges, "<i8").reshape(-1, 2)
    spill.keep()  # as a worker of the service does
    warm(args.program)
    plan = compile_app(program(args.program), keep_views=args.keep_views)
    engine = engine_of(plan, args.workers, args.threads)
    runner = Runner(engine, Stream(edges, args.window), ROOTS.get(args.program, 1))
    runner.log = [] if args.log else None
    for line in sys.stdin:
        command, *given = line.split()
        answer: dict[str, Any] = {}
        if command == "load":
            answer = runner.load()
        elif command == "run":
            answer = runner.run(int(given[0]), int(given[1]), given[2] == "exact")
        elif command == "log":
            np.concatenate(runner.log or [np.empty((0, 4), np.int64)]).astype("<i8").tofile(args.log)
        else:
            raise SystemExit(f"no command {command}")
        print(json.dumps(answer), flush=True)
    engine.close()


if __name__ == "__main__":
    main()
