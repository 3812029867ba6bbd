"""What fusing row-wise steps saves: a chain of five as one operator, against five operators of one step each.

    python -m bench.linear --rows 1024 --repeat 200

Both run in this process on the same updates, in turn; answers are compared. `steps` is the same five without the
kernel of operators/physical/stage_compiler.py, each a few numpy calls. Prints one JSON line: microseconds a batch
(medians), the ratios, and nanoseconds an update.
"""

import argparse
import os
import time
from collections.abc import Callable
from statistics import median

import numpy as np

import vernier as vn
from bench.record import tell
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.physical.stages import compile_chain, compile_stage
from vernier.operators.planning.ops import LinearOp
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.stages import Stage
from vernier.storage.updates import Ints


class Order(vn.Schema):
    """An order line."""

    customer: vn.Int64
    item: vn.Int64
    price: vn.Int64
    count: vn.Int64
    discount: vn.Int64 | None


def chain() -> tuple[tuple[Stage, ...], Worker]:
    """Five steps: two filters, two computations, a choice of columns; half of the rows remain."""
    app = vn.App("linear")
    orders = app.source("orders", Order)
    priced = orders.filter(col("count") > 0).with_columns(total=col("price") * col("count"))
    kept = priced.filter((col("total") > 100) & (col("customer") != 7))
    taxed = kept.with_columns(total=col("total") * 119 - col("price"))
    app.view("totals", taxed.select("customer", "total", "discount"))
    plan = compile_app(app)
    (stages,) = [op.stages for op in plan.ops if isinstance(op, LinearOp)]
    return stages, Worker(plan)


def updates(rows: int) -> Ints:
    """Order lines with times and diffs."""
    rng = np.random.default_rng(1)
    words = rng.integers(0, 100, (rows, 6))
    words[:, 4] = 1
    words[:, 3] = rng.integers(-1, 30, rows)
    return np.ascontiguousarray(np.column_stack((words, np.arange(rows), np.ones(rows, np.int64))))


def measure(runs: dict[str, Callable[[Ints], Ints]], data: Ints, repeat: int) -> dict[str, float]:
    """The median seconds of each, taken in turn; all must give the same."""
    first = {name: run(data) for name, run in runs.items()}
    answers = list(first.values())
    if any(not np.array_equal(answers[0], other) for other in answers[1:]):
        raise SystemExit("the answers differ")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            began = time.perf_counter()
            run(data)
            seconds[name].append(time.perf_counter() - began)
    return {name: median(each) for name, each in seconds.items()}


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=200)
    given = parser.parse_args()
    stages, worker = chain()
    data = updates(given.rows)
    widths = [data.shape[1] - 2]
    for stage in stages:
        widths.append(getattr(stage, "width", None) or len(getattr(stage, "words", ())) or widths[-1])
    alone = [compile_chain((stage,), width, 2, worker.root) for stage, width in zip(stages, widths)]
    steps = [compile_stage(stage, 2, worker.root) for stage in stages]

    def in_turn(parts: list[Callable[[Ints], Ints]]) -> Callable[[Ints], Ints]:
        def run(data: Ints) -> Ints:
            for part in parts:
                data = part(data)
            return data

        return run

    runs = {"fused": compile_chain(stages, widths[0], 2, worker.root), "five": in_turn(alone), "steps": in_turn(steps)}
    found = measure(runs, data, given.repeat)
    tell(
        {
            "rows": given.rows,
            "stages": len(stages),
            **{f"{name}_us": round(seconds * 1e6, 1) for name, seconds in found.items()},
            "fused_to_five": round(found["fused"] / found["five"], 2),
            "fused_to_steps": round(found["fused"] / found["steps"], 2),
            "fused_ns_per_update": round(found["fused"] / given.rows * 1e9, 1),
            "load": os.getloadavg()[0],
        }
    )


if __name__ == "__main__":
    main()
