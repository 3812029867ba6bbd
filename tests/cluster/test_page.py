"""The ten commands of docs/operations.md that make a cluster from nothing, as they stand there, each on its host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster, Machine, cluster
from tests.cluster.network import missing
from tests.docs.session import blocks
from tests.live.service import wait_for

PATIENCE = 600.0
"""Seconds that anything may take; never part of a result."""
HOSTS = ("one", "two", "driver", "standby", "sidecar")
_FILE = re.compile(r"# ([\w.]+)\n")
_LINE = re.compile(r"(\w+)\$ (.*)")

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly, pytest.mark.timeout(1500)]


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    """Say what the machine lacks, where it does."""
    if why := missing():
        pytest.skip(why)


class Commands:
    """The page's files and commands, in a shell of each host."""

    def __init__(self, made: Cluster) -> None:
        self.made = made
        self.files: dict[str, str] = {}
        self.lines: list[tuple[str, str, str]] = []
        for block in blocks("operations.md"):
            if found := _FILE.match(block.text):
                self.files[found[1]] = block.text.removeprefix(found[0]).lstrip("\n")
            if block.language == "hosts":
                self.lines = list(self._read(block.text))

    @staticmethod
    def _read(text: str) -> list[tuple[str, str, str]]:
        """(host, command, what it prints) of each command."""
        found: list[tuple[str, str, str]] = []
        for line in text.splitlines():
            if command := _LINE.fullmatch(line):
                found.append((command[1], command[2], ""))
            else:
                host, said, printed = found.pop()
                found.append((host, said, f"{printed}{line}\n"))
        return found

    def lay(self, machine: Machine) -> None:
        """Write the files where the host's commands find them."""
        for name, text in self.files.items():
            (machine.host.folder / "tmp" / name).write_text(text, "utf-8")

    def shell(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command on a host. Its output is in the host's own /tmp/said, or in its log."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        said = "" if command.endswith("&") else " > said"
        script = f"cd /tmp && . ./cluster.env && exec {command.removesuffix('&')}{said}"
        return self.made.machines[host].run("sh", "-euc", script, PATH=path, SECRET="of-this-page")

    def ends_well(self, host: str, command: str, printed: str) -> bool:
        """Run a command to its end; whether it succeeds and prints that."""
        if self.shell(host, command).wait(PATIENCE):
            return False
        said = (self.made.machines[host].host.folder / "tmp" / "said").read_text("utf-8")
        return not printed or said.replace("\r", "") == printed


def test_the_commands_make_a_cluster_that_outlives_its_driver(tmp_path: Path) -> None:
    with cluster(tmp_path, {}, list(HOSTS), PATIENCE, spark=False) as made:
        page = Commands(made)
        assert len(page.lines) == 10
        for machine in made.machines.values():
            page.lay(machine)
        for host, command, printed in page.lines:
            if command.endswith("&"):
                page.shell(host, command)
            else:
                args = (host, command, printed)
                wait_for(f"{host}: {command}", lambda args=args: page.ends_well(*args), PATIENCE)
        made.machines["driver"].host.die()
        (more,) = (command for _, command, _ in page.lines if " send " in command)
        assert page.ends_well("standby", more, "")
        ((host, query, printed),) = (line for line in page.lines if line[0] == "sidecar" and line[2])
        doubled = re.sub(r",(\d)$", lambda found: f",{2 * int(found[1])}", printed, flags=re.MULTILINE)
        wait_for("the standby goes on", lambda: page.ends_well(host, query, doubled), PATIENCE)
