"""Run: a service under load and faults from its start to the comparison with the truth."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.chaos.disk import SmallDisk
from bench.chaos.explode import explode
from bench.chaos.faults import Fault, Trouble, disk_faults, schedule
from bench.chaos.load import Load
from bench.chaos.memory import Group, Peaks
from bench.chaos.outcome import Outcome, Say, published, ready
from bench.chaos.sources import SETTINGS, odd_settings, write_schemas
from bench.chaos.verify import SINKS, Findings
from bench.chaos.watch import Watch
from tests.live.service import Service, wait_for

PROGRAM = Path(__file__).with_name("program.py")
DISK_MB = 1024
READY_SECONDS = 60
"""After the last fault the service must report that it is ready within this time."""
START_SECONDS = 1800
"""How long the first start may take on a busy machine."""
RECOVERY_SECONDS = 600
"""If no answer comes for this time after a fault, the run ends."""


@dataclass(frozen=True)
class Plan:
    """The run's parameters. memory: bytes for the whole service; disk: whether it has a separate disk."""

    seconds: float
    seed: int
    memory: int | None = None
    workers: int = 2
    speed: float = 1.0
    foreign: bool = True
    """Whether hostile messages of all kinds are sent, too."""


@dataclass
class Report:
    """What happened, and which of it is an error."""

    plan: Plan
    findings: Findings = field(default_factory=Findings)
    faults: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One line's worth."""
        return {
            "bench": "chaos",
            "seed": self.plan.seed,
            "seconds": self.plan.seconds,
            "right": not self.findings.wrong,
            "faults": dict(sorted(self.faults.items())),
            "compared": dict(self.findings.compared),
            **self.numbers,
            "wrong": self.findings.wrong[:50],
        }


