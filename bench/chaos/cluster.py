"""A cluster under events: hosts that die, hang, are cut off, are slow; a store that refuses; brokers that go.

    python -m bench.chaos.cluster --events 30 --seed 7
    python -m bench.chaos.cluster --last 600 --journal FILE --most 1

Needs root: the hosts are network namespaces on this machine (tests/cluster). Three brokers with three copies of each
topic, Spark's master and two hosts of executors, an S3 server, two hosts with `vernier up --standby`, three with a
sidecar. They run bench/chaos/program.py (nested loops, text keys, all formats) under its load; answers are sampled from
all sidecars while random events happen, one after another. Each ends after 6 to 28 s, and the next one begins when
answers have gone on and what was lost is there again. With `--last`, each event lasts that long, most of them beside
events of other roles (bench/chaos/events.py). The journal has a line for each event after
which all was there again, if its run was right in the end; the next run leaves them out, and runs side by side may
share it.

For each event a line says how long it took from its beginning to the first commit with data that was sent after it,
and the longest time between two commits. `unsaid_s`: the longest time, beyond the first five seconds after a commit, in
which no sidecar that could be reached had /readyz say 503, so that nothing said what was waited for. In the end every
sample, output topic and dead letter is compared with a recomputation from the messages in the input topics. The report
is one line of JSON. The exit status is 1 when something is wrong; then the folder with the hosts' logs stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from bench.chaos.commits import Commits, Told
from bench.chaos.events import Event, Injector, Role, deck, groups
from bench.chaos.load import Load
from bench.chaos.memory import Group, Peaks
from bench.chaos.outcome import Outcome, Say, published
from bench.chaos.sources import SETTINGS, odd_settings, write_schemas
from bench.chaos.verify import SINKS, Findings
from bench.chaos.watch import Watch
from bench.record import record
from tests.cluster.hosts import S3_PORT, Cluster, RemoteService, cluster
from tests.cluster.network import missing
from tests.live.service import wait_for
from tests.storage.s3 import BUCKET, KEYS
from vernier.service.status import standby
from vernier.storage.blob.location import BlobLocation
from vernier.storage.errors import StorageError
from vernier.storage.state.state import LOCK

PROGRAM = Path(__file__).with_name("program.py")
BROKERS = ("broker-1", "broker-2", "broker-3")
EXECUTORS = {"executor-1": 8, "executor-2": 8}
"""More cores than the machine has: Spark counts them, and a driver that is cut off keeps its own for a while. A service
takes four cores for its two workers, two on each host."""
DRIVERS = ("driver-1", "driver-2")
SIDECARS = ("sidecar-1", "sidecar-2", "sidecar-3")
STATE = f"s3://{BUCKET}/cluster"
PATIENCE = 600.0
"""Seconds that a start may take on a busy machine."""
RECOVERY_SECONDS = 300.0
"""If no answer comes for this time after an event has ended, the run ends."""
LOAD_REQUEST_MS = 8_000
NEW_SECONDS = 30
"""Answers that are older are not new."""


@dataclass
class Report:
    """What happened, and which of it is an error. rows: a line for each event; settled: how many of them, all of which
    the service has survived; stopped: why no more events happened, if the service has not survived one."""

    seed: int
    settled: int = 0
    stopped: str = ""
    findings: Findings = field(default_factory=Findings)
    rows: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One line's worth."""
        pauses = defaultdict(list)
        for row in self.rows:
            pauses[row["kind"]].append(row["next_commit_s"])
        return {
            "bench": "chaos.cluster",
            "seed": self.seed,
            "right": not self.findings.wrong and not self.stopped,
            "events": len(self.rows),
            "next_commit_s": {kind: [min(found), max(found)] for kind, found in sorted(pauses.items())},
            "median_s": round(statistics.median([row["next_commit_s"] for row in self.rows] or [0]), 1),
            "longest_s": max([row["next_commit_s"] for row in self.rows] or [0]),
            "compared": dict(self.findings.compared),
            **self.numbers,
            "rows": self.rows,
            "wrong": self.wrong[:50],
        }

    @property
    def wrong(self) -> list[str]:
        """All errors."""
        return [self.stopped] * bool(self.stopped) + self.findings.wrong


