"""Leases: locks and leases where there is no flock, stored as objects (claims) that their holders keep alive.

A claim says who holds it and until when. Its holder extends it by heartbeats, and another process may take over a claim
that has expired. Clocks of different machines may differ by up to `MARGIN_MS`, so a holder stops relying on its claim
that much earlier than others consider it expired. An expired claim is never revived. A claim also says which machine
its holder is on: processes there see whether the holder has ended, and need not wait until its claim expires.

The lock of a directory is a chain of claims `LOCK/000000000001`, `LOCK/000000000002` …, each created only if its number
is free. The highest one counts, and its number is the fencing token. A holder that was overtaken finds a higher number.
The final arbiter is the manifest of the next epoch, whose name only one process can create.
"""

import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from vernier.storage.errors import FileExists, FileMissing, OwnershipLost, StorageError
from vernier.storage.threads import Threads

TTL_MS = 15_000
"""How long a claim is valid without a heartbeat, by default. Another machine takes over after at most this long."""
MARGIN_MS = 5_000
"""How much the clocks of different machines may differ."""
LEAST_TTL_MS = MARGIN_MS + 2_000
"""The shortest time for which claims are valid: a holder relies on its claim for `MARGIN_MS` less."""
BEATS = 5
"""Heartbeats in the time for which a claim is valid."""
_DIGITS = 12

Clock = Callable[[], int]
"""Wall clock, ms since 1970."""


class Claimed(msgspec.Struct, frozen=True):
    """The contents of a claim's object. owner: a unique name; until_ms: 0 once the claim is released; machine: where
    `pid` is valid, "" if that is unknown."""

    owner: str
    host: str
    pid: int
    until_ms: int
    machine: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Claimed).decode
_NOBODY = Claimed(owner="", host="", pid=0, until_ms=0)


def this_machine() -> str:
    """Identifies the system that has given this process its id: the host's name, its boot, the namespace of process
    ids. "" where the last two cannot be known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return f"{socket.gethostname()} {boot.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _has_ended(pid: int) -> bool:
    """Whether there surely is no such process on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


