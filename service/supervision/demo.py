"""The live demonstration: `make run`, or `python -m vernier.service.supervision.demo [--set KEY=VALUE]… [--rate N]`.

It runs an embedded broker, the Spark query, the sidecar and a producer that changes a random graph continuously. State,
topic and logs stay in `.run/demo`; the next run continues from them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from vernier.service.config.settings import load
from vernier.service.supervision import class_archives
from vernier.service.supervision.child import Child
from vernier.service.supervision.supervisor import Supervisor, up
from vernier.service.toolchain.home import ROOT
from vernier.storage.errors import VernierError

CONFIG = "configs/demo.yaml"


def _producer(rate: float, supervisor: Supervisor) -> Child:
    arguments = [*supervisor.passed_on(), "--rate", f"{rate:g}"]
    log = supervisor.settings.log_directory / "producer.log"
    return Child("producer", "vernier.service.supervision.demo_producer", arguments, log, lambda: True, stop_seconds=10)


def _welcome(supervisor: Supervisor, seconds: float) -> None:
    url = supervisor.url
    print(
        f"""
Running after {seconds:.0f} s: 1,000 nodes, 2,000 edges, a change a millisecond.
Ctrl-C stops all; the next `make run` continues from there.

  the page    {url}
  one view    curl '{url}/v1/views/histogram?order=distance'
  changes     .venv/bin/vernier watch histogram --url {url}
  the logs    {supervisor.settings.log_directory}
""",
        flush=True,
    )


def _quicker_next_time(supervisor: Supervisor) -> Child | None:
    """Start a child that makes the class-data archives, once, at the lowest CPU priority; None if they exist."""
    if not class_archives.missing():
        return None
    log = supervisor.settings.log_directory / "archives.log"
    child = Child(
        "archives", "vernier.service.supervision.class_archives", ["--nice"], log, lambda: True, stop_seconds=20
    )
    child.start()
    return child


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration until Ctrl-C. Returns the exit status: 1, with one line on stderr, if it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m vernier.service.supervision.demo", description=__doc__)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, as in configs/")
    parser.add_argument("--rate", type=float, default=1_000, help="changes a second")
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {line}", flush=True)

    beside: list[Child] = []

    def ready(supervisor: Supervisor) -> None:
        _welcome(supervisor, time.monotonic() - began)
        if (child := _quicker_next_time(supervisor)) is not None:
            say("archives: being made now, so that the next start is quicker")
            beside.append(child)

    try:
        flags = dict(pair.split("=", 1) for pair in given.set)
        loaded = load(CONFIG, flags)
        up(
            loaded,
            CONFIG,
            flags,
            say=say,
            extra=[lambda supervisor: _producer(given.rate, supervisor)],
            on_ready=ready,
        )
    except VernierError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        for child in beside:
            child.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
