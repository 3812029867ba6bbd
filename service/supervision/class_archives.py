"""Makes the class-data archives that the service's JVMs start from (see service/toolchain/jvm.py).

    python -m vernier.service.supervision.class_archives

A small service runs once in a temporary folder: a broker, Spark, a few epochs. When its JVMs end, they write the
classes that they loaded into archives. This takes one core for a minute and 200 MB of disk, and halves the start-up
cost of every later JVM. An archive belongs to one Java version and one class path; when either changes, it is made
again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from vernier.service.errors import SparkFailed
from vernier.service.toolchain.jvm import RECORD, Kind, archive, class_path, recorded
from vernier.storage.errors import VernierError

KINDS: tuple[Kind, ...] = ("spark", "kafka")
EPOCHS = 3
SECONDS = 900
"""The time limit, long enough for a start on a busy machine."""
_PROGRAM = """\
import vernier as vn


class Pair(vn.Schema):
    one: vn.Int64
    other: vn.Int64


app = vn.App("archives")
pairs = app.source("pairs", Pair)
app.view("counts", pairs.group_by("one").agg(n=vn.count()), key=["one"])
"""


def missing() -> list[Kind]:
    """The kinds without an archive for the current Java and class path. Raises JarsError, JavaMissing."""
    return [kind for kind in KINDS if not archive(kind, class_path(kind)).is_file()]


def make(say: Callable[[str], None] = lambda line: None) -> None:
    """Make the missing archives. Raises VernierErrors if the small service does not run."""
    if not missing():
        return
    os.environ[RECORD] = "1"
    with tempfile.TemporaryDirectory(prefix="va-") as folder:  # short, because it holds sockets
        say("running a small service")
        try:
            _run(Path(folder))
        except BaseException:
            for kind in KINDS:
                recorded(archive(kind, class_path(kind))).unlink(missing_ok=True)
            raise
    for kind in KINDS:
        wanted = archive(kind, class_path(kind))
        for old in wanted.parent.glob(f"{kind}-*.jsa"):
            old.unlink(missing_ok=True)
        if recorded(wanted).is_file():
            recorded(wanted).replace(wanted)
            say(f"{kind}: {wanted.stat().st_size >> 20} MB")
        else:  # this Java has no class-data sharing and starts without it; the empty file prevents another try
            say(f"{kind}: this java cannot write one")
            wanted.touch()


def _run(folder: Path) -> None:
    """Run a service in a folder for some epochs, which its heartbeat produces. Its JVMs have ended on return: in order,
    so that they write their archives, or at once if it fails or is interrupted."""
    from vernier.service.kafka.embedded_broker import EmbeddedBroker
    from vernier.service.supervision.parent_watch import command
    from vernier.storage.blob.location import BlobLocation
    from vernier.storage.state.state import FOLDERS, StateDirectory

    program, log, place = folder / "archives.py", folder / "driver.log", BlobLocation(str(folder / "state"))
    program.write_text(_PROGRAM, encoding="utf-8")
    place.open().prepare(FOLDERS)
    head, pause, deadline = StateDirectory(place), threading.Event(), time.monotonic() + SECONDS
    broker, ended = EmbeddedBroker(folder / "kafka"), False
    try:
        broker.start()
        words = {
            "program": program,
            "state.path": place,
            "kafka.bootstrap": broker.bootstrap,
            "epoch.heartbeat_ms": 200,
        }
        given = [word for key, value in words.items() for word in ("--set", f"{key}={value}")]
        with open(log, "wb") as output:
            driver = subprocess.Popen(
                command("vernier.service.coordinator.driver", given),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, "TMPDIR": str(folder)},
                start_new_session=True,
            )
        try:
            while head.head() < EPOCHS:
                if driver.poll() is not None or time.monotonic() > deadline:
                    raise SparkFailed(problem=f"no archives of class data: {_last(log)}")
                pause.wait(0.1)
            driver.terminate()
            driver.wait(SECONDS)
            ended = True
        finally:
            if not ended:
                _kill(driver.pid)
            driver.wait()
            if driver.stdin is not None:
                driver.stdin.close()
    finally:
        if ended:
            broker.stop(SECONDS)
        else:
            broker.kill()


def _kill(pid: int) -> None:
    """End a process and all below it at once; a JVM has a process group of its own."""
    with contextlib.suppress(psutil.Error):
        own = psutil.Process(pid)
        for one in (*own.children(recursive=True), own):
            with contextlib.suppress(psutil.Error):
                one.kill()


def _last(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "the driver printed nothing")


def _end(number: int, frame: object) -> None:
    """Exit through the `finally` blocks, which end the processes in order and remove the folder. Ctrl-C in a terminal
    brings both signals; the second one must not interrupt these blocks."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing. Returns the exit status: 1, with one line on stderr, on failure."""
    parser = argparse.ArgumentParser(prog="python -m vernier.service.supervision.class_archives", description=__doc__)
    parser.add_argument("--nice", action="store_true", help="run at the lowest priority")
    if parser.parse_args(arguments).nice:
        os.nice(19)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        make(lambda line: print(f"classes: {line}", flush=True))
    except VernierError as error:
        print(f"classes: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
