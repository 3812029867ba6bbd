"""Hosts on this machine: each has a network namespace of its own, and they meet at one switch.

A host is a network namespace with one address, joined by a pair of virtual interfaces to a bridge in a namespace of its
own, so the machine's own network is not touched. Its processes also have a host name, a /tmp, a /dev/shm and a
/etc/hosts of their own. It needs root, and Linux that allows namespaces (`missing` says what is not there).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

SUBNET = "10.77.0"
_LINK = Path(__file__).with_name("link.py")
_NOBODY = "02:00:00:00:00:01"
"""An address of no interface: frames for it are lost."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h
_ENTER = """
mount --make-rprivate /
hostname "$1"
mount -t tmpfs tmpfs /dev/shm
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/tmp" /tmp
shift 2
exec "$@"
"""


def missing() -> str:
    """What this machine lacks for namespaces; empty if nothing."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    for program in ("ip", "unshare", "mount", "hostname"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    probe = f"vn-{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", probe)
        try:
            _run("ip", "-n", probe, "link", "add", "name", "b0", "type", "bridge")
            _run("ip", "-n", probe, "link", "add", "name", "v0", "type", "veth", "peer", "name", "v1")
            _run("ip", "netns", "exec", probe, "unshare", "--mount", "--uts", "mount", "--make-rprivate", "/")
        finally:
            _run("ip", "netns", "del", probe)
    except subprocess.CalledProcessError as error:
        return f"namespaces are not allowed here: {error.stderr.decode().strip()}"
    return ""


class Host:
    """One host. folder: what its processes see as /tmp is `folder/tmp`."""

    def __init__(self, switch: str, name: str, number: int, folder: Path) -> None:
        self.name, self.address = name, f"{SUBNET}.{number}"
        self.namespace, self.folder = f"{switch}-{name}", folder
        self.others: list[Host] = []
        self._switch, self._port, self._plug = switch, f"p{number}", (f"w{number}", f"x{number}")
        self._cable: subprocess.Popen[bytes] | None = None
        (folder / "tmp").mkdir(parents=True)
        _run("ip", "netns", "add", self.namespace)
        veth = ["type", "veth", "peer", "name", "eth0", "netns", self.namespace]
        _run("ip", "-n", switch, "link", "add", "name", self._port, *veth)
        _run("ip", "-n", switch, "link", "set", self._port, "master", "switch", "up")
        _run("ip", "-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            _run("ip", "-n", self.namespace, "link", "set", interface, "up")

    def start(
        self, command: Sequence[str], out: IO[bytes], env: Mapping[str, str], cwd: Path
    ) -> subprocess.Popen[bytes]:
        """Start a process on the host. `ip` and the shell become the command, so its id is that of the result."""
        enter = ["unshare", "--mount", "--uts", "--ipc", "sh", "-euc", _ENTER, "host", self.name, str(self.folder)]
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *enter, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **env},
            cwd=cwd,
        )

    def processes(self) -> list[psutil.Process]:
        """The host's processes."""
        found = _run("ip", "netns", "pids", self.namespace).split()
        return [psutil.Process(int(pid)) for pid in found if psutil.pid_exists(int(pid))]

    def die(self) -> None:
        """End all of its processes at once, as a power cut does; it pulls the cable first, so no peer hears of it."""
        self.cut()
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def cut(self) -> None:
        """Pull the cable."""
        _run("ip", "-n", self._switch, "link", "set", self._port, "down")

    def heal(self) -> None:
        """Plug the cable in again."""
        _run("ip", "-n", self._switch, "link", "set", self._port, "up")

    def mute(self) -> None:
        """Lose all that it sends to other hosts; what they send arrives."""
        for other in self.others:
            self._mistake(other)

    def deafen(self) -> None:
        """Lose all that other hosts send to it; what it sends arrives."""
        for other in self.others:
            other._mistake(self)

    def hear_and_speak(self) -> None:
        """End `mute` and `deafen`."""
        for other in self.others:
            for one, wrong in ((self, other), (other, self)):
                with contextlib.suppress(subprocess.CalledProcessError):  # there was no mistake
                    _run("ip", "-n", one.namespace, "neigh", "del", wrong.address, "dev", "eth0")

    def _mistake(self, other: Host) -> None:
        """Send frames for another host to an address that no interface has."""
        where = ["lladdr", _NOBODY, "nud", "permanent", "dev", "eth0"]
        _run("ip", "-n", self.namespace, "neigh", "replace", other.address, *where)

    def wear(self, *options: str) -> None:
        """Replace the cable by a bad one. options: those of link.py."""
        outer, inner = self._plug
        _run("ip", "-n", self._switch, "link", "add", "name", outer, "type", "veth", "peer", "name", inner)
        _run("ip", "-n", self._switch, "link", "set", inner, "master", "switch", "up")
        _run("ip", "-n", self._switch, "link", "set", outer, "up")
        _run("ip", "-n", self._switch, "link", "set", self._port, "nomaster")
        command = [sys.executable, str(_LINK), self._port, outer, *options]
        enter = ["ip", "netns", "exec", self._switch]
        self._cable = subprocess.Popen([*enter, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if self._cable.stdout is None or not self._cable.stdout.readline():
            raise OSError(f"{' '.join(command)} ended")

    def renew(self) -> None:
        """End `wear`."""
        if self._cable is None:
            return
        self._cable.kill()
        self._cable.wait()
        if self._cable.stdout is not None:
            self._cable.stdout.close()
        self._cable = None
        _run("ip", "-n", self._switch, "link", "set", self._port, "master", "switch")
        _run("ip", "-n", self._switch, "link", "del", self._plug[0])

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread, and what it starts, uses the host's network for as long as the block runs."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(before)
            os.close(before)
            os.close(there)

    def remove(self) -> None:
        """End its processes and delete it."""
        self.renew()
        left = self.processes()
        self.signal(signal.SIGKILL)
        psutil.wait_procs(left, timeout=20)
        _run("ip", "netns", "del", self.namespace)


@contextlib.contextmanager
def network(folder: Path, names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """Hosts of these names, numbered from 1 in their order; they know each other's names."""
    switch = f"vn-{os.getpid()}"
    _run("ip", "netns", "add", switch)
    hosts: dict[str, Host] = {}
    try:
        _run("ip", "-n", switch, "link", "add", "name", "switch", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "switch", "up")
        for number, name in enumerate(names, 1):
            hosts[name] = Host(switch, name, number, folder / name)
        known = "".join(f"{host.address} {host.name}\n" for host in hosts.values())
        for host in hosts.values():
            host.others = [other for other in hosts.values() if other is not host]
            (host.folder / "hosts").write_text(f"127.0.0.1 localhost\n{known}", encoding="utf-8")
        yield hosts
    finally:
        for host in hosts.values():
            host.remove()
        _run("ip", "netns", "del", switch)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
