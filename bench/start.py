"""How long people wait: a fresh clone to its first answer, a second start, a killed driver, all kernels compiled.

Each row is a command that a user types, in a clone of this checkout's commit in a temporary folder, with a home folder
of its own so that nothing is warm, and on free ports of loopback. An answer is rows of a view over HTTP; it is fresh
when it is final beyond the moment at which `make run` was typed. Prints a table, then one JSON line.

    python -m bench.start                 all rows; needs the network twice (600 MB), 8 GB of disk and some minutes
    python -m bench.start --rows second   a later start and a killed driver of this checkout alone, as it is set up
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.record import tell
from bench.through import free_port

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 3600
KILLS = 5


class Run:
    """`make run` in a checkout, on free ports, from the moment it is typed."""

    def __init__(self, checkout: Path, environment: dict[str, str], state: Path) -> None:
        self.port = free_port()
        flags = {
            "http.port": self.port,
            "kafka.bootstrap": f"127.0.0.1:{free_port()}",
            "state.path": state / "state",
            "kafka.data": state / "kafka",
            "log.directory": state / "logs",
        }
        words = " ".join(f"--set {key}={value}" for key, value in flags.items())
        self.began, self.began_ns = time.monotonic(), time.time_ns()
        self.log = state / "make.log"
        state.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["make", "run", f"ARGS={words}"],
                cwd=checkout,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def answer(self, *, fresh: bool) -> float:
        """Seconds until there are rows, or with `fresh` rows of after the start."""

        def there() -> bool:
            body = self.ask("/v1/views/histogram/rows")
            return bool(body["rows"]) and (not fresh or int(body["as_of"]) >= self.began_ns)

        return self.until(there) - self.began

    def ask(self, path: str) -> Any:
        """The sidecar's answer."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
            return json.load(response)

    def until(self, there: Callable[[], bool]) -> float:
        """The moment at which something holds."""
        while time.monotonic() - self.began < PATIENCE:
            if self.process.poll() is not None:
                raise SystemExit(f"make run ended: {self.log.read_text('utf-8', 'replace')[-2000:]}")
            try:
                if there():
                    return time.monotonic()
            except (OSError, urllib.error.URLError, ValueError, KeyError):
                pass
            time.sleep(0.02)
        raise SystemExit(f"no answer within {PATIENCE} s; the log is {self.log}")

    def processes(self) -> list[psutil.Process]:
        """make and all its child processes."""
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def cpu(self) -> float:
        """Seconds of processor that its processes have had so far, with the children that have ended."""
        total = 0.0
        for process in self.processes():
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.Error:
                continue
        return total

    def kill_driver(self) -> float:
        """Seconds from a kill -9 of the driver to a commit of the next one."""
        driver = next(one for one in self.processes() if "vernier.service.coordinator.driver" in one.cmdline())
        reached = self.ask("/v1/frontiers")["epoch"]
        killed = time.monotonic()
        driver.kill()
        # The sidecar shows within milliseconds what was committed at that moment.
        time.sleep(0.2)
        reached = max(reached, self.ask("/v1/frontiers")["epoch"])
        return self.until(lambda: self.ask("/v1/frontiers")["epoch"] > reached) - killed

    def stop(self) -> None:
        """Stop it as Ctrl-C does."""
        supervisor = next(
            (one for one in self.processes() if "vernier.service.supervision.demo" in one.cmdline()), None
        )
        if supervisor is not None:
            supervisor.send_signal(signal.SIGINT)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def alone(home: Path) -> dict[str, str]:
    """An environment without any user's caches. The variables for reaching registries stay."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VERNIER_", "NUMBA_", "PYTHON"))}
    for name in (
        "JAVA_HOME",
        "VIRTUAL_ENV",
        "UV_CACHE_DIR",
        "PIP_CACHE_DIR",
        "XDG_CACHE_HOME",
        "MAKEFLAGS",
        "MAKELEVEL",
    ):
        kept.pop(name, None)
    own = Path.home() / ".config" / "pip" / "pip.conf"
    if own.is_file():
        kept.setdefault("PIP_CONFIG_FILE", str(own))
    home.mkdir(parents=True, exist_ok=True)
    return kept | {"HOME": str(home), "TMPDIR": str(home)}


def clone(folder: Path) -> Path:
    """The checkout's commit, as a user gets it."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    subprocess.run(["git", "checkout", "--quiet", "--detach", head.strip()], cwd=folder, check=True)
    return folder


def started(checkout: Path, environment: dict[str, str], state: Path, then: Callable[[Run], None]) -> dict[str, float]:
    """One `make run`: seconds to the first answer and to the first fresh one, and what that took of the processors."""
    run = Run(checkout, environment, state)
    try:
        first = run.answer(fresh=False)
        fresh = run.answer(fresh=True)
        result = {"answer_s": round(first, 1), "fresh_answer_s": round(fresh, 1), "cpu_s": round(run.cpu(), 1)}
        then(run)
    finally:
        run.stop()
    return result


def compiled(checkout: Path, environment: dict[str, str]) -> dict[str, float]:
    """All kernels from nothing."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [checkout / ".venv" / "bin" / "python", "-m", "vernier.service.toolchain.setup", "kernels", "--force"]
    subprocess.run(command, cwd=checkout, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": round(cpu, 1), "wall_s": round(time.monotonic() - began, 1)}


def archives_made(checkout: Path) -> Callable[[Run], None]:
    """Waits until the first run has made the archives that later starts use."""

    def wait(run: Run) -> None:
        run.until(lambda: len(list((checkout / ".make" / "classes").glob("*.jsa"))) >= 2)

    return wait


def measured(rows: str, folder: Path) -> dict[str, Any]:
    """The selected rows, by name."""
    found: dict[str, Any] = {}
    kills: list[float] = []

    def kill(run: Run) -> None:
        for _ in range(KILLS):
            epoch = run.ask("/v1/frontiers")["epoch"]
            run.until(lambda epoch=epoch: run.ask("/v1/frontiers")["epoch"] > epoch + 5)  # type: ignore[misc]
            kills.append(run.kill_driver())

    if rows == "second":
        checkout, environment = ROOT, dict(os.environ)
        started(checkout, environment, folder / "state", lambda run: None)
    else:
        environment = alone(folder / "home")
        checkout = clone(folder / "first")
        found["fresh clone, no caches"] = started(checkout, environment, folder / "state", archives_made(checkout))
        again = clone(folder / "again")
        found["fresh clone, packages in the cache"] = started(again, environment, folder / "state2", lambda run: None)
        shutil.rmtree(again)
    found["second make run"] = started(checkout, environment, folder / "state", kill)
    found["kill -9 of the driver to the next commit"] = {
        "median_s": round(median(kills), 1),
        "all_s": [round(one, 1) for one in kills],
    }
    if rows != "second":
        found["all kernels from nothing"] = compiled(checkout, environment)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table and a JSON line."""
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--rows", choices=["all", "second"], default="all")
    parser.add_argument("--keep", action="store_true", help="leave the temporary folder there")
    given = parser.parse_args(arguments)
    # When the measurement is ended, the processes that it has started end, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    load = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="vernier-start-"))
    try:
        found = measured(given.rows, folder)
    finally:
        if given.keep:
            print(f"left in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    width = max(len(name) for name in found)
    for name, values in found.items():
        print(f"{name:<{width}}  " + "  ".join(f"{key} {value}" for key, value in values.items()), file=sys.stderr)
    tell({"bench": "start", "load_before": round(load, 2), "cores": os.cpu_count(), **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
