"""Faults: their schedule, and injecting them into a running service."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import psutil

from bench.chaos.disk import SmallDisk
from tests.live.service import ROLES, Service, wait_for

Kind = Literal["kill", "stop", "restart", "disk"]
ENDING_SECONDS = 60
"""A service that was stopped, or whose supervisor was killed, must have ended by then."""


@dataclass(frozen=True, slots=True)
class Fault:
    """kill: SIGKILL of a process of that role. stop: SIGSTOP for some seconds. restart: SIGTERM to the service, and
    a new one. disk: no space for the state for some seconds. pause: until the next fault. waits: only once answers
    continue."""

    kind: Kind
    role: str = ""
    seconds: float = 0
    pause: float = 0
    waits: bool = True

    @property
    def starts(self) -> bool:
        """Whether a new service starts. Until it is up, it ends when anything of it fails, as docs say, so the next
        fault must wait; it does not start on a full disk either."""
        return self.kind == "restart" or (self.kind, self.role) == ("kill", "supervisor")

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.kind}{f' {self.role}' if self.role else ''}{lasting}"


def schedule(seed: int, seconds: float) -> Iterator[Fault]:
    """Faults without end: every process is killed twice for each time that it is stopped, all in random order.

    seconds: how long the run is; in a short one nothing is stopped for more than a fifth of it.
    """
    chance = random.Random(f"faults {seed}")
    longest = min(60.0, max(6.0, seconds / 5))
    while True:
        deck: list[tuple[Kind, str]] = [("kill", role) for role in ROLES] * 2
        deck += [("stop", role) for role in ROLES]
        deck += [("restart", "")]
        chance.shuffle(deck)
        for kind, role in deck:
            lasting = min(longest, 5 * (60 / 5) ** chance.random()) if kind == "stop" else 0.0
            yield Fault(kind, role, lasting, pause=chance.uniform(1, 10), waits=chance.random() < 0.75)


def disk_faults(seed: int, seconds: float) -> list[tuple[float, Fault]]:
    """The disk is full twice: (seconds since the start, fault)."""
    chance = random.Random(f"disk {seed}")
    lasting = min(40.0, max(5.0, seconds / 20))
    return [
        (seconds * chance.uniform(low, low + 0.15), Fault("disk", "", lasting * chance.uniform(0.5, 1), pause=5))
        for low in (0.2, 0.6)
    ]


class Trouble:
    """Injects faults into a service. longest_ending: the seconds that stopping the service took at most."""

    def __init__(self, service: Service, disk: SmallDisk, chance: random.Random) -> None:
        self.service, self._disk, self._chance = service, disk, chance
        self.longest_ending = 0.0

    def do(self, fault: Fault) -> bool:
        """Inject it completely. False if there is no process for it."""
        if fault.kind == "disk":
            if self._disk.kind is None:
                return False
            self._disk.fill()
            try:
                time.sleep(fault.seconds)
            finally:
                self._disk.free()
            return True
        if fault.starts:
            self._end(signal.SIGTERM if fault.kind == "restart" else signal.SIGKILL)
            self.service.launch()
            return True
        if fault.role == "daemon" and not self.service.processes(fault.role):
            return False  # its workers outlive it, and Spark starts another one only when it needs a new worker
        victim: psutil.Process = self._chance.choice(
            wait_for(f"a {fault.role} process", lambda: self.service.processes(fault.role), 120)
        )
        try:
            if fault.kind == "kill":
                os.kill(victim.pid, signal.SIGKILL)
                return True
            os.kill(victim.pid, signal.SIGSTOP)
            try:
                time.sleep(fault.seconds)
            finally:
                os.kill(victim.pid, signal.SIGCONT)
        except ProcessLookupError:
            return False  # it has ended by itself, as when what it depends on was killed just before
        return True

    def _end(self, number: signal.Signals) -> None:
        """End the supervisor; all its processes must go with it, since none may outlive it."""
        process = self.service.process
        assert process is not None
        family = [one for one, role in self.service.family() if role != "supervisor"]
        began = time.monotonic()
        process.send_signal(number)
        status = process.wait(ENDING_SECONDS)
        if number == signal.SIGTERM and status != 0:
            raise AssertionError(f"vernier up ended with status {status} after SIGTERM")
        _, left = psutil.wait_procs(family, timeout=max(0.0, ENDING_SECONDS - (time.monotonic() - began)))
        self.longest_ending = max(self.longest_ending, time.monotonic() - began)
        if left:
            lines = [" ".join(one.cmdline()[:6]) for one in left if one.is_running()]
            for one in left:
                one.kill()
            raise AssertionError(f"left behind {ENDING_SECONDS} s after {number.name}: {lines}")
