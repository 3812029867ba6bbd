"""Leases: locks and leases where there is no flock, stored as objects (claims) that their holders keep alive.

A *lease* says until when it is valid, by the wall clock of its holder, which extends it by heartbeats. Its reader and
the process that collects garbage must agree on the time to within `MARGIN_MS`.

The *lock* of a directory rests on no clock that two machines would have to agree on. It is a chain of claims
`LOCK/000000000001`, `LOCK/000000000002` …, each created only if its number is free. The highest one counts, and its
number is the fencing token. Its holder rewrites it in every fifth of the time that it states (`ttl_ms`). Another
process may create the next number once it has seen one and the same claim for that long, by its own clock and in looks
that were answered: time in which the store, or the process itself, stood still does not count. A holder that could not
write for that long asks whether there is a higher number before it goes on; if there is none, it still has the lock.

The final arbiter is the manifest of the next epoch, whose name only one process can create. So a takeover from a holder
that lives costs that holder a restart, and no reader an answer.

A claim also says which machine its holder is on: processes there see whether the holder has ended, and need not wait.
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
"""How long a lease is valid without a heartbeat."""
MARGIN_MS = 5_000
"""How much the clocks of different machines may differ: a holder relies on its lease for this much less."""
LOCK_MS = 2_000
"""The silence of a lock's holder after which another machine takes over, by default."""
LEAST_LOCK_MS = 500
"""The shortest such silence."""
RELEASE_SECONDS = 1.0
"""How long a release waits for a heartbeat that is under way. Without the release, others wait until the claim has been
silent for long enough."""
BEATS = 5
"""Heartbeats in the time for which a claim is valid; also the looks at a silent lock that it takes at least."""
_DIGITS = 12

_EARLIER_LOCK_MS = 15_000
"""The time that locks of releases had which did not write it down."""

Clock = Callable[[], int]
"""Milliseconds: of the wall clock since 1970, or of a clock that only goes on."""


class Claimed(msgspec.Struct, frozen=True):
    """The contents of a claim's object. owner: a unique name; until_ms: by the holder's wall clock, 0 once the claim is
    released; machine: where `pid` is valid, "" if that is unknown; ttl_ms: how long a lock is valid without a
    heartbeat; beats: how often it was rewritten."""

    owner: str
    host: str
    pid: int
    until_ms: int
    machine: str = ""
    ttl_ms: int = _EARLIER_LOCK_MS
    beats: int = 0


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
    """A claim of this process. chain: of which a lock is a link; None for a lease. alone: no earlier holder of the lock
    can still believe that it has it. began: when its last write began, by the clock that only goes on."""

    def __init__(self, claims: "Claims", name: str, began: int, *, chain: str | None, alone: bool) -> None:
        self.alone = alone
        self.name = name
        self.beats = 0
        self._claims, self._chain = claims, chain
        self._began = began
        self._lost = self._released = False
        self._writing = threading.Lock()

    @property
    def ttl_ms(self) -> int:
        """How long the claim is valid without a heartbeat."""
        return TTL_MS if self._chain is None else self._claims.lock_ms

    @property
    def due(self) -> bool:
        """Whether it is time for a heartbeat."""
        return self._claims.elapsed() >= self._began + self.ttl_ms // BEATS

    def check(self) -> None:
        """Raises OwnershipLost once another process may act as if there were no such claim. One request to the store
        if a lock could not be rewritten in time."""
        late = self._claims.elapsed() - self._began - self.ttl_ms
        if self._chain is None:
            self._lost |= late >= -MARGIN_MS
        elif late >= 0 and not self._lost:
            self._lost = not self._is_newest()
        if self._lost or self._released:
            self._lost = True
            raise OwnershipLost(name=self.name, where=self._claims.where)

    def beat(self) -> None:
        """Extend the claim. If one heartbeat fails, the next makes up for it."""
        with self._writing, suppress(StorageError):
            began = self._claims.elapsed()
            self.check()
            if self._chain is not None and self._claims.newest(self._chain) != self.name:
                self._lost = True
                return
            self.beats += 1
            self._claims.write(self)
            self._began = began

    def release(self) -> None:
        """Release the claim, after a heartbeat that is under way; idempotent. If the store does not answer that
        heartbeat, the claim ends by its silence."""
        self._claims.forget(self)
        if not self._writing.acquire(timeout=RELEASE_SECONDS):
            self._lost = True
            return
        try:
            if self._released:
                return
            with suppress(StorageError):
                if self._chain is None:
                    self._claims.remove(self.name)
                else:
                    self.check()
                    # A link of the chain stays: if it were deleted, its number would be used again.
                    self._claims.write(self, released=True)
            self._released = True
        finally:
            self._writing.release()

    def _is_newest(self) -> bool:
        """Whether no other process has taken the lock; False if the store does not say."""
        assert self._chain is not None
        began = self._claims.elapsed()
        try:
            if self._claims.newest(self._chain) != self.name:
                return False
        except StorageError:
            return False
        self._began = began
        return True