@dataclass(frozen=True, slots=True)
class Pace:
    """How often epochs are made. speed: of the load; heartbeat_ms: the silence after which there is an epoch."""

    speed: float
    heartbeat_ms: int


class Readers:
    """The sidecars, of which each question goes to one that answered the last time: what `Watch` asks."""

    def __init__(self, commits: Commits, chance: random.Random) -> None:
        self._commits, self._chance = commits, chance

    @property
    def url(self) -> str:
        """The address of a sidecar."""
        return self._chance.choice(self._commits.answering)

    def family(self) -> list[Any]:
        """No processes: memory is not watched here."""
        return []


class Run:
    """A running cluster with its service, load and observers."""

    def __init__(self, made: Cluster, folder: Path, report: Report, given: Pace, say: Say) -> None:
        self.made, self.report, self.say = made, report, say
        seed, speed = report.seed, given.speed
        self._heartbeat_ms = given.heartbeat_ms
        self.blob = BlobLocation.of(STATE).open()
        self.services = [self._service(name, folder) for name in DRIVERS]
        self.urls = [service.url for service in self.services] + [made.sidecar(name) for name in SIDECARS]
        self.commits = Commits(self.urls)
        chance = random.Random(f"cluster {seed}")
        self.load = Load(made.bootstrap, seed, speed, foreign=False, request_ms=LOAD_REQUEST_MS)
        watched: Any = Readers(self.commits, chance)
        self.watch = Watch(watched, Peaks(Group("", None)), seed, every=0.5)
        self.injector = Injector(made, self.find, chance)
        self._chance = chance

    def _service(self, name: str, folder: Path) -> RemoteService:
        return self.made.service(
            name,
            2,
            folder / PROGRAM.name,
            sources=SETTINGS | odd_settings(folder),
            sinks=SINKS,
            state={"standby": True},
            epoch={"heartbeat_ms": self._heartbeat_ms},
            spark={"driver_memory": "512m", "conf": {"spark.cores.max": "4"}},
            worker_memory_max_mb=512,
        )

    def start(self) -> None:
        """Start the service, its standby, load and observers."""
        for service in self.services:
            service.launch()
        self.commits.start()
        wait_for("the service is up", lambda: self.commits.newest is not None or self._sound(), PATIENCE)
        self.say("the service is up")
        self.load.start()
        self.watch.start()
        wait_for("the first answers", lambda: self.watch.frontier > 0 or self._sound(), PATIENCE)
        self.load.poisoning.set()

    def happen(self, number: int, events: Sequence[Event]) -> None:
        """Wait until all is there, let events happen at once, wait until answers go on."""
        self._settle()
        what = ", ".join(map(str, events))
        began, began_ns = time.monotonic(), time.time_ns()
        told = Told(self.commits)
        told.start()
        hosts = self.injector.do(events)
        ended, ended_ns = time.monotonic(), time.time_ns()
        later = lambda since: self.commits.first(since) or self._sound()  # noqa: E731
        wait_for(f"commits go on after {what}", lambda: later(ended_ns), RECOVERY_SECONDS)
        at, _ = later(began_ns)
        back, _ = later(ended_ns)
        pause = self.commits.longest(began, time.monotonic())
        told.finish()
        for event, host in zip(events, hosts, strict=True):
            row = {
                "kind": event.kind,
                "role": event.role,
                "host": host,
                "lasted_s": round(ended - began, 1),
                "next_commit_s": round(at - began, 1),
                "pause_s": round(pause, 1),
                "back_s": round(max(0.0, back - ended), 1),
                "unsaid_s": round(told.unsaid, 1),
                "said": told.reasons,
            }
            self.report.rows.append(row)
        self.say(
            f"{number:2}. {what} ({', '.join(hosts)}): "
            f"next commit after {at - began:.1f} s, longest pause {pause:.1f} s, "
            f"again {max(0.0, back - ended):.1f} s after the end, {told.unsaid:.1f} s without a word "
            f"({len(self.watch.samples)} samples, {self.load.sent} messages, epoch {self.commits.epoch})"
        )

    def finish(self, config: Path) -> Outcome:
        """End the load, wait until all of it is final and published, and read what there is."""
        self.say("the load ends")
        end = self.load.finish()
        wait_for("all that was sent is final", lambda: self.watch.frontier >= end or self._sound(), RECOVERY_SECONDS)
        wait_for("all of it is published", lambda: published(self.urls[-1], end) or self._sound(), RECOVERY_SECONDS)
        self.watch.sample(end - 1)
        self.close()
        self.say("reading the topics")
        return Outcome.read(self.urls[-1], self.made.bootstrap, config)

    def happen_all(self, turns: Sequence[Sequence[Event]]) -> None:
        """Let all events happen, or those up to one that the service does not survive."""
        try:
            for number, events in enumerate(turns, 1):
                self.happen(number, events)
            self._settle()
        except AssertionError as error:
            self.report.stopped = str(error)
            self.say(f"no more events: {error}")

    def close(self) -> None:
        """Stop load and observers."""
        for one in (self.watch.stopped, self.load.stopping, self.commits.stopped):
            one.set()
        if self.watch.is_alive():
            self.watch.join(60)

    def find(self, role: Role) -> str:
        """A host that has the role now."""
        owner = self.blob.owner(LOCK)
        active = owner.host if owner is not None else ""
        match role:
            case "driver":
                return active
            case "standby":
                return next(name for name in DRIVERS if name != active)
            case "executor" | "executors":
                return self._chance.choice(sorted(EXECUTORS))
            case "broker":
                return self._chance.choice(BROKERS)
            case "sidecar":
                return self._chance.choice(SIDECARS)
            case "store" | "master":
                return role

    def _settle(self) -> None:
        """Wait until all is there again."""
        wait_for("the cluster is whole again", lambda: self._whole() or self._sound(), PATIENCE)
        self.report.settled = len(self.report.rows)

    def _whole(self) -> bool:
        """Whether a driver and a standby, all sidecars and all copies of topics are there, and answers are new."""
        with contextlib.suppress(KafkaError, StorageError):
            return self._answers() and self._stands_by() and self._copied()
        return False

    def _answers(self) -> bool:
        newest = self.commits.newest
        new = newest is not None and time.time_ns() - newest < NEW_SECONDS * 10**9
        return new and len(self.commits.answering) == len(self.urls)

    def _stands_by(self) -> bool:
        owner = self.blob.owner(LOCK)
        if owner is None or owner.host not in DRIVERS or (owner.left_ms or 0) <= 0:
            return False
        other = next(name for name in DRIVERS if name != owner.host)
        return any(name.startswith(other) for name in standby.living(self.blob))

    def _copied(self) -> bool:
        admin = KafkaAdminClient(bootstrap_servers=self.made.bootstrap, request_timeout_ms=5000)
        try:
            there = [part for topic in admin.describe_topics() for part in topic["partitions"]]
        finally:
            admin.close()
        return all(len(part["isr_nodes"]) == len(BROKERS) for part in there)

    def _sound(self) -> bool:
        """False; raises what makes waiting vain."""
        for service in self.services:
            process = service.process
            if process is not None and process.poll() not in (None, -signal.SIGKILL):
                said = service.machine.log.read_text("utf-8", "replace").splitlines()[-3:]
                raise AssertionError(f"vernier up on {service.machine.host.name} ended by itself: {said}")
        if self.load.failure is not None:
            raise AssertionError(f"the load could not be sent: {self.load.failure!r}")
        if self.watch.wrong:
            raise AssertionError(self.watch.wrong[0])
        return False


