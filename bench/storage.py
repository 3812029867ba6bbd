"""State at rest and in use: bytes, building, merging and looking up, beside other stores of the same edges.

n distinct edges (key: source, val: target, each an int64) among n / 4 nodes, each update at its own time. Beside our
trace: numpy (columns sorted by key, searchsorted), duckdb (a table with an index), and differential dataflow's own
spine in Rust (bench/peers/spine, built with cargo; left out, and said, where there is none). Every look-up's answer is
compared. All on one thread, in seconds of CPU. One JSON line; `--plot` draws docs/images/bench-storage.png from it.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from bench.cargo import CannotBuild, built
from bench.edges import random_edges, write_words
from bench.forms import LowResolution, TimeFirst, rows_of
from bench.record import tell
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.trace.batch import Batch, keyed_rows
from vernier.storage.trace.cursor import Cursor
from vernier.storage.trace.merge import Merge
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints, Updates

TURNS = 100


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and its result. Not wall-clock time: other work on the machine must not count."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def averaged(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, averaged over many after a first one; and its result."""
    result = work()
    seconds, _ = timed(lambda: [work() for _ in range(TURNS)])
    return seconds / TURNS, result


def checksum(vals: Ints, counts: Ints) -> int:
    """The result that all stores must agree on: the sum of vals times their counts, modulo 2**64."""
    with np.errstate(over="ignore"):
        return int((vals * counts).sum())


def updates_of(edges: Ints, first: int, stop: int) -> Updates:
    """Edges first..stop-1; edge i is inserted at time i."""
    return Updates.of(edges[first:stop], np.arange(first, stop), 1)


