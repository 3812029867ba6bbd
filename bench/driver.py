"""The driver of a service as a process of its own, without supervisor and sidecar."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from vernier.service.supervision.parent_watch import command


class Driver:
    """A driver with these settings; its output goes to `folder`/log."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.folder = folder
        self._flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                command("vernier.service.coordinator.driver", self._flags),
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill it with all that it has started."""
        if self._process is not None:
            family = self.family()
            self._process.kill()
            for one in family:
                if one.is_running():
                    one.kill()
            self._process.wait()
            psutil.wait_procs(family, 60)

    def check(self) -> None:
        """Raises SystemExit if it has ended."""
        if self._process is None or self._process.poll() is not None:
            raise SystemExit(self.said())

    def said(self) -> str:
        """The end of its log."""
        return (self.folder / "log").read_text("utf-8")[-2000:]

    def failures(self) -> list[str]:
        """The attempts at epochs that have failed, as its log has them."""
        lines = (self.folder / "log").read_text("utf-8", "replace").splitlines()
        return [line for line in lines if " failed: " in line or " has not finished: " in line]

    def family(self) -> list[psutil.Process]:
        """The processes that it has started."""
        try:
            return psutil.Process(self._process.pid).children(recursive=True) if self._process is not None else []
        except psutil.NoSuchProcess:
            return []
