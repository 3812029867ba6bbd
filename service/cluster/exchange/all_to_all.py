"""All-to-all exchange: the worker processes of an epoch send messages to each other, every worker to every other, in
lock step.

service/cluster/exchange/transport.py carries the messages; this module combines them into calls. Messages that do not
belong to the running attempt are dropped. Every wait has a deadline and also watches the connection to the driver: if a
peer dies, the others leave within milliseconds of the driver noticing. Calls are short, so a waiting worker first polls
its peers' rings (shared_ring.py) and only then sleeps, provided there are enough cores for all workers.

Kernels that run whole slices exchange rows through lanes, once all workers know that all have them: each message says
whether its sender has.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Collection
from typing import Protocol

import numpy as np
import zmq

from vernier.operators.runtime.exchange import Round, least
from vernier.operators.runtime.lanes import Lanes
from vernier.service.cluster.exchange.transport import (
    CALL,
    COLUMNS,
    HEADER_WORDS,
    LINKED,
    MARK,
    SENDER,
    SIZE,
    Mailbox,
    digest,
)
from vernier.service.errors import DeadlinePassed
from vernier.service.kernels.rings import await_any, fall_asleep, this_core, watch_any
from vernier.storage.cpus import leave_core, usable_cores
from vernier.storage.updates import Ints

_LOOKS = 1 << 14
"""How often a waiting worker polls the rings before it does anything else, which takes some 30 microseconds. Most
messages arrive in that time, and a worker that yields its core may get it back only milliseconds later."""
_LOOKING_SECONDS = 0.0005
"""How long a worker keeps polling, yielding its core in between, before it sleeps. Waking up costs at least a fifth of
that."""
_TURNS = 64
"""The number of polls, with yields in between, before the worker checks its socket. One such turn takes half a
microsecond or more."""
_CROWDED_SECONDS, _CROWDED_CALLS = 0.001, 64
"""If that many turns take longer than this many seconds, other threads compete for the core. The worker then sleeps
instead of polling for this many calls, because a thread that is woken gets the core sooner than one that has yielded
it."""
_NAP_MS = 1000
"""The longest sleep in milliseconds before the worker checks everything again."""

_Message = tuple[int, int, Ints, int]
"""The number of columns, the number of valid bytes, the words, whether the sender has its lanes."""


class Link(Protocol):
    """Where a worker that waits for its peers hears that it waits in vain."""

    def fileno(self) -> int:
        """The descriptor is readable when there is news: then call `check`."""
        ...

    def check(self, attempt: str) -> None:
        """Process the news. Raises to end the attempt."""
        ...


class Exchange:
    """One worker's part in one attempt; implements vernier.operators.runtime.exchange.Exchange.

    index, peers: this worker's shard, and the mailboxes of all shards. seconds: how long a call may take; this is the
    attempt's deadline and not a peer's expected pace. link: the connection to the driver, in the service.
    Every call may raise AttemptCancelled, DeadlinePassed and DriverGone.
    """

    def __init__(
        self, mailbox: Mailbox, attempt: str, index: int, peers: list[str], link: Link | None, seconds: float
    ) -> None:
        self.workers, self.index = len(peers), index
        self.attempt = attempt
        self._bytes_sent, self._waited = 0, 0.0
        self._mailbox, self._link, self._seconds = mailbox, link, seconds
        self._header = np.zeros(HEADER_WORDS, np.int64)
        self._header[MARK:CALL] = mark = np.frombuffer(digest(attempt), np.int64)
        self._mark = mark.tolist()
        self._header[SENDER] = index
        self._call = self._crowded_until = 0
        self._early: dict[tuple[int, int], _Message] = {}
        mailbox.keep(peers)
        self._out = {i: mailbox.outbox(peer) for i, peer in enumerate(peers) if i != index}
        self._looks = self.workers <= usable_cores()
        self._read = np.zeros(HEADER_WORDS, np.int64)
        self._look_around()
        self._poller = zmq.Poller()
        self._poller.register(mailbox.inbox, zmq.POLLIN)
        if link is not None:
            self._poller.register(link.fileno(), zmq.POLLIN)
        self._peers = peers
        self.lanes = Lanes(self.workers, index, self._mark, self._check, self._looks) if self._out else None

    @property
    def bytes_sent(self) -> int:
        """How many bytes were sent to other workers."""
        return self._bytes_sent + (0 if self.lanes is None else self.lanes.bytes_sent)

    @property
    def waited(self) -> float:
        """Seconds spent in calls, and waiting in exchanges of kernels."""
        return self._waited + (0 if self.lanes is None else self.lanes.waited)

    def all_to_all(self, parts: list[Ints]) -> list[Ints]:
        """Send parts[i], int64[n, c], to worker i; returns what came from each worker. One message to each peer."""
        self._link_lanes()
        self._send_parts(parts)
        return [
            parts[i] if message is None else message[2].reshape(-1, message[0])
            for i, message in enumerate(self._collect())
        ]

    def scatter(self, parts: list[Ints] | None) -> Ints:
        """Worker 0 sends parts[i], int64[n, c], to worker i, and does not wait; the others, who give none, wait for
        theirs. Returns this worker's part."""
        if parts is not None:
            self._send_parts(parts)
            self._call += 1
            return parts[self.index]
        [(columns, _, words, _)] = self._receive({0}).values()
        return words.reshape(-1, columns)

    def allgather(self, payload: bytes) -> list[bytes]:
        """Every worker's payload, by its index."""
        self._link_lanes()
        words = np.frombuffer(payload + bytes(-len(payload) % 8), np.int64)
        for i in self._out:
            self._send(i, 0, len(payload), words)
        return [payload if message is None else message[2].tobytes()[: message[1]] for message in self._collect()]

    def agree_min(self, value: Round | None) -> Round | None:
        """The minimum of all workers' values; None if all of them are None."""
        payload = b"" if value is None else struct.pack(f"<{len(value)}q", *value)
        return least([struct.unpack(f"<{len(data) // 8}q", data) if data else None for data in self.allgather(payload)])

    def _send_parts(self, parts: list[Ints]) -> None:
        for i in self._out:
            part = np.ascontiguousarray(parts[i])
            self._send(i, part.shape[1], part.nbytes, part.reshape(-1))

    def _send(self, peer: int, columns: int, size: int, words: Ints) -> None:
        header = self._header
        header[CALL], header[COLUMNS], header[SIZE] = self._call, columns, size
        self._bytes_sent += self._out[peer].send(header, words)

    def _collect(self) -> list[_Message | None]:
        """This call's message from every worker; None in the place of this worker."""
        got = self._receive(self._out)
        linked = self._header[LINKED] and all(message[3] for message in got.values())
        if linked and self.lanes is not None and not self.lanes.agreed:
            # Again, because a peer that has made a new ring says so only when this worker has opened it.
            self.lanes.connect(*self._lanes_at())
            self.lanes.agreed = True
        return [got.get(i) for i in range(self.workers)]

    def _receive(self, senders: Collection[int]) -> dict[int, _Message]:
        """This call's messages from these workers, all that send any; ends the call."""
        began = time.monotonic()
        got: dict[int, _Message] = {}
        if self._early:
            got = {i: self._early.pop((self._call, i)) for i in senders if (self._call, i) in self._early}
        self._await(got, len(senders), began)
        self._call += 1
        self._waited += time.monotonic() - began
        return got

    def _link_lanes(self) -> None:
        """Before a call: see whether there are lanes to all peers and from them; the call says so."""
        if self.lanes is not None and not self._header[LINKED]:
            outs, ins = self._lanes_at()
            self._header[LINKED] = all(outs[i] and ins[i] for i in self._out)

    def _lanes_at(self) -> tuple[list[int], list[int]]:
        """The addresses of the lanes to each peer and from it; 0 where there is none."""
        outs, ins = [0] * self.workers, [0] * self.workers
        for i, outbox in self._out.items():
            ring = self._mailbox.rings.get(self._peers[i])
            outs[i], ins[i] = outbox.lane, 0 if ring is None else ring.lane
        return outs, ins

    def _check(self, shares: bool) -> None:
        """While a kernel waits: what `_await` does. Raises AttemptCancelled, DeadlinePassed and DriverGone."""
        if shares:
            self._leave_shared_core()
        elif self._link is not None and self._link.fileno() in dict(self._poller.poll(0)):
            self._link.check(self.attempt)
        if self.lanes is not None and time.monotonic() >= self.lanes.began + self._seconds:
            raise DeadlinePassed(attempt=self.attempt, what="message from a peer", seconds=self._seconds)

    def _await(self, got: dict[int, _Message], count: int, began: float) -> None:
        """Poll until there are this many messages; if that takes longer, sleep."""
        deadline, beside = began + self._seconds, self._looks
        while True:
            self._empty_rings(got)
            if len(got) == count:
                return
            if (self._looks and watch_any(self._rings_at, _LOOKS) >= 0) or self._take_mail(got):
                continue
            if beside and self._leave_shared_core():
                beside = False
            elif not self._looks or not self._give_way():
                self._sleep(deadline)

    def _give_way(self) -> bool:
        """Poll the rings for a while, yielding the core in between; returns whether there is a message."""
        if self._call < self._crowded_until:
            return False
        began = now = time.monotonic()
        while now < began + _LOOKING_SECONDS:
            if await_any(self._rings_at, _TURNS) >= 0:
                return True
            before, now = now, time.monotonic()
            if now - before > _CROWDED_SECONDS:
                self._crowded_until = self._call + _CROWDED_CALLS
        return False

    def _leave_shared_core(self) -> bool:
        """If a peer runs on the same core, move to another core; returns whether that was so. The system places a woken
        thread beside the one that woke it, and leaves both there while another thread occupies the other core."""
        taken = {ring.core for ring in self._rings}
        if this_core() not in taken:
            return False
        leave_core(taken)
        return True

    def _empty_rings(self, got: dict[int, _Message]) -> None:
        """Take what the rings contain."""
        while (ring := await_any(self._rings_at, 0)) >= 0:
            words = self._rings[ring].read(self._read)
            self._sort(self._read, words, got)

    def _take_mail(self, got: dict[int, _Message]) -> bool:
        """Take what has arrived through the socket; returns whether there was anything."""
        found = False
        while (mail := self._mailbox.receive()) is not None:
            self._sort(*mail, got)
            found = True
        if self._rings != list(self._mailbox.rings.values()):
            self._look_around()
        return found

    def _look_around(self) -> None:
        """Update the list of rings: peers offer theirs with their first message."""
        self._rings = list(self._mailbox.rings.values())
        self._rings_at = np.array([ring.address for ring in self._rings], np.int64)

    def _sort(self, header: Ints, words: Ints, got: dict[int, _Message]) -> None:
        *mark, call, sender, columns, size, linked = header.tolist()
        if mark != self._mark or sender not in self._out or call < self._call:
            return
        if call == self._call:
            got[sender] = columns, size, words, linked
        else:
            # A peer that has everything for this call may already be one call ahead of us.
            self._early[call, sender] = columns, size, words, linked

    def _sleep(self, deadline: float) -> None:
        """Sleep until something happens. A writer that writes into the ring of a sleeping worker also sends an empty
        message."""
        left = deadline - time.monotonic()
        fall_asleep(self._rings_at, 1)
        try:
            if await_any(self._rings_at, 0) >= 0:
                return
            ready = dict(self._poller.poll(min(_NAP_MS, int(left * 1000) + 1))) if left > 0 else {}
        finally:
            fall_asleep(self._rings_at, 0)
        if self._link is not None and self._link.fileno() in ready:
            self._link.check(self.attempt)
        if not ready and time.monotonic() >= deadline:
            raise DeadlinePassed(attempt=self.attempt, what="message from a peer", seconds=self._seconds)