class Objects(Protocol):
    """What claims need from the place they are stored in; see `vernier.storage.blob.blob.Blob`."""

    @property
    def where(self) -> str: ...
    def overwrite(self, name: str, data: bytes) -> None: ...
    def create(self, name: str, data: bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def delete(self, name: str) -> None: ...
    def list(self, folder: str) -> list[str]: ...


class Claim:
    """A claim of this process. alone: no earlier holder of the lock can still believe that it has it."""

    def __init__(self, claims: "Claims", name: str, until_ms: int, *, chain: str | None, alone: bool) -> None:
        self.alone = alone
        self.name = name
        self._claims, self._chain = claims, chain
        self._until_ms = until_ms
        self._lost = self._released = False

    def check(self) -> None:
        """Raises OwnershipLost once the claim may have been lost."""
        if self._lost or self._released or self._claims.now() >= self._until_ms - MARGIN_MS:
            self._lost = True
            raise OwnershipLost(name=self.name, where=self._claims.where)

    def beat(self) -> None:
        """Extend the claim. If one heartbeat fails, the next makes up for it; one that comes too late has no effect."""
        now = self._claims.now()
        try:
            self.check()
            if self._chain is not None and self._claims.newest(self._chain) != self.name:
                self._lost = True
                return
            self._claims.write(self.name, now)
            self._until_ms = now + self._claims.ttl_ms
        except StorageError:
            pass

    def release(self) -> None:
        """Release the claim; idempotent."""
        if self._released:
            return
        self._claims.forget(self)
        with suppress(StorageError):
            if self._chain is None:
                self._claims.remove(self.name)
            else:
                self.check()
                # A link of the chain stays: if it were deleted, its number would be used again.
                self._claims.write(self.name, None)
        self._released = True


class Claims:
    """The claims of one process in one place.

    owner: a unique name; beating: a thread keeps the claims alive; ttl_ms: how long a claim is valid without a
    heartbeat; machine: the one that this process is on.
    """

    def __init__(
        self,
        objects: Objects,
        now: Clock,
        owner: str | None = None,
        *,
        beating: bool = True,
        ttl_ms: int = TTL_MS,
        machine: str | None = None,
    ) -> None:
        self.now, self.ttl_ms = now, ttl_ms
        self._machine = this_machine() if machine is None else machine
        self._objects = objects
        self._beating = beating
        self._owner = owner or uuid.uuid4().hex[:12]
        self._serial = 0
        self._held: list[Claim] = []
        self._books = threading.Lock()
        self._threads = Threads()
        self._beats = False

    @property
    def where(self) -> str:
        """The path or URI, for messages."""
        return self._objects.where

    # --- the lock -----------------------------------------------------------------------------------------------------

    def lock(self, chain: str) -> Claim | None:
        """Take the lock; None if a live process has it. Does not wait. A holder of this machine that has ended does not
        count."""
        links = self._objects.list(chain)
        last = self._read(links[-1]) if links else _NOBODY
        now = self.now()
        free = last.until_ms == 0 or self._ended(last)
        if last.until_ms > now and not free:
            return None
        number = 1 + (int(links[-1].rpartition("/")[2]) if links else 0)
        name = f"{chain}/{number:0{_DIGITS}d}"
        try:
            self._objects.create(name, self._body(now))
        except FileExists:
            return None
        # Where conditional creation is not atomic, two processes may have got this far.
        if self._read(name) != _decode(self._body(now)):
            return None
        with suppress(StorageError):
            for link in links:
                self._objects.delete(link)
        return self._hold(Claim(self, name, now + self.ttl_ms, chain=chain, alone=free))

    def holder(self, chain: str) -> Claimed | None:
        """Who has the lock now; None if it is free."""
        links = self._objects.list(chain)
        found = self._read(links[-1]) if links else _NOBODY
        return found if found.until_ms > self.now() else None

    def release_ended(self, chain: str) -> bool:
        """Release the lock for a holder on this machine that has ended without doing so. Returns whether there was one.

        Its process is gone, so it will never rely on the lock again. If another process takes the lock meanwhile, that
        has a higher number, and what is written here counts for nothing.
        """
        links = self._objects.list(chain)
        found = self._read(links[-1]) if links else _NOBODY
        if found.until_ms <= self.now() or not self._ended(found):
            return False
        self._objects.overwrite(links[-1], _encode(msgspec.structs.replace(found, until_ms=0)))
        return True

    def newest(self, chain: str) -> str | None:
        """The newest link of the chain, which is the one that counts."""
        return max(self._objects.list(chain), default=None)

    # --- leases -------------------------------------------------------------------------------------------------------

    def hold(self, stem: str) -> Claim:
        """An uncontested claim under a name that begins with `stem`."""
        self._serial += 1
        name = f"{stem}.{os.getpid()}.{self._owner}-{self._serial}"
        now = self.now()
        self.write(name, now)
        return self._hold(Claim(self, name, now + self.ttl_ms, chain=None, alone=True))

    def present(self, folder: str) -> list[str]:
        """The names in a folder whose claims are alive; deletes the expired ones. One read each."""
        living = []
        now = self.now()
        for name in self._objects.list(folder):
            if self._read(name).until_ms > now:
                living.append(name)
            else:
                self._objects.delete(name)
        return living

    # --- inside -------------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """One heartbeat for every claim held."""
        with self._books:
            held = list(self._held)
        for claim in held:
            claim.beat()

    def write(self, name: str, now: int | None) -> None:
        """Write one of this process's claims; as released if `now` is None."""
        self._objects.overwrite(name, self._body(now))

    def remove(self, name: str) -> None:
        """Delete one of this process's claims."""
        self._objects.delete(name)

    def forget(self, claim: Claim) -> None:
        """Stop a claim's heartbeats."""
        with self._books:
            if claim in self._held:
                self._held.remove(claim)

    def _ended(self, holder: Claimed) -> bool:
        """Whether the holder is a process of this machine that has surely ended."""
        return bool(self._machine) and holder.machine == self._machine and _has_ended(holder.pid)

    def _hold(self, claim: Claim) -> Claim:
        with self._books:
            self._held.append(claim)
            if self._beating and not self._beats:
                self._beats = True
                self._threads.start("claims", self._run)
        return claim

    def _run(self, stopping: threading.Event) -> None:
        """Send heartbeats while any claim is held, and `BEATS` rounds longer, because the next claim often follows
        soon."""
        idle = 0
        while idle < BEATS and not stopping.wait(self.ttl_ms / 1000 / BEATS):
            self.beat()
            with self._books:
                idle = 0 if self._held else idle + 1
                self._beats = idle < BEATS

    def _body(self, now: int | None) -> bytes:
        until = 0 if now is None else now + self.ttl_ms
        host, pid = socket.gethostname(), os.getpid()
        return _encode(Claimed(owner=self._owner, host=host, pid=pid, until_ms=until, machine=self._machine))

    def _read(self, name: str) -> Claimed:
        try:
            return _decode(self._objects.get(name))
        except (FileMissing, msgspec.DecodeError, UnicodeDecodeError):
            # The claim was deleted meanwhile, or the store tore its write: treat it as free.
            return _NOBODY
