"""Where the engine's time goes: CPU of its parts, an update.

    python -m bench.profile --batch 1 --updates 2000

bfs distances and their histogram on a moving graph, one worker of the local engine. Every compiled kernel that the
engine's Python calls, every operator's step and the closing of traces are timed by the thread's CPU clock; each part is
what it took without the parts inside it. The cost of reading the clock is measured for each call, against the same run
without it, and subtracted. A kernel's time includes the call itself: some microseconds, most of it unpacking arrays.
One JSON line.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import time
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

import vernier.operators
import vernier.storage
from bench.ours import Runner
from bench.programs import program
from bench.record import tell
from bench.stream import Stream, random_graph
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime.operator import Operator
from vernier.storage.trace.spine import Trace

SHOWN = 16


class Clock:
    """CPU seconds by name, without those of timed calls inside; calls; and how many timed calls each made itself."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        self._open: list[list[float]] = [[0.0, 0]]

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._open.append([0.0, 0])
            began = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                took = time.thread_time() - began
                nested, count = self._open.pop()
                above = self._open[-1]
                above[0] += took
                above[1] += 1
                self.seconds[name] += took - nested
                self.calls[name] += 1
                self.inside[name] += int(count)

        return timed

    def clear(self) -> None:
        """Reset all measurements."""
        for counter in (self.seconds, self.calls, self.inside):
            counter.clear()


def watch(clock: Clock) -> set[str]:
    """Time the kernels, where the engine's Python calls them, and the steps; the kernels' names."""
    kernels = set()
    for package in (vernier.storage, vernier.operators):
        for found in list(pkgutil.walk_packages(package.__path__, f"{package.__name__}.")):
            if ".kernels" in found.name or found.name == "vernier.operators.testing":
                continue
            module = importlib.import_module(found.name)
            for name, value in list(vars(module).items()):
                if isinstance(value, Dispatcher):
                    setattr(module, name, clock.wrap(f"kernel {name}", value))
                    kernels.add(f"kernel {name}")
                elif isinstance(value, ModuleType) and ".kernels." in value.__name__:
                    inner = {
                        key: clock.wrap(f"kernel {key}", one) if isinstance(one, Dispatcher) else one
                        for key, one in vars(value).items()
                    }
                    kernels |= {f"kernel {key}" for key, one in vars(value).items() if isinstance(one, Dispatcher)}
                    setattr(module, name, SimpleNamespace(**inner))
    for kind in subclasses(Operator):
        if "step" in vars(kind):
            kind.step = clock.wrap(f"step of {kind.__name__}", kind.step)  # type: ignore[method-assign]
    for owner, name in ((Trace, "close_slice"), (Trace, "select"), (Trace, "seal"), (Worker, "run_epoch")):
        setattr(owner, name, clock.wrap(f"{owner.__name__}.{name}", getattr(owner, name)))
    return kernels


def subclasses(kind: type[Any]) -> list[type[Any]]:
    """All of them, whatever the depth."""
    return [found for one in kind.__subclasses__() for found in (one, *subclasses(one))]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="bfs")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--updates", type=int, default=2000)
    args = parser.parse_args()
    clock, kernels = Clock(), set[str]()
    before = os.getloadavg()[0]
    epochs, warm = args.updates // args.batch, max(1, 1000 // args.batch)
    edges = random_graph(args.nodes, args.edges + (epochs + warm) * args.batch)
    taken: list[list[int]] = []
    for watched in (False, True):
        if watched:
            kernels = watch(clock)
        runner = Runner(LocalEngine(compile_app(program(args.program))), Stream(edges, args.edges))
        runner.load()
        runner.run(warm, args.batch, True)
        clock.clear()
        taken.append(runner.run(epochs, args.batch, True)["cpu_ns"])
    updates, calls = epochs * args.batch, clock.calls.total()
    plain, timed = (sum(one) / 1e9 for one in taken)
    each = max(0.0, timed - plain) / calls
    parts = {name: seconds - each * clock.inside[name] for name, seconds in clock.seconds.items()}
    rows = [
        {
            "part": name,
            "us_an_update": round(parts[name] / updates * 1e6, 3),
            "calls_an_epoch": clock.calls[name] / epochs,
        }
        for name in sorted(parts, key=lambda name: -parts[name])[:SHOWN]
    ]
    in_kernels = sum(seconds for name, seconds in parts.items() if name in kernels)
    result = {
        "program": args.program, "batch": args.batch, "cpu_us": round(plain / updates * 1e6, 2),
        "kernels_us": round(in_kernels / updates * 1e6, 2), "kernel_calls_an_epoch": round(
            sum(count for name, count in clock.calls.items() if name in kernels) / epochs, 1),
        "epoch_ms_p50": round(float(np.median(taken[0])) / 1e6, 4), "clock_us_a_call": round(each * 1e6, 2),
        "parts": rows, "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip
    tell(result)


if __name__ == "__main__":
    main()
