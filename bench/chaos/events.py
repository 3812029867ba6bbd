"""Events: what happens to the hosts of a cluster, in which order, and how each of them ends."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import cycle, zip_longest
from typing import Literal

import psutil

from tests.cluster.hosts import Cluster
from tests.cluster.network import Host
from tests.cluster.store import Trouble
from tests.live.service import wait_for

Kind = Literal["dies", "hangs", "is cut off", "is mute", "is deaf", "is slow", "refuses", "loses processes"]
Role = Literal["driver", "standby", "executor", "executors", "sidecar", "broker", "store", "master"]
EXECUTOR = "CoarseGrainedExecutorBackend"
HOSTS: tuple[Role, ...] = ("driver", "standby", "executor", "sidecar", "broker", "store", "master")
TARGETS: dict[Kind, tuple[Role, ...]] = {
    "dies": ("driver", "standby", "executor", "sidecar", "broker"),
    "hangs": HOSTS,
    "is cut off": HOSTS,
    "is mute": HOSTS,
    "is deaf": HOSTS,
    "is slow": HOSTS,
    "refuses": ("store",),
    "loses processes": ("executor", "executors"),
}
_SLEEP_SECONDS = (22.0, 28.0)
"""A driver that sleeps for as long finds that it was replaced: another machine takes a lock after 2 s of silence."""
_OTHER_SECONDS = (6.0, 14.0)
_DEAD_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Event:
    """dies: the power is cut, and it boots again. hangs: all its processes stop. is cut off: its cable is pulled. is
    mute, is deaf: nothing that it sends arrives, nothing that others send arrives there. is slow: 50 ms more each way,
    and a connection is reset every 2 s. refuses: the store answers 503, to some or all requests, before or after it has
    done them. loses processes: executors are killed, one where Spark has a core to spare, or all. It ends after
    `seconds`."""

    kind: Kind
    role: Role
    seconds: float

    def __str__(self) -> str:
        return f"{self.role} {self.kind}" + (f" for {self.seconds:.0f} s" if self.seconds else "")


def deck(seed: int, count: int) -> list[Event]:
    """Random events, all kinds in turn, in random order."""
    chance = random.Random(f"events {seed}")
    roles: dict[Kind, Iterator[Role]] = {
        kind: cycle(chance.sample(there, len(there))) for kind, there in TARGETS.items()
    }
    kinds = cycle(chance.sample(sorted(TARGETS), len(TARGETS)))
    found = []
    for _ in range(count):
        kind = next(kinds)
        role = next(roles[kind])
        sleeps = role == "driver" and kind in ("hangs", "is cut off")
        seconds = chance.uniform(*(_SLEEP_SECONDS if sleeps else _OTHER_SECONDS))
        found.append(Event(kind, role, 0.0 if kind == "loses processes" else seconds))
    chance.shuffle(found)
    return found


def each(seconds: float) -> list[Event]:
    """Each kind once for each role, for as long; executors that are killed are there again when Spark has started
    them."""
    return [
        Event(kind, role, 0.0 if kind == "loses processes" else seconds)
        for kind, roles in TARGETS.items()
        for role in roles
    ]


INSTANT = frozenset({"loses processes"})


def groups(seconds: float, done: Sequence[tuple[Kind, Role]] = ()) -> list[tuple[Event, ...]]:
    """Each kind once for each role, for as long, except those that are done; those in one group at once, each of
    another kind where that can be."""
    left = [one for one in each(seconds) if (one.kind, one.role) not in done and one.kind not in INSTANT]
    lanes = [[one for one in left if one.role == role] for role in HOSTS]
    turned = [lane[at % len(lane) :] + lane[: at % len(lane)] for at, lane in enumerate(lanes) if lane]
    found: list[list[Event]] = []
    for one in (event for beside in zip_longest(*turned) for event in beside if event):
        group = next((group for group in found if all(_beside(one, other) for other in group)), None)
        if group is None:
            found.append([one])
        else:
            group.append(one)
    return [tuple(group) for group in found]


def _beside(one: Event, other: Event) -> bool:
    """Whether epochs go on while both last. There is another executor and broker, there are two other sidecars, and a
    standby for the driver, which has to be sound then. Spark gives up an executor that is silent only when its master
    agrees. Without the store no epoch is made; one that is slow does its work."""
    roles = {one.role, other.role}
    store = next((event for event in (one, other) if event.role == "store"), None)
    if store is not None:
        return store.kind == "is slow" and bool(roles & {"standby", "master"})
    return len(roles) == 2 and roles not in ({"driver", "standby"}, {"executor", "master"})


class Injector:
    """Lets events happen to a cluster. find: the host that has a role now."""

    def __init__(self, made: Cluster, find: Callable[[Role], str], chance: random.Random) -> None:
        self._made, self._find, self._chance = made, find, chance

    def do(self, events: Sequence[Event]) -> list[str]:
        """Begin all of them, wait for the longest, end them. Returns the hosts that they happened to: those that had
        the roles before the first event, because a standby is none any more once the driver has gone."""
        names: list[str] = []
        for event in events:
            names.append(wait_for("a host of its own", lambda role=event.role: self._free(role, names)))
        with ExitStack() as end:
            for event, name in zip(events, names, strict=True):
                self._begin(event, name, end)
            time.sleep(max(event.seconds for event in events))
        return names

    def _free(self, role: Role, taken: Sequence[str]) -> str:
        """A host that has the role and no event; empty if this look has not found one."""
        name = self._find(role)
        return "" if name in taken else name

    def _begin(self, event: Event, name: str, end: ExitStack) -> None:
        host = self._made.machines[name].host
        match event.kind:
            case "dies":
                self._die(host)
                end.callback(self._made.boot, name)
            case "hangs":
                host.signal(signal.SIGSTOP)
                end.callback(host.signal, signal.SIGCONT)
            case "is cut off":
                host.cut()
                end.callback(host.heal)
            case "is mute":
                end.callback(host.hear_and_speak)
                host.mute()
            case "is deaf":
                end.callback(host.hear_and_speak)
                host.deafen()
            case "is slow":
                end.callback(host.renew)
                host.wear("--delay-ms", "50", "--reset-seconds", "2", "--seed", str(self._chance.randrange(1000)))
            case "refuses":
                path = host.folder / "tmp" / "trouble"
                trouble = Trouble(self._chance.choice((0.3, 1.0)), self._chance.random() < 0.5)
                trouble.write(path)
                end.callback(path.unlink)
            case "loses processes":
                self._kill(self._executors() if event.role == "executors" else [name])

    def _die(self, host: Host) -> None:
        there = host.processes()
        host.die()
        psutil.wait_procs(there, timeout=_DEAD_SECONDS)

    def _executors(self) -> list[str]:
        return [name for name in self._made.machines if name.startswith("executor")]

    def _kill(self, names: list[str]) -> None:
        """Kill the executors of Spark on these hosts; Spark's workers, which start them, stay."""

        def there() -> list[psutil.Process]:
            family = [one for name in names for one in self._made.machines[name].host.processes()]
            return [one for one in family if _is_executor(one)]

        for victim in wait_for("there is an executor", there):
            with suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any(EXECUTOR in part for part in process.cmdline())
    return False
