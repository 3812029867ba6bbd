"""Where the engine's time goes: CPU of its parts, an update.

    python -m bench.profile --batch 1 --updates 2000

bfs distances and their histogram on a moving graph, one worker of the local engine. Every compiled kernel and some steps
around them are wrapped by a clock of the thread's CPU time; what is left is Python between them. The wrapping costs about
a microsecond a call, which is measured and taken off. One JSON line.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

import operators
import operators.runtime
import storage
from bench.ours import Runner
from bench.programs import program
from bench.stream import Stream, random_graph
from operators.local import LocalEngine
from operators.planning.planner import compile_app


class Clock:
    """CPU seconds and calls by name; nested calls count for themselves alone."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[name] += time.thread_time() - began
                self.calls[name] += 1

        return timed


def modules() -> list[Any]:
    """The engine's modules outside of kernels/, loaded."""
    found = []
    for package in (storage, operators):
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".kernels" not in one.name and one.name != "operators.testing":
                found.append(importlib.import_module(one.name))
    return found


def watch(clock: Clock) -> None:
    """Wrap every kernel where the engine's Python calls it."""
    for module in modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, Dispatcher):
                setattr(module, name, clock.wrap(name, value))
            elif type(value).__name__ == "module" and ".kernels" in value.__name__ and "kernels." in value.__name__:
                for inner, kernel in list(vars(value).items()):
                    if isinstance(kernel, Dispatcher) and kernel.py_func.__module__ == value.__name__:
                        setattr(module, name, Proxy(value, clock))


class Proxy:
    """A module of kernels whose kernels are timed."""

    def __init__(self, module: Any, clock: Clock) -> None:
        for name, value in vars(module).items():
            setattr(self, name, clock.wrap(name, value) if isinstance(value, Dispatcher) else value)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="bfs")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--updates", type=int, default=2000)
    args = parser.parse_args()
    clock = Clock()
    before = os.getloadavg()[0]
    edges = random_graph(args.nodes, args.edges + 2 * args.updates + 2000)
    plain, watched = [], []
    for clocked in (False, True):
        if clocked:
            watch(clock)
        runner = Runner(LocalEngine(compile_app(program(args.program))), Stream(edges, args.edges))
        runner.load()
        runner.run(max(1, 1000 // args.batch), args.batch, True)
        clock.seconds.clear()
        clock.calls.clear()
        answer = runner.run(args.updates // args.batch, args.batch, True)
        (watched if clocked else plain).extend(answer["cpu_ns"])
        rounds = sum(runner.engine.workers[0].root.operators[i].rounds for i in ()) if clocked else 0
    count = len(plain) * args.batch
    calls = sum(clock.calls.values())
    overhead = max(0.0, (np.sum(watched) - np.sum(plain)) / 1e9 / max(1, calls))
    parts = {
        name: [round(seconds / count * 1e6, 3), round(clock.calls[name] / len(plain), 2)]
        for name, seconds in clock.seconds.most_common(14)
    }
    kernels = sum(clock.seconds.values()) / count * 1e6
    total = float(np.sum(plain)) / count / 1e3
    result = {
        "program": args.program, "batch": args.batch, "cpu_us": round(total, 2), "kernels_us": round(kernels, 2),
        "python_us": round(total - kernels, 2), "calls_an_epoch": round(calls / len(plain), 1),
        "clock_us_a_call": round(overhead * 1e6, 2), "us_an_update_and_calls_an_epoch": parts,
        "epoch_ms_p50": round(float(np.median(plain)) / 1e6, 4),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
