"""Thirty changes of a program on the state of a running service: exact, and without a gap for the views that stay?

    python -m bench.changes --rows 1000000 --kill-at 12

A service begins with a snapshot of uses of accounts and of links between them. It has two views that never change.
Beside them, a second program changes again and again (tests/operators/changes.py: views come, go, get columns, other
keys, joins, a loop, a delay), while uses keep coming. In the middle of one change a worker is killed, in the middle of
another one the driver with all its workers. At the end the service has its first program again. After each change every
view is compared, at several times from the change on, with what an engine has that had all views from the beginning and
got the same rows.

Gaps are those between two commits that move the frontier. Those of the time before the first change say how long an
epoch takes; the longest one while a program changes must be at most `--most` times the longest of these. The times of
the kills do not count; they are reported by themselves, as is the time that a change takes. One JSON line; a line for
each change goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kafka import KafkaProducer

from bench.driver import Driver
from bench.record import tell
from bench.stream import Ints
from tests.operators import changes as listed
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.service.config.programs import Program, Registry
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics
from vernier.service.status.change import FILE
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import Updates

AT = 1_000_000
EACH, KINDS, CHAIN, TIMES = 20, 5, 40, 4
PATIENCE = 600.0
LIST = Path(listed.__file__).read_text("utf-8")
FIXED = """
app = vn.App("fixed", retain="1h")
uses, links = app.source("uses", Use), app.source("links", Link)
app.view("fixed", uses.group_by("kind").agg(n=vn.count(), spent=vn.sum("spent")), key=["kind"])
app.view("payers", links.group_by("payer").agg(n=vn.count()), key=["payer"])
"""


def text_of(views: Mapping[str, str]) -> str:
    """The second program."""
    return (
        LIST.replace('vn.App("bank", retain=40)', 'vn.App("changing", retain="1h")') + f"\n\napp = program({views!r})\n"
    )


class Uses(threading.Thread):
    """Sends uses, a nanosecond apart; each message promises what comes before the next, to both topics. rows: all that
    were sent."""

    def __init__(self, bootstrap: str, accounts: int) -> None:
        super().__init__(daemon=True)
        self.rows: list[list[int]] = []
        self._accounts, self._chance = accounts, np.random.default_rng(2)
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
        self._over = threading.Event()

    def run(self) -> None:
        """Send until `close`."""
        while not self._over.wait(0.05):
            at = AT + 1 + len(self.rows)
            fresh = self._chance.integers(0, (self._accounts, KINDS, 100), (EACH, 3)).tolist()
            self.rows += fresh
            updates = [[row, str(at + i), 1] for i, row in enumerate(fresh)]
            promise = {"v": 1, "p": {"lower": ["0"], "upper": [str(at + len(fresh))]}}
            for topic, said in (("uses", {"v": 1, "t": str(at), "u": updates}), ("uses", promise), ("links", promise)):
                self._producer.send(topic, json.dumps(said).encode(), partition=0)

    def close(self) -> None:
        """Stop sending."""
        self._over.set()
        self.join()
        self._producer.close()


class Service(threading.Thread):
    """The driver on a folder. commits: of each epoch that has moved the frontier, when it was committed and which
    programs it is of. more: settings."""

    def __init__(
        self, folder: Path, broker: EmbeddedBroker, workers: int, more: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.state = StateDirectory(folder / "state")
        self.commits: list[int] = []
        (folder / "fixed.py").write_text(LIST + FIXED, "utf-8")
        settings: dict[str, object] = {
            "program": folder / "fixed.py", "workers": workers, "state.path": folder / "state", "state.keep": 4096,
            "state.keep_sources": True, "kafka.bootstrap": broker.bootstrap,
        }  # fmt: skip
        for name in ("uses", "links"):
            given = {"path": folder / f"{name}.parquet", "format": "parquet", "time": AT}
            settings[f"sources.{name}.clock"] = "event"
            settings |= {f"sources.{name}.snapshot.{key}": value for key, value in given.items()}
        self.driver = Driver(folder, settings | dict(more or {}))
        self._over = threading.Event()

    def run(self) -> None:
        """Note the commits."""
        known, upper = 0, 0
        while not self._over.wait(0.02):
            for epoch in range(known + 1, max(self.state.epochs(), default=0) + 1):
                manifest = self.state.manifest(epoch)
                known = epoch
                if manifest.upper > max(upper, AT):
                    upper = manifest.upper
                    self.commits.append(manifest.committed_ns)

    def newest(self) -> Manifest | None:
        """The newest commit. Raises SystemExit if the driver has ended."""
        self.driver.check()
        return self.state.latest()

    def wait(self, what: Callable[[Manifest], bool]) -> Manifest:
        """Wait for a commit of which something holds."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            newest = self.newest()
            if newest is not None and what(newest):
                return newest
            time.sleep(0.02)
        raise SystemExit("it took too long\n" + self.driver.said())

    def longest_gap(self, since: int, until: int) -> tuple[float, float]:
        """The longest time in seconds between two commits, with the last one before `since` (ns), and when it began:
        seconds after `since`."""
        own = [at for at in list(self.commits) if at <= until]
        first = max((i for i, at in enumerate(own) if at <= since), default=0)
        gaps = [(after - at, at) for at, after in zip(own[first:], own[first + 1 :])]
        longest, began = max(gaps, default=(0, since))
        return longest / 1e9, (began - since) / 1e9

    def kill_worker(self) -> None:
        """Kill one worker."""
        workers = [one for one in self.driver.family() if "vernier.service.cluster.daemon" in one.cmdline()]
        parents = {one.ppid() for one in workers}
        next(one for one in workers if one.pid not in parents).kill()

    def close(self) -> None:
        """End everything."""
        self._over.set()
        self.join()
        self.driver.kill()


