"""The experiments of the articles: `python -m bench.seeds [--only NAME,…] [--scale 0.01]`.

Each prints its values as a line of JSON and its tables to standard error, keeps both in bench/results/seeds.json under
its name and scale, and draws seeds-NAME.png into docs/images, or for smaller scales into build/plots. `python
tools/results.py write` puts the tables into docs/seeds.md. --scale makes graphs, inputs and numbers of updates smaller;
1 is the article's size.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from bench.record import ROOT, tell
from bench.seeds.compaction import compaction
from bench.seeds.counts import counts
from bench.seeds.experiment import Experiment, Found, Graph
from bench.seeds.latency import latency
from bench.seeds.people import people
from bench.seeds.representations import representations
from bench.seeds.throughput import SWEEPS, throughput
from bench.seeds.tpch import tpch
from bench.tables import table

EXPERIMENTS: dict[str, Experiment] = {
    "gnp1k": latency(Graph(1_000, 2_000), (100, 1_000, 10_000, 100_000)),
    "gnp1m": latency(Graph(10**6, 2 * 10**6), (100, 1_000, 10_000, 100_000)),
    **{name: throughput(sweep) for name, sweep in SWEEPS.items()},
    "people": people,
    "representations": representations,
    "counts10k": counts("small", Graph(10_000, 50_000)),
    "counts10m": counts("large", Graph(10**7, 5 * 10**7)),
    "tpch": tpch,
    "compaction": compaction,
}


def draw(found: Found, path: Path) -> None:
    """The picture of an experiment."""
    from matplotlib.figure import Figure

    if found.draw is None:
        return
    figure = Figure(figsize=(max(7, 5 * found.axes), 3.8), layout="constrained")
    found.draw(list(figure.subplots(1, found.axes, squeeze=False)[0]))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run, print, keep, draw."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.seeds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(EXPERIMENTS), help="names with commas between them")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--plots", type=Path, help="the folder of the pictures")
    given = parser.parse_args()
    names = given.only.split(",")
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment {unknown[0]}; there are {', '.join(EXPERIMENTS)}")
    os.chdir(ROOT)
    plots = given.plots or ROOT.joinpath(*(("docs", "images") if given.scale == 1 else ("build", "plots")))
    scaled = "" if given.scale == 1 else f" --scale {given.scale:g}"
    for name in names:
        began = time.monotonic()
        print(f"# {name}{scaled}", file=sys.stderr, flush=True)
        found = EXPERIMENTS[name](given.scale)
        for player, reason in found.left_out.items():
            print(f"# without {player}: {reason}", file=sys.stderr, flush=True)
        for one in found.tables.values():
            print(table(one["head"], one["rows"]), file=sys.stderr, end="\n\n", flush=True)
        values = {**found.values, "took_s": round(time.monotonic() - began, 1)}
        tell(values, f"{name}{scaled}", found.tables, f"python -m bench.seeds --only {name}{scaled}")
        draw(found, plots / f"seeds-{name}.png")


if __name__ == "__main__":
    main()
