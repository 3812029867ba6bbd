"""Rendezvous: where the tasks of an epoch's attempt meet and get their shards and each other's addresses; on the
driver.

Spark starts N tasks in arbitrary Python processes. Each task connects here, says which attempt it works for and which
shards its process has in memory (hot), and waits until all N have arrived. Then every task gets a shard (where possible
one that its process has hot) and the addresses of all tasks. Reports come back over the same connections, so a commit
waits for the workers and not for Spark to end its stage. An attempt ends exactly once: it is complete when the last
report has arrived, or it is cancelled, which the rendezvous reports to all its workers.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.messages import (
    DECODING,
    LARGEST_FRAME,
    LARGEST_HELLO,
    Assign,
    Cancel,
    Convicted,
    Failed,
    Hello,
    Hot,
    Open,
    Phase,
    Poisoned,
    Report,
    Start,
    Stuck,
    Wire,
)
from vernier.service.cluster.shelf import Place, Rows, Shelf
from vernier.service.cluster.tls import Channel, Identity
from vernier.service.errors import ProtocolBroken
from vernier.storage.threads import Threads

HELLO_SECONDS = 10
STRANGERS = 64
"""The maximum number of connections that have not authenticated yet. More are closed unread, and workers try again."""

_log = logging.getLogger("vernier.rendezvous")


@dataclass
class Attempt:
    """One attempt at an epoch. `ended` is set once it is complete or cancelled; then exactly one of reports (all of
    them, by shard) and reason is set. decoding: it was cancelled because of a worker that was decoding messages, so
    these may be at fault. convicted: the messages that its workers found in quarantine. filling: the worker that failed
    was at work for programs to change to. handed_out: it has no tasks of Spark's (see Rendezvous.hand_out)."""

    id: str
    start: Start
    workers: int
    began: float = field(default_factory=time.monotonic)
    ended: threading.Event = field(default_factory=threading.Event)
    reports: list[Report] = field(default_factory=list)
    reason: str | None = None
    caller: bool = False
    final: bool = False
    opened_seconds: float = 0.0
    decoding: bool = False
    handed_out: bool = False
    filling: bool = False
    convicted: list[Poisoned] = field(default_factory=list)
    _opens: dict[int, tuple[_Peer, Open]] = field(default_factory=dict)
    _peers: list[_Peer] = field(default_factory=list)
    _got: dict[int, Report] = field(default_factory=dict)
    _phases: dict[_Peer, str] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """How many of its workers have not begun their tasks yet."""
        return 0 if self._peers else self.workers - len(self._opens)

    @property
    def late(self) -> list[int]:
        """The processes of the workers on this host that have not reported."""
        return _pids_here(peer for shard, peer in enumerate(self._peers) if shard not in self._got)

    @property
    def pids(self) -> list[int]:
        """The processes of the workers on this host, once all have arrived."""
        return _pids_here(self._peers)


@dataclass(eq=False)
class _Peer:
    """A connected worker process."""

    wire: Wire
    hello: Hello