def write_rows(folder: Path, rows: int, accounts: int) -> dict[str, Ints]:
    """Write the snapshots; returns their rows by source."""
    chance = np.random.default_rng(1)
    chain = np.arange(min(CHAIN, accounts - 1))
    found = {
        "uses": chance.integers(0, (accounts, KINDS, 100), (rows, 3)),
        "links": np.column_stack((chain, chain + 1)),
    }
    for name, names in (("uses", ("account", "kind", "spent")), ("links", ("payer", "account"))):
        pq.write_table(pa.table(dict(zip(names, found[name].T))), folder / f"{name}.parquet")
    return found


def fingerprint(rows: Ints) -> int:
    """A number for a multiset of rows, whose multiplicities are the last column: the sum of their rows' hashes. Two
    different multisets have the same one about once in 2**64."""
    mixed = np.zeros(len(rows), np.uint64)
    for column in rows[:, :-1].T:
        mixed += column.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return int((mixed * rows[:, -1].astype(np.uint64)).sum(dtype=np.uint64))


class Truth:
    """An engine that has had all views of the list from the beginning, and a sum by numpy for the view that stays. It
    gets what is sent, and knows a fingerprint of each view at every time."""

    def __init__(self, before: Mapping[str, Ints]) -> None:
        self._engine = LocalEngine(compile_app(listed.program({name: name for name in listed.VIEWS})))
        self._upper, self._sent = AT, 0
        self._base: dict[str, int] = dict.fromkeys(listed.VIEWS, 0)
        self._later: dict[str, list[Ints]] = {name: [] for name in listed.VIEWS}
        self._uses = [before["uses"]]
        self._payers = before["links"]
        inputs = {name: Updates.of(rows, AT, 1) for name, rows in before.items()}
        for name, changed in self._step(AT + 1, inputs).items():
            self._base[name] = fingerprint(np.column_stack((changed.rows, changed.diff)))
        self.follow([])

    def _step(self, upper: int, inputs: Mapping[str, Updates]) -> Mapping[str, Updates]:
        changes = self._engine.run_epoch(self._upper, upper, inputs)
        self._upper = upper
        return changes

    def follow(self, sent: list[list[int]]) -> None:
        """Take what was sent since the last call; sent: all of it."""
        fresh = np.array(sent[self._sent :], np.int64).reshape(-1, 3)
        if not len(fresh):
            return
        times = AT + 1 + self._sent + np.arange(len(fresh))
        self._sent = len(sent)
        self._uses.append(fresh)
        changes = self._step(int(times[-1]) + 1, {"uses": Updates.of(fresh, times, 1)})
        for name, changed in changes.items():
            self._later[name].append(np.column_stack((changed.time, changed.rows, changed.diff)))

    def of(self, view: str, at: int) -> int:
        """The fingerprint of one of the list's views as of a time."""
        found = self._base[view]
        for part in self._later[view]:
            found += fingerprint(part[part[:, 0] <= at, 1:])
        return found % 2**64

    def fixed(self, at: int) -> int:
        """That of the view that stays."""
        uses = np.concatenate(self._uses)[: len(self._uses[0]) + at - AT]
        self._uses = [self._uses[0], np.concatenate([np.empty((0, 3), np.int64), *self._uses[1:]])]
        counts, spent = np.bincount(uses[:, 1]), np.bincount(uses[:, 1], uses[:, 2]).astype(np.int64)
        return fingerprint(np.column_stack((np.arange(KINDS), counts, spent, np.ones(KINDS, np.int64))))

    def close(self) -> None:
        """End the engine."""
        self._engine.close()


def compare(reader: Reader, views: Mapping[str, str], truth: Truth, uses: Uses, since: int) -> int:
    """Compare all views at times from `since` to the newest final one; returns how many answers. Raises SystemExit."""
    reader.poll()
    found = reader.snapshot
    assert found is not None
    truth.follow(uses.rows[: found.frontier - AT - 1])
    times = np.unique(np.linspace(since, found.frontier - 1, TIMES).astype(np.int64)).tolist()
    for name in ("fixed", *views):
        for at in times:
            run = found.views[name].rows_as_of(at).flat()
            wanted = truth.fixed(at) if name == "fixed" else truth.of(views[name], at)
            if fingerprint(np.column_stack((run.rows, run.counts))) != wanted:
                raise SystemExit(f"view {name} ({views.get(name)}) as of {at} differs")
    return len(times) * (1 + len(views))