class _Watch:
    """What a process has seen of a lock that another one holds: its link, the contents, when it last looked, and for
    how many milliseconds of looking the contents have stayed the same."""

    def __init__(self, name: str, found: Claimed, now: int) -> None:
        self.name, self.found, self._looked = name, found, now
        self.silent_ms = 0

    def look(self, found: Claimed, now: int) -> None:
        """Note what the link contains now."""
        if found != self.found:
            self.found, self.silent_ms = found, 0
        else:
            self.silent_ms += min(now - self._looked, self.found.ttl_ms // BEATS)
        self._looked = now

    @property
    def left_ms(self) -> int:
        """How much longer the holder may be silent."""
        return max(0, self.found.ttl_ms - self.silent_ms)


class Claims:
    """The claims of one process in one place.

    now: wall clock; owner: a unique name; beating: a thread keeps the claims alive; lock_ms: how long its lock is valid
    without a heartbeat; machine: the one that this process is on; elapsed: a clock that only goes on, also while the
    machine sleeps (default: `now`). Thread-safe, except that one thread at a time may try to take the lock.
    """

    def __init__(
        self,
        objects: Objects,
        now: Clock,
        owner: str | None = None,
        *,
        beating: bool = True,
        lock_ms: int = LOCK_MS,
        machine: str | None = None,
        elapsed: Clock | None = None,
    ) -> None:
        self.now, self.lock_ms = now, lock_ms
        self.elapsed = elapsed or now
        self._machine = this_machine() if machine is None else machine
        self._objects = objects
        self._beating = beating
        self._owner = owner or uuid.uuid4().hex[:12]
        self._serial = 0
        self._held: list[Claim] = []
        self._watch: _Watch | None = None
        self._refused: Claimed | None = None
        self._books = threading.Lock()
        self._threads = Threads()
        self._beats = False

    @property
    def where(self) -> str:
        """The path or URI, for messages."""
        return self._objects.where

    # --- the lock -----------------------------------------------------------------------------------------------------

    def lock(self, chain: str) -> Claim | None:
        """Take the lock; None if another process has it. Does not wait: call it again and again, at least `BEATS` times
        in the time that the holder states, to take it from a holder that is silent. A holder of this machine that has
        ended does not count. One small read while the holder lives."""
        began = self.elapsed()
        self._refused = None
        if self._watch is not None:
            self._watch.look(self._read(self._watch.name), began)
            if self._watch.left_ms and self._watch.found.until_ms and not self._ended(self._watch.found):
                self._refused = self._watch.found
                return None
        links = self._objects.list(chain)
        last = self._read(links[-1]) if links else _NOBODY
        free = last.until_ms == 0 or self._ended(last)
        watch = self._watch
        if links and not free and (watch is None or watch.name != links[-1] or watch.found != last or watch.left_ms):
            self._watch, self._refused = _Watch(links[-1], last, began), last
            return None
        self._watch = None
        number = 1 + (int(links[-1].rpartition("/")[2]) if links else 0)
        claim = Claim(self, f"{chain}/{number:0{_DIGITS}d}", began, chain=chain, alone=free)
        body = self._body(claim)
        # A client that repeats a request after an error of the store finds the object that it has made itself.
        with suppress(FileExists):
            self._objects.create(claim.name, body)
        # Another process was quicker, also where conditional creation is not atomic.
        if self._read(claim.name) != _decode(body):
            return None
        with suppress(StorageError):
            for link in links:
                self._objects.delete(link)
        return self._hold(claim)

    def holder(self, chain: str) -> Claimed | None:
        """Who has the lock; None if it is free. Right after this process was refused the lock: who was the reason,
        without a request."""
        found, self._refused = self._refused, None
        if found is None and (links := self._objects.list(chain)):
            found = self._read(links[-1])
        return found if found is not None and found.until_ms else None

    def left_ms(self, holder: Claimed) -> int:
        """How much longer a holder may be silent before this process takes the lock."""
        watch = self._watch
        return watch.left_ms if watch is not None and watch.found == holder else holder.ttl_ms

    def release_ended(self, chain: str) -> bool:
        """Release the lock for a holder on this machine that has ended without doing so. Returns whether there was one.

        Its process is gone, so it will never rely on the lock again. If another process takes the lock meanwhile, that
        has a higher number, and what is written here counts for nothing.
        """
        links = self._objects.list(chain)
        found = self._read(links[-1]) if links else _NOBODY
        if not found.until_ms or not self._ended(found):
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
        claim = Claim(self, name, self.elapsed(), chain=None, alone=True)
        self.write(claim)
        return self._hold(claim)

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
        for claim in self._claims():
            claim.beat()

    def write(self, claim: Claim, *, released: bool = False) -> None:
        """Write one of this process's claims."""
        self._objects.overwrite(claim.name, self._body(claim, released=released))

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

    def _claims(self) -> list[Claim]:
        with self._books:
            return list(self._held)

    def _run(self, stopping: threading.Event) -> None:
        """Send heartbeats while any claim is held, and for a lease's time longer, because the next claim often follows
        soon. The pause is that of a lock also while only leases are held: the lock may be taken in the middle of it."""
        pause = min(self.lock_ms, TTL_MS) / 1000 / BEATS
        until = self.elapsed() + TTL_MS
        while not stopping.wait(pause):
            for claim in self._claims():
                if claim.due:
                    claim.beat()
            with self._books:
                now = self.elapsed()
                until = now + TTL_MS if self._held else until
                self._beats = now < until
                if not self._beats:
                    return

    def _body(self, claim: Claim, *, released: bool = False) -> bytes:
        until = 0 if released else self.now() + claim.ttl_ms
        host, pid, ttl = socket.gethostname(), os.getpid(), claim.ttl_ms
        return _encode(Claimed(self._owner, host, pid, until, machine=self._machine, ttl_ms=ttl, beats=claim.beats))

    def _read(self, name: str) -> Claimed:
        try:
            return _decode(self._objects.get(name))
        except (FileMissing, msgspec.DecodeError, UnicodeDecodeError):
            # The claim was deleted meanwhile, or the store tore its write: treat it as free.
            return _NOBODY