def ours(edges: Ints, keys: Ints, batch: int) -> dict[str, Any]:
    """Insert in batches into a trace that compacts times as it goes; look up; build and merge two halves."""
    n = len(edges)
    trace, longest = Trace("edges", 1, 1, 0), 0.0
    began = time.process_time()
    for first in range(0, n, batch):
        step, stop = time.process_time(), min(n, first + batch)
        trace.seal(keyed_rows(updates_of(edges, first, stop), 1), first, stop)
        trace.close_slice(stop)
        longest = max(longest, time.process_time() - step)
    insert = time.process_time() - began
    asked = key_rows(keys.reshape(-1, 1), np.arange(1), np.empty(0, np.int64), 0)
    asked = np.ascontiguousarray(asked[np.argsort(asked[:, 0])])
    cursor = Cursor(trace.batches, 1, 1, 0)
    look_up, selected = averaged(lambda: cursor.look_up(asked))
    found = selected.dense()

    def half(first: int, stop: int) -> Batch:
        return Batch.build(updates_of(edges, first, stop), 1, first, stop, first)

    build, (one, two) = timed(lambda: (half(0, n // 2), half(n // 2, n)))
    merge, merged = timed(lambda: Merge(one, two, n).finish())
    return {
        "insert_s": insert, "longest_insert_s": longest, "batches": len(trace.batches), "look_up_s": look_up,
        "found": checksum(found.entries[:, 0], found.entries[:, -1]), "build_s": build, "merge_s": merge,
        "merged": merged.updates,
    }  # fmt: skip


def numpys(edges: Ints, keys: Ints) -> dict[str, Any]:
    """Sorted columns: the floor for one batch that never changes."""

    def look_up() -> int:
        first, stop = np.searchsorted(source, keys), np.searchsorted(source, keys, side="right")
        sizes = stop - first
        places = np.repeat(first - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes) + np.arange(sizes.sum())
        return checksum(target[places], np.ones(len(places), np.int64))

    def sorted_by_key(rows: Ints) -> Ints:
        ordered: Ints = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        return ordered

    half = len(edges) // 2
    build, halves = timed(lambda: [sorted_by_key(edges[:half]), sorted_by_key(edges[half:])])
    merge, whole = timed(lambda: sorted_by_key(np.concatenate(halves)))
    source, target = np.ascontiguousarray(whole[:, 0]), np.ascontiguousarray(whole[:, 1])
    seconds, found = averaged(look_up)
    return {"look_up_s": seconds, "found": found, "build_s": build, "merge_s": merge, "batches": 1}


def duckdbs(edges: Ints, keys: Ints) -> dict[str, Any]:
    """A table in memory with an index on its key, one thread."""
    with duckdb.connect(config={"threads": 1}) as database:
        columns = {"source": edges[:, 0].copy(), "target": edges[:, 1].copy()}
        database.register("given", columns)
        build, _ = timed(lambda: database.execute("create table edges as select * from given order by source, target"))
        index, _ = timed(lambda: database.execute("create index by_source on edges (source)"))
        database.register("asked", {"key": keys.copy()})
        query = "select sum(target::hugeint)::varchar from edges where source in (select key from asked)"
        seconds, rows = averaged(lambda: database.execute(query).fetchone())
    return {"look_up_s": seconds, "found": int(rows[0] or 0), "build_s": build + index, "batches": 1}


def rusts(edges: Ints, keys: Ints, batch: int, folder: Path) -> dict[str, Any] | str:
    """Differential dataflow's spine; a sentence where it cannot be built."""
    try:
        program = built("spine")
    except CannotBuild as reason:
        return str(reason)
    write_words(folder / "edges", edges)
    write_words(folder / "keys", keys)
    peer = [str(program), str(folder / "edges"), str(folder / "keys"), str(batch)]
    run = subprocess.run(peer, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def at_rest(edges: Ints) -> dict[str, Any]:
    """Bytes an update at rest by how many distinct times there are, for three representations of the same updates.

    key_first: our batches. low_resolution and time_first: bench/forms.py; what they hold is compared with the batch.
    raw: the two columns of the edges alone.
    """
    n = len(edges)
    curve = []
    for times in (1, 1_000, 100_000, n):
        if times > n:
            continue
        batch = Batch.build(Updates.of(edges, np.arange(n) * times // n, 1), 1, 0, n, 0)
        sizes = {"times": times, "key_first": batch.nbytes / n}
        for name, form in (("low_resolution", LowResolution.of(batch)), ("time_first", TimeFirst.of(batch))):
            if not np.array_equal(form.rows(), rows_of(batch)):
                raise SystemExit(f"the {name} form holds other updates than the batch")
            sizes[name] = form.nbytes / n
        curve.append(sizes)
    return {"raw": 16.0, "curve": curve}


def plot(result: dict[str, Any], path: Path) -> None:
    """Bytes at rest as a curve, the rest as bars."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    rest, *bars = figure.subplots(1, 4, width_ratios=[1.5, 1, 1, 1])
    curve = result["at_rest"]["curve"]
    for name in ("key_first", "low_resolution", "time_first"):
        rest.plot([at["times"] for at in curve], [at[name] for at in curve], marker="o", label=name.replace("_", " "))
    rest.axhline(result["at_rest"]["raw"], color="gray", linestyle=":", label="raw columns")
    rest.set(xscale="log", xlabel="distinct times", ylabel="bytes an update", ylim=(0, None), title="at rest")
    rest.legend(fontsize="x-small")
    shown = {name: one for name, one in result["systems"].items() if isinstance(one, dict)}
    for axes, (key, unit, title) in zip(
        bars,
        (
            ("build_s", 1e9 / result["edges"], "build, ns an edge"),
            ("merge_s", 1e9 / result["edges"], "merge of two halves, ns an edge"),
            ("look_up_s", 1e6 / result["keys"], "look-up, µs a key"),
        ),
        strict=True,
    ):
        have = {name: one[key] * unit for name, one in shown.items() if key in one}
        axes.bar(list(have), list(have.values()))
        axes.set_title(title, fontsize="medium")
        axes.tick_params(axis="x", labelrotation=30, labelsize="small")
    figure.suptitle(f"{result['edges']:,} edges, {result['keys']:,} random keys", fontsize="medium")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run, compare the answers, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    small = random_edges(5_000)
    ours(small, small[:10, 0].copy(), 100)  # kernels are compiled or loaded
    edges = random_edges(args.edges)
    nodes = max(2, args.edges // 4)
    keys = np.sort(np.random.default_rng(1).choice(nodes, min(args.keys, nodes), replace=False))
    systems: dict[str, Any] = {"vernier": ours(edges, keys, args.batch)}
    systems["numpy"] = numpys(edges, keys)
    systems["duckdb"] = duckdbs(edges, keys)
    with tempfile.TemporaryDirectory() as folder:
        systems["differential"] = rusts(edges, keys, args.batch, Path(folder))
    found = {one["found"] for one in systems.values() if isinstance(one, dict)}
    if len(found) != 1:
        raise SystemExit(f"the systems' answers differ: {systems}")
    result = {
        "edges": args.edges, "keys": args.keys, "batch": args.batch, "at_rest": at_rest(edges), "systems": systems,
    }  # fmt: skip
    if args.plot:
        plot(result, args.plot)
    tell(result)


if __name__ == "__main__":
    main()