def run(plan: Plan, say: Say) -> Report:
    """Run everything. Errors are in the report; the folder is kept if there are any."""
    report = Report(plan)
    folder = Path(tempfile.mkdtemp(prefix="vernier-chaos-"))
    os.environ["TMPDIR"] = str(folder / "tmp")
    (folder / "tmp").mkdir()
    try:
        with SmallDisk(folder, DISK_MB) as disk, Group(f"vernier-chaos-{os.getpid()}", plan.memory) as group:
            say(
                f"in {folder}, state on {disk.kind or 'no disk of its own: it is never full'}, "
                f"memory in {group.kind or 'no group: it is watched'}"
            )
            _run(plan, folder, disk, group, report, say)
            if plan.memory is not None:
                report.numbers["exploding_join"] = explode(folder / "explode", group, say)
    except AssertionError as error:
        report.findings.add(str(error))
    except Exception as error:
        report.findings.add("".join(traceback.format_exception(error)))
    finally:
        os.environ.pop("TMPDIR")
        if report.findings.wrong or report.numbers.get("checked") is None:
            say(f"logs and state are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return report


def service_of(plan: Plan, folder: Path, disk: SmallDisk, group: Group) -> Service:
    """The service under chaos, not started."""
    program = folder / PROGRAM.name
    shutil.copyfile(PROGRAM, program)  # a checkout may change while a run goes on
    write_schemas(folder)
    limited: dict[str, Any] = {"worker_memory_mb": 512} if plan.memory is not None else {}
    return Service(
        folder,
        plan.workers,
        program,
        group.enter,
        START_SECONDS,
        sources=SETTINGS | odd_settings(folder),
        sinks=SINKS,
        state={"path": str(disk.folder / "state")},
        log={"directory": str(folder / "logs")},
        **limited,
    )


def _run(plan: Plan, folder: Path, disk: SmallDisk, group: Group, report: Report, say: Say) -> None:
    service = service_of(plan, folder, disk, group)
    peaks = Peaks(group)
    numbers, findings = report.numbers, report.findings
    with service:
        say(f"the service is up at {service.url}")
        load = Load(service.bootstrap, plan.seed, plan.speed, plan.foreign)
        watch = Watch(service, peaks, plan.seed)
        load.start()
        watch.start()
        try:
            wait_for("the first answers", lambda: watch.frontier > 0)
            load.poisoning.set()
            watch.aging = True
            trouble = Trouble(service, disk, random.Random(f"victims {plan.seed}"))
            _trouble(plan, trouble, load, watch, group, report, say)
            last = time.monotonic()
            wait_for("/readyz says yes after the last fault", lambda: ready(service.url), READY_SECONDS)
            numbers["ready_after_seconds"] = round(time.monotonic() - last, 1)
            say(f"ready {numbers['ready_after_seconds']} s after the last fault; the load ends")
            end = load.finish()
            wait_for("all that was sent is final", lambda: watch.frontier >= end, RECOVERY_SECONDS)
            wait_for("all of it is in the output topics", lambda: published(service.url, end), RECOVERY_SECONDS)
            watch.sample(end - 1)
        finally:
            watch.stopped.set()
            load.stopping.set()
            watch.join(60)
        say("reading the topics")
        outcome = Outcome.read(service.url, service.bootstrap, service.config)
        began = time.monotonic()
        service.stop()
        numbers["stopped_in_seconds"] = round(time.monotonic() - began, 1)
    updates = outcome.compare(watch, findings, say)
    if group.killed():
        findings.add(f"the kernel killed {group.killed()} processes for memory")
    if peaks.over:
        findings.add(f"the service had {peaks.whole >> 20} MB, {(group.limit or 0) >> 20} are its limit")
    numbers |= {
        "messages": load.sent,
        "hostile": load.hostile_sent,
        "updates": updates,
        "answers": {str(status): count for status, count in sorted(watch.statuses.items())},
        "oldest_answer_seconds": round(watch.oldest, 1),
        "longest_ending_seconds": round(trouble.longest_ending, 1),
        "slowest_send_seconds": round(load.slowest, 1),
        "skewed": outcome.skewed,
        "memory": group.kind or "watched",
        "memory_limit_mb": None if group.limit is None else group.limit >> 20,
        "killed_for_memory": group.killed(),
        "peak_mb": {"all at once": peaks.whole >> 20, "group, no files": peaks.grouped >> 20}
        | {role: size >> 20 for role, size in sorted(peaks.of.items())},
        "left_in_tmp": sorted(one.name for one in (folder / "tmp").iterdir())[:20],
        "checked": True,
    }


def _trouble(plan: Plan, trouble: Trouble, load: Load, watch: Watch, group: Group, report: Report, say: Say) -> None:
    """Inject fault after fault until the time is over; then wait for outstanding answers."""
    began = time.monotonic()
    full = disk_faults(plan.seed, plan.seconds)
    numbers = report.numbers
    numbers["longest_recovery_seconds"] = 0.0
    unanswered = 0
    for fault in schedule(plan.seed, plan.seconds):
        passed = time.monotonic() - began
        if full and passed >= full[0][0]:
            if unanswered:
                _recovered(fault, trouble.service, load, watch)
                unanswered = 0
            fault = full.pop(0)[1]
        if passed + fault.seconds >= plan.seconds:
            if fault.seconds and passed < plan.seconds:
                continue  # too long for what is left; another one is shorter
            break
        _sound(trouble.service, load, watch)
        at = time.monotonic()
        say(
            f"{passed:5.0f} s: {fault} ({len(watch.samples)} samples, {load.sent} messages, "
            f"{load.hostile_sent} hostile, oldest answer {watch.oldest:.0f} s, {group.used() >> 20} MB)"
        )
        done = trouble.do(fault)
        report.faults[f"{fault.kind} {fault.role}".strip() if done else f"nothing to {fault.kind}"] += 1
        unanswered = 0 if fault.waits else unanswered + 1
        if fault.waits or fault.starts or unanswered > 2:
            _recovered(fault, trouble.service, load, watch)
            took = time.monotonic() - at - fault.seconds
            if took > numbers["longest_recovery_seconds"]:
                numbers["longest_recovery_seconds"], numbers["longest_recovery_from"] = round(took, 1), str(fault)
            unanswered = 0
        threading.Event().wait(fault.pause)


def _sound(service: Service, load: Load, watch: Watch) -> None:
    process = service.process
    if process is None or process.poll() is not None:
        said = (service.folder / "up.log").read_text("utf-8", "replace").splitlines()
        raise AssertionError(f"vernier up ended by itself: {said[-1] if said else 'without a word'}")
    if load.failure is not None:
        raise AssertionError(f"the load could not be sent: {load.failure!r}")
    if watch.wrong:
        raise AssertionError(watch.wrong[0])


def _recovered(fault: Fault, service: Service, load: Load, watch: Watch) -> None:
    now = time.time_ns()

    def later() -> bool:
        _sound(service, load, watch)
        return watch.frontier > now

    wait_for(f"answers go on after {fault}", later, RECOVERY_SECONDS)


def line(report: Report) -> str:
    """The report as one line of JSON."""
    return json.dumps(report.to_json())