def run(events: Sequence[Sequence[Event]], seed: int, pace: Pace, say: Say, folder: Path) -> Report:
    """Run everything. Errors are in the report."""
    report = Report(seed)
    shutil.copyfile(PROGRAM, folder / PROGRAM.name)
    write_schemas(folder)
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            made = stack.enter_context(
                cluster(folder / "hosts", EXECUTORS, [*DRIVERS, *SIDECARS], PATIENCE, brokers=BROKERS)
            )
            address = made.machines["store"].host.address
            before = {name: os.environ.get(name) for name in (*KEYS, "AWS_ENDPOINT_URL")}
            os.environ.update(KEYS | {"AWS_ENDPOINT_URL": f"http://{address}:{S3_PORT}"})
            stack.callback(_restore, before)
            one = Run(made, folder, report, pace, say)
            stack.callback(one.close)
            one.start()
            say(f"answers after {time.monotonic() - began:.0f} s")
            one.happen_all(events)
            report.numbers["seconds"] = round(time.monotonic() - began)
            outcome = one.finish(one.services[0].config)
        updates = outcome.compare(one.watch, report.findings, say)
        report.numbers |= {
            "messages": one.load.sent,
            "hostile": one.load.hostile_sent,
            "updates": updates,
            "epochs": one.commits.epoch,
            "answers": {str(status): count for status, count in sorted(one.watch.statuses.items())},
            "skewed": dict(outcome.skewed),
        }
    except AssertionError as error:
        report.findings.add(str(error))
    except Exception as error:
        report.findings.add("".join(traceback.format_exception(error)))
    return report


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def table(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Seconds until the next commit by kind and role, the longest of each."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        found[row["role"], row["kind"]].append(row["next_commit_s"])
    return {
        "head": ["event", "times", "next commit after, s"],
        "rows": [[f"{role} {kind}", len(times), max(times)] for (role, kind), times in sorted(found.items())],
    }


def lasting(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """What happened while events lasted, and after them."""
    names = ("lasted_s", "pause_s", "back_s", "unsaid_s")
    return {
        "head": ["event", "lasted, s", "longest pause, s", "commits after its end, s", "without a word, s"],
        "rows": [
            [f"{row['role']} {row['kind']}", *(str(row[name]) for name in names)]
            for row in sorted(rows, key=lambda row: (row["role"], row["kind"]))
        ],
    }


def read(journal: Path | None) -> list[dict[str, Any]]:
    """The journal's lines; none if it is not there yet."""
    if journal is None or not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_text("utf-8").splitlines()]


def main() -> int:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.chaos.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None, help="default: one of chance, which the report names")
    parser.add_argument("--speed", type=float, default=0.4, help="of the load; 1 is some 30 updates a second")
    parser.add_argument("--heartbeat-ms", type=int, default=500, help="silence after which the service makes an epoch")
    parser.add_argument("--last", type=float, default=0.0, metavar="SECONDS", help="each event once, for as long")
    parser.add_argument("--only", default="", help="events whose text has this, with those beside them")
    parser.add_argument("--most", type=int, default=None, help="how many events, or groups of them, at most")
    parser.add_argument("--skip", type=int, default=0, help="how many of them a run beside this one makes")
    parser.add_argument(
        "--journal", type=Path, default=None, metavar="FILE", help="events that were right, a line each"
    )
    given = parser.parse_args()
    if why := missing():
        raise SystemExit(f"bench: {why}")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 31)

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} cluster: {text}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    events = (
        groups(given.last, [(row["kind"], row["role"]) for row in read(given.journal)])
        if given.last
        else [(event,) for event in deck(seed, given.events)]
    )
    events = [group for group in events if any(given.only in str(one) for one in group)][given.skip :][: given.most]
    said = Counter(event.kind for group in events for event in group)
    say(f"seed {seed}, {sum(said.values())} events in {len(events)} turns: {dict(said)}")
    # Not in /tmp: each host has another one.
    folder = Path(tempfile.mkdtemp(prefix="vernier-cluster-", dir="/var/tmp"))
    report = run(events, seed, Pace(given.speed, given.heartbeat_ms), say, folder)
    text = json.dumps(report.to_json())
    print(text, flush=True)
    if given.journal is None:
        record(json.loads(text), key=f"events-{seed}", tables={"events": table(report.rows)})
    elif not report.findings.wrong and report.settled:
        what = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "load": round(os.getloadavg()[0], 1)}
        with given.journal.open("a", encoding="utf-8") as lines:
            lines.write("".join(json.dumps(row | what) + "\n" for row in report.rows[: report.settled]))
        rows = read(given.journal)
        record({"seconds": given.last, "rows": rows}, key="lasting", tables={"lasting": lasting(rows)})
    for problem in report.wrong:
        say(f"WRONG: {problem}")
    if report.wrong:
        say(f"the hosts' logs and folders are kept in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
