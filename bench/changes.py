"""Thirty changes of a program on the state of a running service: exact, and without a gap for the views that stay?

    python -m bench.changes --rows 1000000 --kill-at 12

A service begins with a snapshot of uses of accounts and of links between them. It has two views that never change.
Beside them, a second program changes again and again (tests/operators/changes.py: views come, go, get columns, other
keys, joins, a loop, a delay), while uses keep coming. In the middle of one change the driver and all its workers are
killed. At the end the service has its first program again. After each change every view is compared with a rebuild: the
same program, in one process, on all rows up to the newest final time.

Gaps are those between two commits that move the frontier. Those of the time before the first change say how long an
epoch takes; the longest one while a program changes must be at most `--most` times the longest of these. The time of
the kill does not count; it is reported by itself, as is the time that a change takes. One JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
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
EACH, KINDS, CHAIN = 20, 5, 40
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
    programs it is of."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, workers: int) -> None:
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
        self.driver = Driver(folder, settings)
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

    def longest_gap(self, since: int, until: int) -> float:
        """The longest time in seconds between two commits, with the last one before `since` (ns)."""
        own = [at for at in list(self.commits) if at <= until]
        first = max((i for i, at in enumerate(own) if at <= since), default=0)
        return max(np.diff(own[first:]).tolist(), default=0) / 1e9

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


def rebuilt(views: Mapping[str, str], before: Mapping[str, Ints], sent: list[list[int]]) -> dict[str, Ints]:
    """The rows of the views, with their multiplicities, by a rebuild on all rows. The rows of the snapshots come
    first, a nanosecond apart from the others."""
    uses = np.vstack((before["uses"], np.array(sent, np.int64).reshape(-1, 3)))
    time = np.concatenate((np.full(len(before["uses"]), AT), AT + 1 + np.arange(len(sent))))
    inputs = {
        "uses": Updates.of(uses, time, np.ones(len(uses), np.int64)),
        "links": Updates.of(
            before["links"], np.full(len(before["links"]), AT), np.ones(len(before["links"]), np.int64)
        ),
    }
    app = listed.program(views)
    with LocalEngine(compile_app(app)) as engine:
        inputs = {name: one for name, one in inputs.items() if name in engine.plan.sources}
        changes = engine.run_epoch(AT, AT + 1 + len(sent), inputs)
    return {name: summed(np.column_stack((one.rows, one.diff))) for name, one in changes.items()}


def summed(rows: Ints) -> Ints:
    """Rows in order, each once with the sum of its multiplicities (the last column), without those that are gone."""
    if not len(rows):
        return rows
    keys, place = np.unique(rows[:, :-1], axis=0, return_inverse=True)
    count = np.zeros(len(keys), np.int64)
    np.add.at(count, place.reshape(-1), rows[:, -1])
    return np.column_stack((keys, count))[count != 0]


def compare(reader: Reader, views: Mapping[str, str], before: Mapping[str, Ints], uses: Uses) -> int:
    """Compare all views as of the newest final time, those that stay with numpy's sums; returns how many. Raises
    SystemExit."""
    reader.poll()
    found = reader.snapshot
    assert found is not None
    sent = uses.rows[: found.frontier - AT - 1]
    wanted = rebuilt(views, before, sent)
    every = np.vstack((before["uses"], np.array(sent, np.int64).reshape(-1, 3)))
    counts, spent = np.bincount(every[:, 1]), np.bincount(every[:, 1], every[:, 2]).astype(np.int64)
    wanted["fixed"] = np.column_stack((np.arange(KINDS), counts, spent, np.ones(KINDS, np.int64)))
    for name, rows in wanted.items():
        run = found.views[name].rows_as_of(found.frontier - 1).flat()
        mine = summed(np.column_stack((run.rows, run.counts)))
        if not np.array_equal(mine, rows):
            raise SystemExit(f"view {name} ({views.get(name)}) as of {found.frontier - 1} differs from a rebuild")
    return len(wanted)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=50_000)
    parser.add_argument("--changes", type=int, default=len(listed.CHANGES), help="the first ones of the list")
    parser.add_argument("--kill-at", type=int, default=12, help="kill in the middle of this change")
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
        gaps, seconds, back, compared = list[float](), list[float](), 0.0, 0
        service.driver.start()
        service.start()
        uses.start()
        try:
            service.wait(lambda _: len(service.commits) > args.base_epochs)
            # The first epochs also load and warm up.
            first = service.commits[1]
            epoch = service.longest_gap(first, time.time_ns())
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
                if number == args.kill_at:
                    service.wait(lambda one: FILE.read(service.state.blob) is not None or switched(one))  # noqa: B023
                    service.driver.kill()
                    killed = time.time_ns()
                    service.driver.start()
                    service.wait(lambda one: one.committed_ns > killed)  # noqa: B023
                    back = (time.time_ns() - killed) / 1e9
                newest = service.wait(switched)
                seconds.append((newest.committed_ns - began) / 1e9)
                last = newest.epoch + 2
                newest = service.wait(lambda one: one.epoch >= last)  # noqa: B023
                if number != args.kill_at:
                    gaps.append(service.longest_gap(began, newest.committed_ns))
                if registry.refused():
                    raise SystemExit(f"refused: {registry.refused()}")
                compared += compare(reader, views, before, uses)
        finally:
            uses.close()
            service.close()
            reader.close()
    longest = max(gaps)
    tell(
        {
            "rows": args.rows, "changes": len(seconds), "views_compared": compared, "uses_sent": len(uses.rows),
            "epoch_s": round(epoch, 3), "longest_gap_s": round(longest, 3), "gap_epochs": round(longest / epoch, 2),
            "median_change_s": round(float(np.median(seconds)), 2), "longest_change_s": round(max(seconds), 2),
            "way_back_s": round(back, 2), "load": round(os.getloadavg()[0], 1),
        }
    )  # fmt: skip
    if args.most and longest > args.most * epoch:
        raise SystemExit(f"the longest gap is {longest:.2f} s, {longest / epoch:.1f} epochs of {epoch:.2f} s")


if __name__ == "__main__":
    main()
