"""`python -m tests.cli.led WORKERS`: epochs of several kinds with worker processes, as JSON: the changes of each epoch,
its kind, and whether worker 0 led it. With `short`, slices have a few updates, so that most epochs are too long for
one. With `idle`, epochs and then nothing until the process ends."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

import vernier as vn
from vernier import col
from vernier.operators.engine.interpreter import MOST, Interpreter
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime import slice_sizing
from vernier.operators.runtime.slice_sizing import SliceSizing
from vernier.service.replay.forked_engine import ForkedWorkers
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Updates

SHORT = 8
"""The updates of a short slice."""
LONG = "a text that is longer than what fits into words, number "


class Link(vn.Schema):
    """A link between nodes."""

    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    """Where to start."""

    node: vn.Int64


class Name(vn.Schema):
    """A node's name."""

    node: vn.Int64
    name: vn.String


def plan() -> Plan:
    """What roots reach, how often a node is a root, and how many names nodes have: views without texts, whose rows
    worker 0 can have."""
    app = vn.App("led", retain=1000)
    links, roots, names = app.source("links", Link), app.source("roots", Root), app.source("names", Name)

    @vn.fixpoint
    def reached(found: vn.Collection) -> vn.Collection:
        more = found.join(links, left_on="node", right_on="src").select(node=col("dst"))
        return vn.union(roots, more).distinct()

    app.view("reached", reached(roots))
    app.view("roots", roots.group_by("node").agg(n=vn.count()))
    app.view("names", names.group_by("node").agg(n=vn.count_distinct("name")))
    return compile_app(app)


def epochs(of: Plan, heap: Heap, seed: int, short: bool) -> list[tuple[str, int, int, dict[str, Updates]]]:
    """(kind, lower, upper, inputs) of epochs; the first is a load. short: small ones have roots, too."""
    choose, at, found = random.Random(seed), 0, []
    there: list[tuple[int, int]] = []
    kinds = ["small"] * 12 + ["none", "large", "texts", "both"] * 2
    choose.shuffle(kinds)
    for kind in ["load", *kinds]:
        count = {"load": 300, "large": MOST + 5, "none": 0, "texts": 0}.get(kind, choose.choice([1, 2, 40, 300]))
        upper = at + choose.choice([1, 10])
        inputs = {"roots": Updates(np.array([[0, at, 1]]), 1, 0)} if kind == "load" else {}
        if kind == "small" and short and choose.random() < 0.7:
            inputs["roots"] = Updates(np.array([[choose.randrange(100), upper - 1, 1]]), 1, 0)
        if count:
            # What node 0 does not reach costs little.
            nodes = range(1000, 5000) if kind == "large" else range(100)
            gone = [there.pop(choose.randrange(len(there))) for _ in range(min(count // 3, len(there)))]
            new = [(choose.choice(nodes), choose.choice(nodes)) for _ in range(count - len(gone))]
            there += new
            rows = [
                [*link, choose.randrange(at, upper), diff] for links, diff in ((gone, -1), (new, 1)) for link in links
            ]
            inputs["links"] = Updates(np.array(rows, np.int64), 2, 0)
        if kind in ("texts", "both"):
            texts = [choose.choice(["short", f"{LONG}{choose.randrange(3)}"]) for _ in range(5)]
            words = of.sources["names"].encode({"node": np.arange(5), "name": pa.array(texts)}, heap)
            ends = np.array([[at, 1]] * 5)
            inputs["names"] = Updates(np.hstack([words, ends]), words.shape[1], 0)
        found.append((kind, at, upper, inputs))
        at = upper
    return found


def changes(found: Any) -> list[list[int]]:
    """All changes of an epoch, added up."""
    total: Counter[tuple[Any, ...]] = Counter()
    for name, updates in found.items():
        for *row, diff in updates.data.tolist():
            total[name, *row] += diff
    return sorted([*row, diff] for row, diff in total.items() if diff)


def main() -> None:
    """Run the epochs, and print what they were."""
    workers, seed = int(sys.argv[1]), int(sys.argv[2])
    led: list[bool] = []
    run = Interpreter.run

    def counting(self: Interpreter, *args: Any, **how: bool) -> bool:
        led.append(how.get("leads", False))
        return run(self, *args, **how)

    Interpreter.run = counting  # type: ignore[method-assign]
    short = "short" in sys.argv
    if short:
        slice_sizing.FIRST = slice_sizing.LEAST = SHORT
        SliceSizing.learn = lambda self, *_: None  # type: ignore[method-assign]
    planned = plan()
    engine: ForkedWorkers | LocalEngine = ForkedWorkers(planned, workers) if workers > 1 else LocalEngine(planned, 1)
    answers, kinds = [], []
    for kind, lower, upper, inputs in epochs(planned, engine.heap, seed, short):
        led.clear()
        answers.append(changes(engine.run_epoch(lower, upper, inputs)))
        kinds.append([kind, any(led)])
        if isinstance(engine, ForkedWorkers) and kind == "none":
            assert engine.state_bytes() > 0
    print(json.dumps([answers, kinds]), flush=True)
    if "idle" in sys.argv:
        signal.pause()
    engine.close()


if __name__ == "__main__":
    main()
