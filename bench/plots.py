"""The races as curves: `python -m bench.plots build/bench.jsonl docs/images/bench-race.png`.

What an update of bfs on 1,000 nodes and 2,000 edges takes over the size of a batch, by engine, single workers, CPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

STYLES = {"vernier": "C0", "differential": "C1", "pathway": "C2"}


def main() -> None:
    """Draw."""
    from matplotlib.figure import Figure

    curves: dict[str, dict[int, float]] = {}
    with Path(sys.argv[1]).open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            result = line["result"]
            if line["benchmark"] == "race" and (result["program"], result["nodes"]) == ("bfs", 1000):
                for name, one in result["players"].items():
                    if one["workers"] == 1:
                        curves.setdefault(name, {})[result["batch"]] = one["cpu_us"]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, points in sorted(curves.items()):
        engine, _, resolution = name.partition("/")
        sizes = sorted(points)
        style = {"color": STYLES.get(engine), "linestyle": "--" if resolution else "-", "marker": "o", "markersize": 4}
        label = f"{engine}, {'one time a batch' if resolution else 'every update its own time'}"
        axes.plot(sizes, [points[size] for size in sizes], label=label, **style)
    axes.set(
        xscale="log", yscale="log", xlabel="updates a batch", ylabel="CPU µs an update", title="bfs 1k/2k, one worker"
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    path = Path(sys.argv[2])
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
