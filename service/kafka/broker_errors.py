"""Errors of the embedded broker and of topics, each in one line that says what to do."""

import contextlib
import re
from pathlib import Path

import psutil

from vernier.storage.errors import CallerError


class BrokerError(CallerError):
    """The broker does not start or does not answer; `problem` is one line that says what to do."""

    message = "{problem}"
    problem: str


class PortTaken(BrokerError):
    """Another process listens on the broker's port."""


def port_taken(port: int) -> PortTaken:
    """The error that names the process that listens on the port, as far as we are allowed to see it."""
    who = "another process"
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid:
                    who = f"pid {connection.pid} ({psutil.Process(connection.pid).name()})"
                break
    return PortTaken(problem=f"port {port} is taken by {who}; end that process or choose another port")


def explain(output: str, what: str, data_dir: Path, heap_mb: int) -> BrokerError:
    """A BrokerError with one line extracted from Java's output."""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return BrokerError(problem=f"disk full: no room for the broker's data in {data_dir}")
    if "Failed to acquire lock" in output:
        return BrokerError(problem=f"{data_dir} is in use by another broker; stop that one first")
    if "OutOfMemoryError" in output:
        return BrokerError(problem=f"{what}: its heap of {heap_mb} MB is too small; raise heap_mb")
    said = re.findall(r"^(?:\S+Exception|.*\b(?:ERROR|FATAL)\b).*$|^Error.*$", output, re.MULTILINE)
    last = said[0] if said else next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    return BrokerError(problem=f"{what}: {last.strip()[:200]}")
