"""Exchange: worker processes talk to each other inside an epoch, everyone to everyone, in lock step.

What carries the messages is in service/mailbox.py; here they are put together to calls. What is not for the running
attempt is dropped. Every wait has a deadline and also hears the driver, so that a worker whose peer died leaves within
milliseconds of the driver's noticing. Calls are short, so a worker first looks whether its peers' rings have something
and only then sleeps, if there are cores enough for all of them.
"""

from __future__ import annotations

import struct
import time

import numpy as np
import zmq

from operators.exchange import Round, least
from service.cores import usable_cores
from service.errors import DeadlinePassed
from service.kernels.rings import await_any, fall_asleep
from service.link import Link
from service.mailbox import CALL, COLUMNS, HEADER_WORDS, MARK, SENDER, SIZE, Mail, Mailbox, digest
from storage.updates import Ints

_LOOKS, _TURNS = 16, 16
"""How often a waiting worker looks for mail before it sleeps, and how often into the rings between. A turn takes half a
microsecond or more."""
_NAP_MS = 1000
"""For how long it sleeps at most without looking around."""


class Exchange:
    """One worker's part in one attempt; implements operators.exchange.Exchange.

    index, peers: this worker's shard, and the mailboxes of all shards. seconds: how long a call may take; the attempt's
    deadline, not a peer's expected pace. bytes_sent: to others; waited: seconds in calls.
    Raises AttemptCancelled, DeadlinePassed and DriverGone from every call.
    """

    def __init__(
        self, mailbox: Mailbox, attempt: str, index: int, peers: list[str], link: Link | None, seconds: float
    ) -> None:
        self.workers, self.index = len(peers), index
        self.attempt = attempt
        self.bytes_sent = 0
        self.waited = 0.0
        self._mailbox, self._link, self._seconds = mailbox, link, seconds
        self._header = np.zeros(HEADER_WORDS, np.int64)
        self._header[MARK:CALL] = self._mark = np.frombuffer(digest(attempt), np.int64)
        self._header[SENDER] = index
        self._call = 0
        self._early: dict[tuple[int, int], Mail] = {}
        mailbox.keep(peers)
        self._out = {i: mailbox.outbox(peer) for i, peer in enumerate(peers) if i != index}
        self._looks = _LOOKS if self.workers <= usable_cores() else 0
        self._read = np.zeros(HEADER_WORDS, np.int64)
        self._look_around()
        self._poller = zmq.Poller()
        self._poller.register(mailbox.inbox, zmq.POLLIN)
        if link is not None:
            self._poller.register(link.fileno(), zmq.POLLIN)

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return self._call

    def all_to_all(self, parts: list[Ints]) -> list[Ints]:
        """parts[i], int64[n, c], goes to worker i; returns what came from each worker. One message to each peer."""
        for i in self._out:
            part = np.ascontiguousarray(parts[i])
            self._send(i, part.shape[1], part.nbytes, part.reshape(-1))
        result = []
        for i, mail in enumerate(self._collect()):
            result.append(parts[i] if mail is None else mail[1].reshape(-1, int(mail[0][COLUMNS])))
        return result

    def allgather(self, payload: bytes) -> list[bytes]:
        """Every worker's payload, by its index."""
        words = np.frombuffer(payload + bytes(-len(payload) % 8), np.int64)
        for i in self._out:
            self._send(i, 0, len(payload), words)
        return [payload if mail is None else mail[1].tobytes()[: mail[0][SIZE]] for mail in self._collect()]

    def agree_min(self, value: Round | None) -> Round | None:
        """The least of all workers' values; None where nobody has one."""
        payload = b"" if value is None else struct.pack(f"<{len(value)}q", *value)
        return least([struct.unpack(f"<{len(data) // 8}q", data) if data else None for data in self.allgather(payload)])

    def _send(self, peer: int, columns: int, size: int, words: Ints) -> None:
        header = self._header
        header[CALL], header[COLUMNS], header[SIZE] = self._call, columns, size
        self.bytes_sent += self._out[peer].send(header, words)

    def _collect(self) -> list[Mail | None]:
        """This call's message from every worker; nothing from ourselves."""
        began = time.monotonic()
        got: dict[int, Mail] = {}
        if self._early:
            got = {i: self._early.pop((self._call, i)) for i in self._out if (self._call, i) in self._early}
        deadline = began + self._seconds
        while True:
            self._empty_rings(got)
            if len(got) == len(self._out):
                break
            for _ in range(self._looks):
                if await_any(self._rings_at, _TURNS) >= 0 or self._take_mail(got):
                    break
            else:
                if not self._take_mail(got):
                    self._sleep(deadline)
        self._call += 1
        self.waited += time.monotonic() - began
        return [got.get(i) for i in range(self.workers)]

    def _empty_rings(self, got: dict[int, Mail]) -> None:
        """Take what the rings hold."""
        while (ring := await_any(self._rings_at, 0)) >= 0:
            words = self._rings[ring].read(self._read)
            self._sort((self._read.copy(), words), got)

    def _take_mail(self, got: dict[int, Mail]) -> bool:
        """Take what has come by the socket; whether there was anything."""
        found = False
        while (mail := self._mailbox.receive()) is not None:
            self._sort(mail, got)
            found = True
        if self._rings != list(self._mailbox.rings.values()):
            self._look_around()
        return found

    def _look_around(self) -> None:
        """Which rings there are: peers offer theirs with their first message."""
        self._rings = list(self._mailbox.rings.values())
        self._rings_at = np.array([ring.address for ring in self._rings], np.int64)

    def _sort(self, mail: Mail, got: dict[int, Mail]) -> None:
        header = mail[0]
        call, sender = int(header[CALL]), int(header[SENDER])
        if not np.array_equal(header[MARK:CALL], self._mark) or sender not in self._out or call < self._call:
            return
        if call == self._call:
            got[sender] = mail
        else:
            # A peer that has everything for this call may be one ahead of us.
            self._early[call, sender] = mail

    def _sleep(self, deadline: float) -> None:
        """Until something happens. Whoever writes into a ring of a sleeping worker sends an empty message, too."""
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
