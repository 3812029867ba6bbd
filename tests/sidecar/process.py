"""The sidecar as others run it: a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vernier.storage.blob.location import BlobLocation

ROOT = Path(__file__).resolve().parent.parent.parent


class SidecarProcess:
    """A running `python -m vernier.service.sidecar`; `url` once it accepts."""

    def __init__(self, state: Path | BlobLocation, *arguments: str, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vernier.service.sidecar", "--state", str(state), "--port", str(port), *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        self.url = line.removeprefix("sidecar listening on ")

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rpartition(":")[2])

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Signal it and wait: its exit status, and what it wrote to stderr."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@contextmanager
def running(state: Path | BlobLocation, *arguments: str, port: int = 0) -> Iterator[SidecarProcess]:
    """A sidecar process that is gone at the end, whatever happens."""
    sidecar = SidecarProcess(state, *arguments, port=port)
    try:
        yield sidecar
    finally:
        sidecar.end(signal.SIGKILL)