class Rendezvous:
    """The server. `complete` is called with an attempt when its last report has arrived, on the thread that received
    it; what it returns is called there when the attempt has ended.

    host: the address to listen on, which workers must be able to reach. encrypted: whether to use TLS here and CURVE
    for the exchange. keys: the credentials that workers need. stuck: called when a worker reports a function that does
    not return. threads: the owner of the thread that accepts connections, and of one for each connection.
    """

    def __init__(
        self,
        workers: int,
        complete: Callable[[Attempt], Callable[[], None] | None],
        host: str = "127.0.0.1",
        *,
        encrypted: bool = False,
        stuck: Callable[[Attempt, str, float], None] = lambda attempt, said, seconds: None,
        threads: Threads | None = None,
    ) -> None:
        self.workers = workers
        self._identity = Identity() if encrypted else None
        self.keys = Keys.plain() if self._identity is None else Keys.sealed(self._identity.pem)
        self._complete = complete
        self._stuck = stuck
        self.shelf = Shelf() if hasattr(os, "memfd_create") else None
        self._lock = threading.Lock()
        self._current: Attempt | None = None
        self._newest: Attempt | None = None
        self._connected: set[_Peer] = set()
        self._strangers: set[socket.socket] = set()
        self._unheard = threading.BoundedSemaphore(STRANGERS)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, 0), family=family)
        self.address: tuple[str, int] = self._server.getsockname()[:2]
        self._threads = threads or Threads()
        self._acceptor = self._threads.start("rendezvous", self._accept)

    def begin(self, start: Start) -> Attempt:
        """Begin a new attempt; tasks that name it may connect from now on. The previous attempt must have ended."""
        attempt = Attempt(secrets.token_hex(6), start, self.workers)
        with self._lock:
            self._current = attempt
        return attempt

    def lay(self, streams: list[bytes]) -> list[Rows]:
        """Lay out messages for `hand_out`, one stream of Arrow's for each worker, where workers of this host find them.
        This takes place for those of two epochs: the next one's, and the one's after it."""
        with self._lock:
            seen = any(peer.hello.sees for peer in self._connected)
        if self.shelf is not None and seen:
            with contextlib.suppress(OSError):  # there is no more memory
                return self.shelf.lay(streams)
        return [*streams]

    def hand_out(self, attempt: Attempt, rows: Sequence[Rows]) -> bool:
        """Give the shards and these messages, one stream of Arrow's for each worker, or where it lies, to the processes
        that made the commit from which the attempt starts, without tasks of Spark's. Returns False if one of them is
        gone; then nothing has happened."""
        with self._lock:
            newest = self._newest
            if newest is None or newest.id != attempt.start.base or len(newest._peers) != attempt.workers:
                return False
            if not self._connected.issuperset(newest._peers):
                return False
            attempt._peers, attempt.handed_out = list(newest._peers), True
        addresses = [one.hello.address for one in attempt._peers]
        for shard, one in enumerate(attempt._peers):
            own = rows[shard]
            if isinstance(own, Place) and not one.hello.sees and self.shelf is not None:
                own = self.shelf.read(own)
            self._send(one.wire, Assign(attempt.id, shard, addresses, attempt.start, rows=own))
        return True

    def cancel(
        self, attempt: Attempt, reason: str, *, caller: bool = False, final: bool = False, culprit: _Peer | None = None
    ) -> bool:
        """End an attempt that is not complete yet and tell its workers. Returns False if it had ended already.

        culprit: the worker because of which it ends; None: any worker that has not finished.
        """
        with self._lock:
            if attempt.ended.is_set() or len(attempt._got) == attempt.workers:
                return False
            attempt.reason, attempt.caller, attempt.final = reason, caller, final
            phases = attempt._phases
            last = phases.values() if culprit is None else [phases.get(culprit, "")]
            attempt.decoding = DECODING in last
            attempt.ended.set()
            peers = {peer.wire: peer for peer in [*attempt._peers, *(peer for peer, _ in attempt._opens.values())]}
        for wire in peers:
            self._send(wire, Cancel(attempt.id, reason))
        return True

    def surplus(self, attempt: Attempt) -> list[int]:
        """The processes on this host that are connected and were none of a completed attempt's workers."""
        with self._lock:
            others = self._connected.difference(attempt._peers)
        return _pids_here(others)

    def close(self) -> None:
        """Stop listening and disconnect all workers."""
        self._acceptor.stopping.set()
        with self._lock:
            connected, self._connected = self._connected, set()
            strangers = set(self._strangers)
        # A blocked accept does not notice that its socket was closed.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        if self.shelf is not None:
            self.shelf.close()
        for peer in connected:
            peer.wire.close()
        for stranger in strangers:
            with contextlib.suppress(OSError):
                stranger.shutdown(socket.SHUT_RDWR)

    # --- connections --------------------------------------------------------------------------------------------------

    def _accept(self, stopping: threading.Event) -> None:
        while True:
            try:
                connected, _ = self._server.accept()
            except OSError:
                if stopping.is_set():
                    return
                raise  # such as too many open files: the thread's owner logs it, and accepts again
            if not self._unheard.acquire(blocking=False):
                connected.close()
                continue
            with self._lock:
                self._strangers.add(connected)
            self._threads.start("rendezvous-peer", partial(self._serve, connected), again=False)

    def _serve(self, connected: socket.socket, _stopping: threading.Event) -> None:
        try:
            peer = self._greeted(connected)
        finally:
            self._unheard.release()
            with self._lock:
                self._strangers.discard(connected)
        if peer is None:
            connected.close()
            return
        why = "it closed the connection"
        try:
            while (message := peer.wire.receive()) is not None:
                self._handle(peer, message)
        except (OSError, ProtocolBroken) as error:
            why = str(error)
        finally:
            peer.wire.close()
            with self._lock:
                self._connected.discard(peer)
            self._gone(peer, why)

    def _greeted(self, connected: socket.socket) -> _Peer | None:
        """The peer that has connected, if it belongs to this service; else None."""
        said = "it does not know this service's token"
        host = "a client that has left"
        try:
            host = str(connected.getpeername()[0])
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.settimeout(HELLO_SECONDS)
            under: socket.socket | Channel = connected
            if self._identity is not None:
                under = self._identity.accept(connected)
            wire = Wire(under, LARGEST_HELLO)
            hello = wire.receive()
            if isinstance(hello, Hello) and hmac.compare_digest(hello.token.encode(), self.keys.token.encode()):
                connected.settimeout(None)
                wire.limit = LARGEST_FRAME
                peer = _Peer(wire, hello)
                with self._lock:
                    self._connected.add(peer)
                return peer
        except (OSError, ProtocolBroken) as error:
            said = str(error)
        _log.warning("refused a connection from %s: %s", host, said)
        return None

    def _handle(self, peer: _Peer, message: object) -> None:
        match message:
            case Open():
                self._open(peer, message)
            case Report():
                self._report(message)
            case Failed():
                attempt = self._named(message.attempt)
                if attempt is not None:
                    attempt.filling = attempt.filling or message.filling
                    self.cancel(attempt, message.error, caller=message.caller, final=message.final, culprit=peer)
            case Stuck():
                attempt = self._named(message.attempt)
                if attempt is not None and not attempt.ended.is_set():
                    self._stuck(attempt, message.said, message.seconds)
            case Phase():
                attempt = self._named(message.attempt)
                if attempt is not None:
                    with self._lock:
                        attempt._phases[peer] = message.phase
            case Convicted():
                attempt = self._named(message.attempt)
                if attempt is not None:
                    with self._lock:
                        attempt.convicted += message.messages
            case _:
                raise ProtocolBroken(problem=f"a worker sent {type(message).__name__}")

    def _gone(self, peer: _Peer, why: str) -> None:
        """A worker process has left. If the running attempt still needs something from it, the attempt is lost."""
        with self._lock:
            attempt = self._current
            if attempt is None or attempt.ended.is_set():
                return
            owes = any(one is peer for one, _ in attempt._opens.values()) or any(
                one is peer and shard not in attempt._got for shard, one in enumerate(attempt._peers)
            )
        if owes:
            self.cancel(attempt, f"worker process {peer.hello.pid} on {peer.hello.host} is gone ({why})", culprit=peer)

    def _named(self, attempt_id: str) -> Attempt | None:
        with self._lock:
            attempt = self._current
            return attempt if attempt is not None and attempt.id == attempt_id else None

    def _open(self, peer: _Peer, opened: Open) -> None:
        attempt = self._named(opened.attempt)
        if attempt is None or attempt.ended.is_set():
            reason = attempt.reason if attempt is not None and attempt.reason else "it is not the current attempt"
            self._send(peer.wire, Cancel(opened.attempt, reason))
            return
        if attempt._peers:
            # An executor's host has vanished without a word. What Spark starts again would wait for its shard for ever.
            self.cancel(attempt, "Spark has lost an executor and begins the tasks again")
            self._send(peer.wire, Cancel(opened.attempt, attempt.reason or ""))
            return
        with self._lock:
            # Spark may start a task twice: the newer one counts.
            attempt._opens[opened.task] = (peer, opened)
            if len(attempt._opens) < attempt.workers or attempt._peers:
                return
            order = place([one.hot for _, one in _by_task(attempt)], attempt.start)
            everyone = [peer for peer, _ in _by_task(attempt)]
            attempt._peers = [everyone[task] for task in order]
            attempt._opens = {}
            attempt.opened_seconds = time.monotonic() - attempt.began
            idle: dict[tuple[str, int], list[int]] = {}
            for other in self._connected.difference(attempt._peers):
                idle.setdefault(other.hello.executor, []).append(other.hello.pid)
        addresses = [one.hello.address for one in attempt._peers]
        for shard, one in enumerate(attempt._peers):
            surplus = idle.pop(one.hello.executor, [])
            self._send(one.wire, Assign(attempt.id, shard, addresses, attempt.start, surplus))

    def _report(self, report: Report) -> None:
        attempt = self._named(report.attempt)
        if attempt is None:
            return
        with self._lock:
            if attempt.ended.is_set():
                return
            attempt._got[report.shard] = report
            if len(attempt._got) < attempt.workers:
                return
            attempt.reports = [attempt._got[shard] for shard in range(attempt.workers)]
            self._newest = attempt
        after = None
        try:
            after = self._complete(attempt)
        finally:
            attempt.ended.set()
        if after is not None:
            after()

    def _send(self, wire: Wire, message: Assign | Cancel) -> None:
        # If the worker is gone, its own thread notices.
        with contextlib.suppress(OSError):
            wire.send(message)


def _pids_here(peers: Iterable[_Peer]) -> list[int]:
    here = socket.gethostname()
    return [peer.hello.pid for peer in peers if peer.hello.host == here]


def _by_task(attempt: Attempt) -> list[tuple[_Peer, Open]]:
    return [attempt._opens[task] for task in sorted(attempt._opens)]


def place(hot: list[list[Hot]], start: Start) -> list[int]:
    """Which task gets which shard: result[shard] is an index into `hot`, which lists the shards that each task's
    process holds.

    A process keeps a shard that it holds exactly as the newest commit left it, and cut for as many workers. The other
    processes get the remaining shards in order.
    """
    taken: dict[int, int] = {}
    for task, shards in enumerate(hot):
        for one in shards:
            current = (one.epoch, one.attempt, one.workers) == (start.epoch - 1, start.base, len(hot))
            if current and one.shard not in taken and one.shard < len(hot):
                taken[one.shard] = task
                break
    free = iter(sorted(set(range(len(hot))) - set(taken.values())))
    return [taken[shard] if shard in taken else next(free) for shard in range(len(hot))]
