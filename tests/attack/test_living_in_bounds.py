"""A live service whose program hangs or explodes, and one that is killed: it names why, stops soon, leaves nothing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from kafka import KafkaProducer

from tests.live.service import ROOT, Service, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

CROWD = 9_000
LIMIT_MB = 640


class Crowds(Service):
    """A service with the program of crowds."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        program = Path(shutil.copy(ROOT / "tests/attack/crowds.py", folder))
        plain = {"format": "json", "clock": "arrival"}
        super().__init__(
            folder,
            2,
            program,
            patience=400,
            sources={"a": plain, "b": plain},
            exchange={},
            worker_memory_max_mb=LIMIT_MB,
            epoch={"function_ms": 400, "target_ms": None, **settings},
        )
        self.stay = folder / "stay"

    def send(self, source: str, rows: list[tuple[int, int]]) -> None:
        """Put rows into a source's topic."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        for key, value in rows:
            producer.send(source, value=b'{"input":"%s","data":[%d,%d]}' % (source.encode(), key, value))
        producer.flush()
        producer.close()

    def ready(self) -> tuple[int, str]:
        """What /readyz says."""
        answer = httpx.get(f"{self.url}/readyz", timeout=5)
        return answer.status_code, answer.text

    def says(self, *parts: str) -> bool:
        """Whether /readyz says no, and all of this."""
        status, text = self.ready()
        return status == 503 and all(part in text for part in parts)

    def logged(self, part: str) -> bool:
        """Whether the driver's log has it."""
        return part in (self.folder / "logs/driver.log").read_text("utf-8", "replace")

    @property
    def runs(self) -> list[Path]:
        """The scratch folders that there are."""
        return [one for one in (self.folder / "state.scratch").iterdir() if one.is_dir()]


@pytest.fixture
def crowds(tmp_path: Path) -> Iterator[Crowds]:
    with Crowds(tmp_path) as service:
        yield service


def _files(process: psutil.Process) -> set[str]:
    """The files that a process has open or mapped, and the sockets that it listens at."""
    with open(f"/proc/{process.pid}/maps", encoding="ascii", errors="replace") as maps:
        found = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
    with open("/proc/net/unix", encoding="ascii", errors="replace") as sockets:
        inodes = {parts[6]: parts[7] for line in sockets if len(parts := line.split()) == 8}
    for handle in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            target = os.readlink(handle)
        except OSError:
            continue
        found.add(inodes.get(target.removeprefix("socket:[").removesuffix("]"), target))
    return found


def test_what_a_service_waits_for_is_named_and_it_stops_and_leaves_nothing(crowds: Crowds) -> None:
    wait_for("it is ready", lambda: crowds.ready()[0] == 200)

    # Nothing of it lies among the machine's temporary files, where this checkout and its packages may lie, too.
    own = (str(crowds.folder), str(ROOT), sys.prefix)
    for process, _ in crowds.family():
        strange = {file for file in _files(process) if file.startswith("/tmp/")}
        assert not {file for file in strange if not file.startswith(own)}

    # A function that does not come back, and then does.
    crowds.stay.touch()
    crowds.send("b", [(1, 13)])
    wait_for("it names the function", lambda: crowds.says("the function brood", "crowds.py:34", "(13,)"))
    assert crowds.logged("the function brood")
    crowds.stay.unlink()
    wait_for("it is ready again", lambda: crowds.ready()[0] == 200)

    # It stops in the middle of such an epoch, which the next start makes.
    crowds.stay.touch()
    crowds.send("b", [(2, 13)])
    wait_for("it names the function again", lambda: crowds.says("the function brood"))
    crowds.stop()
    assert not crowds.runs
    crowds.stay.unlink()
    crowds.start()
    wait_for("it has made the epoch", lambda: _rows(crowds, "brooded") == {(1, 13), (2, 13)})

    # What was killed leaves its files in its own folder, and the next start removes them.
    (old,) = crowds.runs
    crowds.kill_all()
    assert old.exists()
    crowds.start()
    assert not old.exists()
    assert len(crowds.runs) == 1

    # One that holds the interpreter's lock cannot show its input, but its line.
    crowds.send("b", [(3, 31)])
    wait_for("it names its line", lambda: crowds.says("the function brood at", "crowds.py:29"))


def test_a_join_that_explodes_stops_the_driver_and_is_named(crowds: Crowds) -> None:
    crowds.send("a", [(7, value) for value in range(CROWD)] + [(8, 8)])
    crowds.send("b", [(7, value) for value in range(CROWD)] + [(8, 8)])
    wait_for("it names the join", lambda: crowds.says("join on key", "crowds.py:3", "key=7", "the driver has stopped"))
    assert not crowds.processes("driver")
    assert crowds.logged("needs more memory than its worker may have")
    # Its committed answers can be read.
    assert httpx.get(f"{crowds.url}/v1/views/pairs/rows", timeout=5).status_code == 200


def _rows(service: Crowds, view: str) -> set[tuple[int, ...]]:
    answer = httpx.get(f"{service.url}/v1/views/{view}/rows", timeout=5)
    return {tuple(row.values()) for row in answer.json()["rows"]} if answer.status_code == 200 else set()
