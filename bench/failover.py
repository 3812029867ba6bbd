"""How long answers stand still when a part of the service dies: an executor of Spark, or the host of the driver.

`--what executor`: the demonstration's program on Spark's `local-cluster` (executors are processes of their own), of
which one executor is killed with -9. `--what driver`: two services on one state, one makes epochs and the other
stands by; all processes of the first one's host are killed with -9. `--state s3` puts the state into an S3 server; each
service then has a host name of its own (root only), so that the standby cannot see that the owner's processes have
ended: it waits until the owner has been silent for `state.lock_ms`, as on another machine. `--state file`: the kernel
frees the lock.

A pause is the longest time between two commits seen over HTTP, from the kill to a commit that has updates sent a second
after it, and, with executors, to eight seconds after another one has started, so that its first tasks are in it. A
standby is one that has warmed up. `first`: seconds from the kill to the first new commit; `stages`: the standby's own
account of them, from the lock on. `said`: seconds until /readyz names a reason, `logged`: until the log does (0: it
never had to). In the end all answers are compared with a recomputation. One JSON line: pauses in order, their median
and the longest; `stolen`: the share of the processors' time that the hypervisor gave to others.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.record import tell
from tests.live.service import Feeder, Service, wait_for
from tests.live.truth import Truth
from tests.storage.s3 import BUCKET, s3_server
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.status import standby
from vernier.storage.blob.location import BlobLocation

EXECUTOR = "CoarseGrainedExecutorBackend"
PATIENCE = 400.0
"""Seconds that a start may take on a busy machine; no part of a result."""
_NEW_HOST_NAME, _NEW_MOUNTS = 0x04000000, 0x00020000  # CLONE_NEWUTS, CLONE_NEWNS of sched.h
_BIND, _PRIVATE = 0x1000, 0x44000  # MS_BIND, MS_PRIVATE | MS_REC of mount.h
WARM_SECONDS = 8
"""Seconds of epochs before each kill, and with a new executor after it."""
LOOK_SECONDS = 0.5
_WARM = "micro-batches to warm up"
"""What a standby's log says when Spark is warm."""


def executors(service: Service) -> list[psutil.Process]:
    """The JVMs of Spark's executors."""
    return [one for one, _ in service.family() if any(EXECUTOR in part for part in one.cmdline())]


def another_machine(folder: Path) -> Callable[[], None]:
    """What makes a process, and those that it starts, believe in a host of their own, named as the folder is."""
    known = folder / "hosts"
    known.write_text(f"127.0.0.1 localhost {folder.name}\n", encoding="ascii")
    system = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        if (
            system.unshare(_NEW_HOST_NAME | _NEW_MOUNTS)
            or system.mount(b"none", b"/", None, _PRIVATE, None)
            or system.mount(bytes(known), b"/etc/hosts", None, _BIND, None)
        ):
            raise OSError(ctypes.get_errno(), "only root may give processes a host name of their own")
        socket.sethostname(folder.name)

    return enter


def pause(service: Service, over: Callable[[], bool] = lambda: True) -> dict[str, Any]:
    """Watch a service after a kill, until it has committed what was sent a second later and `over` is true."""
    began, killed_ns = time.monotonic(), time.time_ns()
    last, longest, said, first = service.frontier(), 0.0, 0.0, 0.0
    seen = began
    while last < killed_ns + 10**9 or not over():
        if time.monotonic() > began + 300:
            raise SystemExit("bench: no commit within 300 s")
        if not said:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{service.url}/readyz", timeout=2).status_code != 200:
                    said = time.monotonic() - began
        found = service.frontier()
        now = time.monotonic()
        if found > last:
            longest, seen, last = max(longest, now - seen), now, found
            first = first or now - began
        time.sleep(0.02)
    return {"pause_s": round(longest, 2), "said_s": round(said, 2), "first_s": round(first, 2)}


def replaced(service: Service, count: int) -> Callable[[], bool]:
    """Whether as many executors as that have been there for a while, at each call."""
    since = looked = 0.0

    def asked() -> bool:
        nonlocal since, looked
        now = time.monotonic()
        if not since and now > looked + LOOK_SECONDS:
            looked = now
            since = now if len(executors(service)) >= count else 0.0
        return bool(since) and now > since + WARM_SECONDS

    return asked


def logged(service: Service, killed: float) -> float:
    """Seconds from a kill until the driver's log says what is waited for; 0 if it never had to."""
    log = (service.folder / "logs" / "driver.log").read_text("utf-8", errors="replace")
    for at, ms in re.findall(r"^([\d-]+ [\d:]+),(\d{3}) WARNING vernier\.epoch epoch \d+ has not", log, re.MULTILINE):
        when = time.mktime(time.strptime(at, "%Y-%m-%d %H:%M:%S")) + int(ms) / 1e3
        if when >= killed:
            return round(when - killed, 2)
    return 0.0


def stages(service: Service) -> dict[str, float]:
    """What the standby's log says about the way from the lock to its first commit."""
    log = service.folder / "logs" / "driver.log"

    def said() -> list[str]:
        return re.findall(r"first commit [\d.]+ s after the lock: (.*)", log.read_text("utf-8", errors="replace"))

    line = wait_for("the standby's log has its stages", said)[-1]
    return {name.strip(): float(value) for name, value in re.findall(r"([\w ]+?) ([\d.]+) s", line)}


