"""Exchange: worker processes talk to each other inside an epoch, everyone to everyone, in lock step, over ZeroMQ.

A process binds one PULL socket for its life (a Mailbox) and connects one PUSH socket to each peer. A frame is a
header (service's token, attempt, number of the call, sender, columns) and raw int64 bytes; what is not for the running
attempt, or does not carry the token, is dropped unread. Every wait has a deadline and also hears the driver, so that a
worker whose peer died leaves within milliseconds of the driver's noticing. Between hosts every connection is CURVE:
encrypted, with keys of its own, and only whoever has the service's pair gets one.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import time

import numpy as np
import zmq
from zmq.auth.thread import ThreadAuthenticator

from operators.exchange import Round, least
from service.errors import DeadlinePassed
from service.keys import Keys
from service.link import Link
from storage.updates import Ints

# token digest, attempt, number of the call, sender, columns
_HEADER = struct.Struct("<16s16sQII")
_LINGER_MS = 200


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class Mailbox:
    """Where a process's peers send. host: the address to bind, which peers can reach; keys: the service's own."""

    def __init__(self, keys: Keys, host: str = "127.0.0.1") -> None:
        self.token = _digest(keys.token)
        self.context = zmq.Context()
        self._keys = keys
        self._doorman = _doorman(self.context, keys) if keys.encrypted else None
        self.inbox = self.context.socket(zmq.PULL)
        self.inbox.setsockopt(zmq.RCVHWM, 0)
        self.inbox.setsockopt(zmq.LINGER, 0)
        if keys.encrypted:
            self.inbox.curve_server = True
            self.inbox.curve_secretkey, self.inbox.curve_publickey = keys.secret, keys.public
        if ":" in host:
            self.inbox.setsockopt(zmq.IPV6, 1)
            host = f"[{host}]"
        self.address = f"tcp://{host}:{self.inbox.bind_to_random_port(f'tcp://{host}')}"
        self._outboxes: dict[str, zmq.Socket[bytes]] = {}

    def outbox(self, address: str) -> zmq.Socket[bytes]:
        """The socket to a peer; kept, because connecting takes longer than a round."""
        socket = self._outboxes.get(address)
        if socket is None:
            socket = self._outboxes[address] = self.context.socket(zmq.PUSH)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.LINGER, _LINGER_MS)
            socket.setsockopt(zmq.IPV6, int("[" in address))
            if self._keys.encrypted:
                socket.curve_secretkey, socket.curve_publickey = self._keys.secret, self._keys.public
                socket.curve_serverkey = self._keys.public
            socket.connect(address)
        return socket

    def keep(self, addresses: list[str]) -> None:
        """Close the sockets to everyone else: processes come and go."""
        for address in self._outboxes.keys() - set(addresses):
            self._outboxes.pop(address).close(0)

    def close(self) -> None:
        """Stop listening and drop what was not sent."""
        for socket in [self.inbox, *self._outboxes.values()]:
            socket.close(0)
        if self._doorman is not None:
            self._doorman.stop()
        self.context.term()


class _OnlyOurs:
    """Lets in whoever has proved to hold the service's pair."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return hmac.compare_digest(key, self._public)


def _doorman(context: zmq.Context[zmq.Socket[bytes]], keys: Keys) -> ThreadAuthenticator:
    """What is asked about each new connection to sockets of the context."""
    made = ThreadAuthenticator(context)
    made.start()
    made.configure_curve_callback(domain="*", credentials_provider=_OnlyOurs(keys.public))
    return made


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
        self._mark = _digest(attempt)
        self._call = 0
        self._early: dict[tuple[int, int], tuple[int, bytes]] = {}
        mailbox.keep(peers)
        self._out = [None if i == index else mailbox.outbox(peer) for i, peer in enumerate(peers)]
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
        for i, part in enumerate(parts):
            if i != self.index:
                self._send(i, part.shape[1], np.ascontiguousarray(part).tobytes())
        result = []
        for i, (columns, data) in enumerate(self._collect(parts[self.index].shape[1])):
            # A copy, because kernels are compiled for arrays that can be written.
            if i == self.index:
                result.append(parts[i])
            else:
                result.append(np.frombuffer(data, np.int64, offset=_HEADER.size).reshape(-1, columns).copy())
        return result

    def allgather(self, payload: bytes) -> list[bytes]:
        """Every worker's payload, by its index."""
        for i in range(self.workers):
            if i != self.index:
                self._send(i, 0, payload)
        return [payload if i == self.index else data[_HEADER.size :] for i, (_, data) in enumerate(self._collect(0))]

    def agree_min(self, value: Round | None) -> Round | None:
        """The least of all workers' values; None where nobody has one."""
        payload = b"" if value is None else struct.pack(f"<{len(value)}q", *value)
        return least([struct.unpack(f"<{len(data) // 8}q", data) if data else None for data in self.allgather(payload)])

    def _send(self, peer: int, columns: int, data: bytes) -> None:
        socket = self._out[peer]
        if socket is not None:
            message = _HEADER.pack(self._mailbox.token, self._mark, self._call, self.index, columns) + data
            socket.send(message)
            self.bytes_sent += len(message)

    def _collect(self, columns: int) -> list[tuple[int, bytes]]:
        """(columns, message) of this call from every worker; our own place holds nothing."""
        began = time.monotonic()
        got: dict[int, tuple[int, bytes]] = {self.index: (columns, b"")}
        if self._early:
            for i in range(self.workers):
                if (self._call, i) in self._early:
                    got[i] = self._early.pop((self._call, i))
        receive, deadline = self._mailbox.inbox.recv, began + self._seconds
        while len(got) < self.workers:
            try:
                message = receive(zmq.NOBLOCK)
            except zmq.Again:
                self._wait(deadline)
                continue
            if len(message) < _HEADER.size:
                continue
            token, mark, call, sender, width = _HEADER.unpack_from(message)
            ours = hmac.compare_digest(token, self._mailbox.token) and mark == self._mark
            if not ours or sender >= self.workers or call < self._call:
                continue
            if call == self._call:
                got[sender] = (width, message)
            else:
                # A peer that has everything for this call may be one ahead of us.
                self._early[call, sender] = (width, message)
        self._call += 1
        self.waited += time.monotonic() - began
        return [got[i] for i in range(self.workers)]

    def _wait(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        ready = dict(self._poller.poll(max(0, int(left * 1000)) + 1)) if left > 0 else {}
        if self._link is not None and self._link.fileno() in ready:
            self._link.check(self.attempt)
        if not ready and time.monotonic() >= deadline:
            raise DeadlinePassed(attempt=self.attempt, what="message from a peer", seconds=self._seconds)