def said(what: str) -> None:
    """Show progress."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def tell_gaps(found: Mapping[str, object], gaps: Sequence[float], epoch: float, most: float) -> None:
    """Print what a run has found, its longest gap and the load. Raises SystemExit if the gap is longer than `most`
    epochs (0: it may be any), each `epoch` seconds."""
    longest = max(gaps)
    tell(
        {
            **found, "epoch_s": round(epoch, 3), "longest_gap_s": round(longest, 3),
            "gap_epochs": round(longest / epoch, 2), "load": round(os.getloadavg()[0], 1),
        }
    )  # fmt: skip
    if most and longest > most * epoch:
        raise SystemExit(f"the longest gap is {longest:.2f} s, {longest / epoch:.1f} epochs of {epoch:.2f} s")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=50_000)
    parser.add_argument("--changes", type=int, default=len(listed.CHANGES), help="the first ones of the list")
    parser.add_argument("--kill-at", type=int, default=12, help="kill in the middle of this change")
    parser.add_argument("--kill-worker-at", type=int, default=21, help="kill a worker in the middle of this change")
    parser.add_argument("--base-epochs", type=int, default=20, help="epochs before the first change")
    parser.add_argument("--most", type=float, default=2.0, help="the longest gap, in epochs; 0: any")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="changes-") as name, EmbeddedBroker(Path(name) / "kafka") as broker:
        folder = Path(name)
        before = write_rows(folder, args.rows, args.accounts)
        create_topics(broker.bootstrap, {"uses": 1, "links": 1})
        uses, service = Uses(broker.bootstrap, args.accounts), Service(folder, broker, args.workers)
        registry, reader = Registry(service.state.blob), Reader(folder / "state")
        gaps, seconds, back, compared = list[float](), list[float](), dict[int, float](), 0
        failures = 0
        said(f"{args.rows} rows written; the service starts")
        service.driver.start()
        service.start()
        truth = Truth(before)
        uses.start()
        try:
            service.wait(lambda _: len(service.commits) > args.base_epochs)
            # The first epochs also load and warm up.
            first = service.commits[1]
            epoch, _ = service.longest_gap(first, time.time_ns())
            said(f"epochs take up to {epoch:.2f} s")
            views: Mapping[str, str] = {}
            for number, views in enumerate([*listed.CHANGES[: args.changes], {}]):
                now = service.newest()
                assert now is not None
                was, began = now.program, time.time_ns()
                if number:
                    registry.remove("changing")
                if views:
                    registry.add(Program("changing.py", text_of(views)))
                names = {"fixed", "payers", *views}
                switched = lambda one, was=was, names=names: one.program != was and one.views.keys() == names  # noqa: E731
                if number in (args.kill_at, args.kill_worker_at):
                    service.wait(lambda one: FILE.read(service.state.blob) is not None or switched(one))  # noqa: B023
                    killed = time.time_ns()
                    if number == args.kill_at:
                        service.driver.kill()
                        service.driver.start()
                    else:
                        service.kill_worker()
                    service.wait(lambda one: one.committed_ns > killed)  # noqa: B023
                    back[number] = (time.time_ns() - killed) / 1e9
                newest = service.wait(switched)
                seconds.append((newest.committed_ns - began) / 1e9)
                since, last = newest.upper, newest.epoch + 2
                newest = service.wait(lambda one: one.epoch >= last)  # noqa: B023
                gap, at = service.longest_gap(began, newest.committed_ns)
                if number not in back:
                    gaps.append(gap)
                if registry.refused():
                    raise SystemExit(f"refused: {registry.refused()}")
                shown = time.monotonic()
                compared += compare(reader, views, truth, uses, since)
                took = time.monotonic() - shown
                about = f"longest gap {gap:.2f} s from {at:.2f} s on, compared in {took:.2f} s"
                said(f"change {number}: {seconds[-1]:.2f} s, {about}")
                for line in (failed := service.driver.failures())[failures:]:
                    said(line)
                failures = len(failed)
        finally:
            uses.close()
            service.close()
            reader.close()
            truth.close()
    tell_gaps(
        {
            "rows": args.rows, "changes": len(seconds), "answers_compared": compared, "uses_sent": len(uses.rows),
            "median_change_s": round(float(np.median(seconds)), 2), "longest_change_s": round(max(seconds), 2),
            "attempts_failed": failures,
            "way_back_s": round(back.get(args.kill_at, 0), 2),
            "worker_back_s": round(back.get(args.kill_worker_at, 0), 2),
        },
        gaps, epoch, args.most,
    )  # fmt: skip


if __name__ == "__main__":
    main()
