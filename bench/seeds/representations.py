"""What the representations of a batch cost: the formulas of "Differential dataflow roadmap", and measured bytes.

The article writes updates down as `((key, val), time, diff)`, as a trie (keys and where their vals begin, vals and
where their history begins, times and diffs), and suggests tries by time first, tries whose times are elided, and
mixtures. A batch of the storage is the trie, less the offsets that count 0, 1, 2 … and columns that are constant; so it
is the elided form where a batch has one time. bench/forms.py has the low-resolution, the time-first and the mixed form.

`curve`: 64-bit keys and vals by how many times a batch has and how long the history of a row is, the formulas beside
the bytes. `real`: all batches of programs that have run for a while, with retention and without: what each form would
take for them, and what the best choice for each single batch would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.edges import random_edges
from bench.forms import LowResolution, Mixed, TimeFirst, distinct, low_resolution_bytes, plain, rows_of
from bench.programs import program
from bench.seeds.experiment import Found, shown
from bench.stream import Stream, random_graph
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import MIN_TIME, Updates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORD = 8
EDGES = 1_000_000
UPDATES = 200_000
FORMULAS = {"raw": "raw", "trie": "trie", "elided": "no histories"}
FORMS = ("key_first", "low_resolution", "time_first", "mixed")
HEADS = {
    "key_first": "key first (ours)",
    "low_resolution": "low resolution",
    "time_first": "time first",
    "mixed": "mixed",
}
RUNS = {"degrees, nothing past kept": ("degrees", 1), "degrees, half of the updates kept": ("degrees", UPDATES // 2),
        "bfs, nothing past kept": ("bfs", 1), "bfs, half of the updates kept": ("bfs", UPDATES // 2)}  # fmt: skip
"""Program, and how many of its newest times views keep."""


def formulas(batch: Batch) -> dict[str, float]:
    """Bytes by the article's formulas, for words of eight bytes: raw, trie, trie without histories."""
    keys, vals, updates = distinct(batch)
    return {
        "raw": 4.0 * WORD * updates,
        "trie": 2.0 * WORD * (keys + vals + updates),
        "elided": 2.0 * WORD * keys + WORD * vals,
    }


def forms(batch: Batch) -> dict[str, int]:
    """Bytes of the batch in each form that can hold it; what they hold is compared."""
    found = {"key_first": batch.nbytes, "low_resolution": low_resolution_bytes(batch), "mixed": Mixed.of(batch).nbytes}
    if plain(batch):
        made = LowResolution.of(batch), TimeFirst.of(batch), Mixed.of(batch)
        for form in made:
            if not np.array_equal(form.rows(), rows_of(batch)):
                raise SystemExit(f"{type(form).__name__} holds other updates than the batch")
        found["time_first"] = made[1].nbytes
    return found


def curve(n: int) -> list[dict[str, Any]]:
    """Bytes an update: n updates by the number of times, and by the length of histories."""
    found = []
    for title, history, times in (
        ("one time (compacted)", 1, 1),
        ("1,000 times", 1, 1_000),
        ("a time each", 1, n),
        ("99 of 100 at one time, the others a time each", 1, -n),
        ("8 changes a row, 1,000 times", 8, 1_000),
        ("8 changes a row, a time each", 8, n),
    ):
        edges = np.repeat(random_edges(n // history), history, axis=0)
        at = np.arange(n)
        if times < 0:
            when = np.where(at % 100 == 0, at + 1, 0)
        else:
            # a row's changes are spread over all times, and no two of them share one
            first = np.random.default_rng(2).permutation(n // history).repeat(history) * times * history // n
            when = (first + at % history * (times // history)) % times
        batch = Batch.build(Updates.of(edges, when, 1), 1, 0, n + 1, 0)
        sizes = {**formulas(batch), **forms(batch)}
        found.append({"batch": title, **{f"{name}_bytes": round(size / n, 2) for name, size in sizes.items()}})
    return found


def real(n: int) -> dict[str, dict[str, Any]]:
    """The batches of running programs."""
    found = {}
    for title, (name, kept) in RUNS.items():
        worker = Worker(compile_app(program(name, f"{max(1, kept * n // UPDATES)}ns")))
        stream = Stream(random_graph(max(20, n // 4), n), n // 2)
        first = {"roots": Updates.of([[0]], [0], [1]), "edges": Updates(stream.first(), 2, 0)}
        worker.run_epoch(MIN_TIME, 1, first)
        step = max(1, n // 200)
        for at in range(0, n, step):
            moved = stream.updates(at, at + step, step, True)
            worker.run_epoch(at + 1, at + step + 1, {"edges": Updates(moved, 2, 0)})
        batches = [batch for trace in worker.state.traces.values() for batch in trace.batches if batch.updates]
        sizes = [forms(batch) for batch in batches]
        ours = sum(one["key_first"] for one in sizes)
        held = sum(batch.updates for batch in batches)
        found[title] = {
            "batches": len(batches),
            "updates": held,
            "at_one_time_ratio": round(sum(batch.updates for batch in batches if len(batch.times) <= 1) / held, 3),
            "key_first_mb": round(ours / 2**20, 2),
            "best_mb": round(sum(min(one.values()) for one in sizes) / 2**20, 2),
            "saved_ratio": round(1 - sum(min(one.values()) for one in sizes) / ours, 3),
            "best": {form: [min(one, key=one.__getitem__) for one in sizes].count(form) for form in FORMS},
        }  # fmt: skip
    return found


def representations(scale: float) -> Found:
    """The experiment."""
    by_times, running = curve(max(8_000, round(EDGES * scale))), real(max(1_000, round(UPDATES * scale)))
    sizes = [
        [one["batch"], *(shown(one[f"{name}_bytes"]) for name in ("raw", "trie", "elided", *FORMS))] for one in by_times
    ]
    held = [
        [
            title, f"{one['batches']}", f"{one['updates']:,}", f"{100 * one['at_one_time_ratio']:.0f} %",
            shown(one["key_first_mb"]), shown(one["best_mb"]), f"{100 * one['saved_ratio']:.0f} %",
            ", ".join(f"{HEADS[form]} {count}" for form, count in one["best"].items() if count),
        ]
        for title, one in running.items()
    ]  # fmt: skip

    def draw(axes: Sequence[Axes]) -> None:
        for place, name in enumerate(("raw", "trie", *FORMS)):
            heights = [one[f"{name}_bytes"] for one in by_times]
            axes[0].barh([at + 0.13 * place for at in range(len(by_times))], heights, 0.13, label=HEADS.get(name, name))
        axes[0].set_yticks(
            [at + 0.33 for at in range(len(by_times))], [one["batch"] for one in by_times], fontsize="x-small"
        )
        axes[0].set(xlabel="bytes an update")
        axes[0].legend(fontsize="x-small")

    tables = {
        "sizes": {
            "head": ["a batch with", *(f"formula: {name}" for name in FORMULAS.values()), *HEADS.values()],
            "rows": sizes,
        },
        "real": {
            "head": [
                "program", "batches", "updates in them", "in batches of one time", "key first (ours), MB",
                "the best form for each batch, MB", "saved", "which form is best for how many",
            ],
            "rows": held,
        },
    }  # fmt: skip
    return Found({"curve": by_times, "real": running}, tables, draw)