def executor(folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Kill executors, one after another."""
    truth, found = Truth(), []
    with EmbeddedBroker(folder / "kafka") as broker, contextlib.ExitStack() as stack:
        broker.create_topics({"graph": 2})
        spark = {"master": args.master, "conf": dict(one.split("=", 1) for one in args.conf)}
        settings: dict[str, Any] = {"spark": spark, "log": {"directory": str(folder / "logs")}}
        service = Service(folder, 2, patience=PATIENCE, kafka={"bootstrap": broker.bootstrap}, **settings)
        stack.enter_context(service)
        feeder = Feeder(broker.bootstrap, 2, 200, 5, truth)
        feeder.start()
        for _ in range(args.kills):
            warm(service)
            there, killed = executors(service), time.time()
            there[0].kill()
            there[0].wait(10)
            found.append(pause(service, replaced(service, len(there))))
            found[-1]["logged_s"] = logged(service, killed)
        finish(service, feeder, truth)
    return found


def driver(folder: Path, args: argparse.Namespace, state: str) -> list[dict[str, Any]]:
    """Kill hosts, one after another; each was a standby before."""
    truth, found = Truth(), []

    def service(number: int) -> Service:
        own = folder / f"host-{number}"
        own.mkdir()
        return Service(
            own,
            1,
            enter=another_machine(own) if args.state == "s3" else None,
            patience=PATIENCE,
            kafka={"bootstrap": broker.bootstrap},
            state={"path": state, "standby": True, "scratch": str(own / "scratch"), "cache": str(own / "cache")},
            log={"directory": str(own / "logs")},
        )

    with EmbeddedBroker(folder / "kafka") as broker, contextlib.ExitStack() as stack:
        broker.create_topics({"graph": 1})
        active = stack.enter_context(service(0))
        feeder = Feeder(broker.bootstrap, 1, 200, 5, truth)
        feeder.start()
        for number in range(1, args.kills + 1):
            warm(active)
            waiting = stack.enter_context(service(number))
            blob = BlobLocation.of(state).open()
            wait_for("the other one stands by", lambda blob=blob: standby.living(blob), PATIENCE)
            log = waiting.folder / "logs" / "driver.log"
            wait_for("it is warm", lambda log=log: _WARM in log.read_text("utf-8", errors="replace"), PATIENCE)
            warm(waiting)
            family = [process for process, _ in active.family()]
            for process in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            found.append(pause(waiting))
            found[-1]["stages"] = stages(waiting)
            psutil.wait_procs(family, timeout=10)
            active.process = None
            active = waiting
        finish(active, feeder, truth)
    return found


def stolen(before: Any) -> float:
    """The share of the processors' time, in percent, that the hypervisor has given to others since `before`."""
    took = [now - then for now, then in zip(psutil.cpu_times(), before, strict=True)]
    names = before._fields
    return round(100 * dict(zip(names, took, strict=True)).get("steal", 0.0) / max(1e-9, sum(took)), 1)


def warm(service: Service) -> None:
    """Wait until the service has made epochs for a while."""
    wait_for("the first answers", lambda: service.frontier() > 0, PATIENCE)
    until = time.time_ns() + WARM_SECONDS * 10**9
    wait_for("epochs go on", lambda: service.frontier() >= until, PATIENCE)


def finish(service: Service, feeder: Feeder, truth: Truth) -> None:
    """Compare the answers as of the end with a recomputation."""
    feeder.stop()
    end = feeder.frontier
    wait_for("everything sent is final", lambda: service.frontier() >= end, PATIENCE)
    last = service.read(end - 1)
    if last is None or last[1] != truth.answers(end - 1):
        raise SystemExit("bench: the answers are not those of a recomputation")


@contextlib.contextmanager
def place(folder: Path, kind: str) -> Iterator[str]:
    """Where the state lies."""
    if kind == "file":
        yield str(folder / "state")
        return
    with s3_server():
        yield f"s3://{BUCKET}/failover"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=("executor", "driver"), default="executor")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    parser.add_argument("--state", choices=("file", "s3"), default="file")
    args = parser.parse_args()
    before = psutil.cpu_times()
    with tempfile.TemporaryDirectory(prefix="f-") as name:
        folder = Path(name)
        if args.what == "executor":
            found = executor(folder, args)
        else:
            with place(folder, args.state) as state:
                found = driver(folder, args, state)
    pauses = [one["pause_s"] for one in found]
    result: dict[str, Any] = {
        "what": args.what,
        "kills": args.kills,
        "pauses_s": pauses,
        "median_s": round(statistics.median(pauses), 2),
        "longest_s": max(pauses),
        "first_s": [one["first_s"] for one in found],
        "said_s": [one["said_s"] for one in found],
        "logged_s": [one["logged_s"] for one in found if "logged_s" in one],
        "stages": [one["stages"] for one in found if one.get("stages")],
        "stolen_percent": stolen(before),
        "load": round(os.getloadavg()[0], 1),
    }
    tell(result)


if __name__ == "__main__":
    main()
