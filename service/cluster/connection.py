"""Connection: a worker process's end of its connection to the rendezvous, which stays open from epoch to epoch.

It carries the beginning and the end of an attempt and, in between, the news that the attempt is over. A worker that
waits for its peers therefore also waits for this connection (see `fileno`).
"""

from __future__ import annotations

import os
import select
import socket
import time

from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.messages import (
    Assign,
    Cancel,
    Convicted,
    Failed,
    Hello,
    Hot,
    Message,
    Open,
    Phase,
    Poisoned,
    Report,
    Stuck,
    Wire,
)
from vernier.service.cluster.tls import connect
from vernier.service.errors import AttemptCancelled, DeadlinePassed, DriverGone, ProtocolBroken

CONNECT_SECONDS = 10


class Connection:
    """A connection to the driver. address: where its rendezvous listens. host: our own address on the way to it, at
    which peers can reach us, too. Call `introduce` first.

    Raises DriverGone, now or later, if there is no driver at the address or another one with another certificate.
    """

    def __init__(self, address: tuple[str, int], keys: Keys) -> None:
        self.address, self._token = address, keys.token
        try:
            connected = socket.create_connection(address, CONNECT_SECONDS)
            self.host: str = connected.getsockname()[0]
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._wire = Wire(connect(connected, keys.certificate) if keys.encrypted else connected)
            connected.settimeout(None)
        except OSError as error:
            raise DriverGone(address=f"{address[0]}:{address[1]}") from error

    def introduce(self, exchange: str, sees: bool = False) -> None:
        """Say who we are. exchange: the address to which this process's peers send; sees: whether it can read what lies
        on the driver's shelf."""
        self._send(Hello(self._token, socket.gethostname(), os.getpid(), exchange, os.getppid(), sees))

    def fileno(self) -> int:
        """The descriptor is readable when the driver has sent something or is gone: then call `check`."""
        return self._wire.socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def open(self, attempt: str, task: int, hot: list[Hot]) -> None:
        """Say that this process's task of the attempt begins."""
        self._send(Open(attempt, task, hot))

    def assigned(self, attempt: str, seconds: float) -> Assign:
        """Wait for the attempt's other tasks; returns this task's shard. Raises AttemptCancelled, DeadlinePassed."""
        deadline = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise DeadlinePassed(attempt=attempt, what="assignment of a shard", seconds=seconds)
            message = self._receive(attempt)
            if isinstance(message, Assign) and message.attempt == attempt:
                return message

    def handed_out(self) -> Assign | None:
        """Process what the driver has sent while this process has no task: a shard and its messages, or None for
        anything else, which concerns an attempt that is over."""
        message = self._receive("")
        return message if isinstance(message, Assign) and message.rows is not None else None

    def check(self, attempt: str) -> None:
        """Process what the driver has sent. Raises AttemptCancelled if this attempt is over."""
        self._receive(attempt)

    def phase(self, attempt: str, phase: str) -> None:
        """Say which phase this process enters."""
        self._send(Phase(attempt, phase))

    def convicted(self, attempt: str, messages: list[Poisoned]) -> None:
        """Say which messages the quarantine has found."""
        self._send(Convicted(attempt, messages))

    def report(self, report: Report) -> None:
        """Send the report of a finished task."""
        self._send(report)

    def failed(self, attempt: str, error: str, *, caller: bool, final: bool = False, filling: bool = False) -> None:
        """Say why the task has failed."""
        self._send(Failed(attempt, error, caller, final, filling))

    def stuck(self, attempt: str, said: str, seconds: float) -> None:
        """Say what the worker waits for. May be called from any thread."""
        self._send(Stuck(attempt, said, seconds))

    def _send(self, message: Message) -> None:
        try:
            self._wire.send(message)
        except OSError as error:
            raise DriverGone(address=f"{self.address[0]}:{self.address[1]}") from error

    def _receive(self, attempt: str) -> Message:
        try:
            message = self._wire.receive()
        except OSError:
            message = None
        if message is None:
            raise DriverGone(address=f"{self.address[0]}:{self.address[1]}")
        if isinstance(message, Cancel) and message.attempt == attempt:
            raise AttemptCancelled(attempt=attempt, reason=message.reason)
        if not isinstance(message, (Cancel, Assign)):
            raise ProtocolBroken(problem=f"the driver sent {type(message).__name__}")
        return message
