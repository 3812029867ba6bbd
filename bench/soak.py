"""Soak: runs the demonstration for a given time, and reports what grows meanwhile.

`python -m bench.soak --seconds 600 --retain 2m`: 1,000 changes a second through broker, Spark, workers and sidecar.
Every few seconds: memory of each process (resident, and of it what is no file's), its threads and open files; files and
bytes of the state directory, of the temporary folders (Spark's checkpoint among them), of the logs and of the broker's
data; the time from commit to commit; how old a change was when it came out of a change stream over HTTP.

At the end the input stops, and all views are compared with a walk through the graph, those that were followed from the
first change on also with the sum of all their changes. Prints one JSON line: of each series its mean in the third and
in the fourth quarter, a line through the second half, and whether that is flat. History (`retain`) is to be shorter
than half of the run, else it is filled as the run goes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from bench.record import tell
from bench.running import Running, demonstration, recount

FOLDERS = ("state", "tmp", "logs", "kafka")
FLAT = 0.05
"""A series is flat when the line through its second half rises by less than this part of its mean, or by less than:"""
NOISE = {
    "cpu_share": 0.02,
    "batches": 10,
    "resident_mb": 8.0,
    "own_mb": 8.0,
    "files": 20,
    "mb": 2.0,
    "threads": 3,
    "open": 10,
    "metrics_kb": 2.0,
}
_FIRST_NS = 10**18
"""The frontier is before this until there is data."""


@dataclass
class Followed:
    """A change stream that adds up its events. rows: by row, all diffs so far; ages: of its events, in seconds."""

    view: str
    rows: dict[tuple[int, ...], int] = field(default_factory=dict)
    ages: list[float] = field(default_factory=list)
    frontier: int = 0
    gaps: int = 0
    ended: bool = False

    def run(self, url: str, stop: threading.Event) -> None:
        """Follow from the snapshot on until stopped; an event that does not begin where the last one ended is a gap."""
        accept = {"Accept": "application/x-ndjson"}
        with httpx.stream("GET", f"{url}/v1/views/{self.view}/changes", headers=accept, timeout=60) as stream:
            for line in stream.iter_lines():
                self.take(json.loads(line), time.time_ns())
                if stop.is_set():
                    return
        self.ended = True

    def take(self, event: dict[str, Any], now_ns: int) -> None:
        """One event."""
        for row in event.get("rows", ()):
            count = row.pop("_diff", 1)
            self._add(tuple(row.values()), count)
        if event["event"] == "snapshot":
            self.frontier = int(event["frontier"])
        if event["event"] not in ("updates", "progress"):
            return
        lower, upper = int(event["lower"]), int(event["upper"])
        self.gaps += lower != self.frontier
        self.frontier = upper
        if lower > _FIRST_NS:
            self.ages.append((now_ns - (lower + upper) / 2) / 1e9)
        for change in event.get("changes", ()):
            self._add(tuple(change["row"].values()), change["diff"])

    def _add(self, row: tuple[int, ...], diff: int) -> None:
        count = self.rows.get(row, 0) + diff
        if count:
            self.rows[row] = count
        else:
            del self.rows[row]


@dataclass
class Sampler:
    """Records samples. series: by kind and name, (seconds, value)."""

    running: Running
    followed: Followed
    began: float = field(default_factory=time.monotonic)
    series: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    epoch: int = 0
    committed: list[int] = field(default_factory=list)
    seen: int = 0
    used: dict[int, tuple[float, float]] = field(default_factory=dict)

    def note(self, kind: str, name: str, value: float) -> None:
        """One value now."""
        self.series[kind, name].append((time.monotonic() - self.began, value))

    def sample(self) -> None:
        """All of it."""
        for name, process in self.running.processes().items():
            try:
                self._process(name, process)
            except (psutil.Error, FileNotFoundError, ProcessLookupError):
                continue
        for name in FOLDERS:
            files, size = measured(self.running.folder / name)
            self.note("files", name, files)
            self.note("mb", name, size / 2**20)
        traces = httpx.get(f"{self.running.url}/v1/traces", timeout=30).json()["traces"]
        self.note("mb", "batches in use", sum(trace["bytes"] for trace in traces) / 2**20)
        self.note("mupdates", "in views", sum(t["updates"] for t in traces if t.get("views")) / 1e6)
        self.note("mupdates", "in all traces", sum(t["updates"] for t in traces) / 1e6)
        self.note("batches", "of all traces", sum(len(shard) for trace in traces for shard in trace["shards"]))
        self.note("metrics_kb", "sidecar", len(httpx.get(f"{self.running.url}/metrics", timeout=30).content) / 1024)
        url = f"{self.running.url}/v1/epochs?limit=1200&after={self.epoch}"
        notes = httpx.get(url, timeout=30).json()["epochs"]
        if notes:
            before = self.committed[-1:]
            fresh = [int(note["committed"]) for note in notes]
            steps = np.diff(before + fresh) / 1e6
            self.committed, self.epoch = fresh, notes[-1]["epoch"]
            if len(steps):
                self.note("epoch_ms", "median", float(np.median(steps)))
                self.note("epoch_ms", "longest", float(steps.max()))
        ages = self.followed.ages[self.seen :]
        self.seen += len(ages)
        if ages:
            self.note("age_ms", "median", 1e3 * float(np.median(ages)))
            self.note("age_ms", "longest", 1e3 * max(ages))

    def _process(self, name: str, process: psutil.Process) -> None:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if ":" in line
        )
        if "VmRSS" not in status:
            return  # it is just ending: Java forks itself to start a command
        self.note("resident_mb", name, int(status["VmRSS"].split()[0]) / 1024)
        self.note("own_mb", name, int(status["RssAnon"].split()[0]) / 1024)
        self.note("threads", name, int(status["Threads"]))
        self.note("open", name, process.num_fds())
        times = process.cpu_times()
        used, (at, before) = times.user + times.system, self.used.get(process.pid, (0.0, 0.0))
        now = self.used[process.pid] = time.monotonic(), used
        if at:
            self.note("cpu_share", name, (used - before) / (now[0] - at))


def measured(folder: Path) -> tuple[int, int]:
    """Files below a folder and their bytes; files that disappear meanwhile do not count."""
    files = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.stat(os.path.join(parent, name)).st_size
                files += 1
            except OSError:
                continue
    return files, size


def judge(points: Sequence[tuple[float, float]], kind: str) -> dict[str, Any]:
    """The second half of a series as a line. rise: its increase; flat: whether that is negligible."""
    at, value = np.array(points).T
    late = at >= at[-1] / 2
    third, fourth = value[late & (at < 0.75 * at[-1])], value[at >= 0.75 * at[-1]]
    slope = float(np.polyfit(at[late], value[late], 1)[0])
    rise, mean = slope * (at[-1] - at[late][0]), float(value[late].mean())
    return {
        "third": round(float(third.mean()), 3),
        "fourth": round(float(fourth.mean()), 3),
        "rise": round(rise, 2),
        "an_hour": round(slope * 3600, 1),
        "flat": bool(rise <= max(FLAT * mean, NOISE.get(kind, 0))),
    }


def plot(series: dict[tuple[str, str], list[tuple[float, float]]], path: Path) -> None:
    """Memory, files, epochs and answers over the minutes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    kinds = (
        ("resident_mb", "resident memory, MB", None),
        ("own_mb", "of it no file's, MB", None),
        ("mb", "bytes on disk, MB", ("state", "batches in use", "tmp", "logs")),
        ("files", "files", ("state", "tmp", "logs")),
        ("epoch_ms", "from commit to commit, ms", None),
        ("age_ms", "age of a change when it is visible, ms", None),
    )
    for axes, (kind, title, only) in zip(panels, kinds, strict=True):
        for (what, name), points in series.items():
            if what == kind and (only is None or name in only):
                at, value = np.array(points).T
                axes.plot(at / 60, value, label=name, linewidth=1)
        axes.set(title=title, xlabel="minutes")
        axes.legend(fontsize=7)
        if kind in ("epoch_ms", "age_ms"):
            axes.set(yscale="log")
        else:
            axes.set(ylim=(0, None))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=float, default=1_000, help="changes a second")
    parser.add_argument("--retain", default="2m", help="history of the views")
    parser.add_argument("--every", type=float, default=5, help="seconds between samples")
    parser.add_argument("--warm", type=float, default=30, help="seconds before the first sample")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--series", type=Path, help="where all samples are written to, as JSON")
    given = parser.parse_args()
    plot_to, series_to = (path.absolute() if path else None for path in (given.plot, given.series))
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        demonstration(Path(folder), rate=given.rate, retain=given.retain) as running,
    ):
        stop = threading.Event()
        followed = [Followed("histogram"), Followed("reach")]
        threads = [threading.Thread(target=one.run, args=(running.url, stop)) for one in followed]
        for thread in threads:
            thread.start()
        time.sleep(given.warm)
        sampler = Sampler(running, followed[0])
        while (left := given.seconds - (time.monotonic() - sampler.began)) > 0:
            sampler.sample()
            time.sleep(min(left, given.every))
        changes, end = running.stop_producer()
        running.wait_for(end)
        rows, expected = running.rows(), recount(changes)
        while any(one.frontier < end and not one.ended for one in followed):
            time.sleep(0.1)
        stop.set()
        for thread in threads:
            thread.join()
    wrong = [name for name in expected if rows[name] != expected[name]]
    wrong += [f"changes of {one.view}" for one in followed if one.rows != expected[one.view] or one.gaps or one.ended]
    if wrong:
        raise SystemExit(f"bench: {', '.join(wrong)} differ from a recount after {changes} changes")
    if series_to is not None:
        listed = [{"kind": kind, "name": name, "points": points} for (kind, name), points in sampler.series.items()]
        series_to.write_text(json.dumps(listed), "utf-8")
    if plot_to is not None:
        plot(sampler.series, plot_to)
    judged: dict[str, dict[str, Any]] = defaultdict(dict)
    for (kind, name), points in sampler.series.items():
        if len(points) >= 8:
            judged[kind][name] = judge(points, kind)
    result = {
        "bench": "soak",
        "seconds": given.seconds,
        "rate": given.rate,
        "retain": given.retain,
        "changes": changes,
        "right": True,
        "not_flat": [
            f"{kind} {name}" for kind, names in judged.items() for name, one in names.items() if not one["flat"]
        ],
        "load": round(os.getloadavg()[0], 1),
        **judged,
    }
    tell(result)


if __name__ == "__main__":
    main()
