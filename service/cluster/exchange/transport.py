"""Transport: the mailbox to which a process's peers send for its whole life, and how the process sends to them.

A process has one bound PULL socket and one PUSH socket per peer. For peers on the same host there is also a ring of
shared memory (service/cluster/exchange/shared_ring.py), which is offered in the first message. A frame consists of the
service's token, a header and int64 words; a message in a ring has no token, because only a process of the service could
open the ring. Between hosts every connection is encrypted with CURVE with its own keys, and only a process that has the
service's key pair can connect.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac

import numpy as np
import zmq
from zmq.auth.thread import ThreadAuthenticator

from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.shared_ring import OFFER_BYTES, Ring
from vernier.service.kernels.rings import FULL, WAKE
from vernier.storage.updates import Ints

MARK, CALL, SENDER, COLUMNS, SIZE, LINKED, HEADER_WORDS = 0, 2, 3, 4, 5, 6, 7
"""The words of a header: two that identify the attempt, the number of the call, the sender's index, the number of
columns, how many bytes of the words after it are valid, and whether the sender has lanes to and from all workers."""
_TOKEN_BYTES = 16
_WORDS_AT = _TOKEN_BYTES + 8 * HEADER_WORDS
_LINGER_MS = 200
_OFFERS = (0, 0)
"""In a message that offers a ring, these stand in place of the attempt."""

Mail = tuple[Ints, Ints]
"""A header, int64[HEADER_WORDS], and int64[n], both owned by the receiver."""


def digest(text: str) -> bytes:
    """A 16-byte digest that identifies a token or an attempt."""
    return hashlib.blake2b(text.encode(), digest_size=_TOKEN_BYTES).digest()


class Outbox:
    """The connection to one peer."""

    def __init__(self, socket: zmq.Socket[bytes], ring: Ring | None, token: bytes) -> None:
        self._socket, self._ring, self._token = socket, ring, token

    @property
    def lane(self) -> int:
        """The address of the lane to the peer; 0 until the peer has opened it."""
        return self._ring.lane if self._ring is not None and self._ring.ready else 0

    def send(self, header: Ints, words: Ints) -> int:
        """Send int64[n]; returns the number of bytes sent. Never waits."""
        ring = self._ring
        if ring is not None and ring.ready:
            said = ring.write(header, words)
            if said == WAKE:
                self._by_socket(b"")
            if said != FULL:
                return header.nbytes + words.nbytes
        frame = self._token + header.tobytes() + words.tobytes()
        self._by_socket(frame)
        return len(frame)

    def _by_socket(self, frame: bytes) -> None:
        # Without a limit there is always space unless the peer has refused the connection; then the worker that waits
        # for an answer finds out.
        with contextlib.suppress(zmq.Again):
            self._socket.send(frame, zmq.NOBLOCK)

    def close(self) -> None:
        """Drop what was not sent and close the socket."""
        self._socket.close(0)
        if self._ring is not None:
            self._ring.close()


class Mailbox:
    """host: the address to bind, which peers must be able to reach; keys: the service's own. rings: rings of peers on
    this host, by the peer's address."""

    def __init__(self, keys: Keys, host: str = "127.0.0.1") -> None:
        self.token = digest(keys.token)
        self.context = zmq.Context()
        self._keys = keys
        self._authenticator = authenticator(self.context, keys) if keys.encrypted else None
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
        self.rings: dict[str, Ring] = {}
        self._outboxes: dict[str, Outbox] = {}

    def outbox(self, address: str) -> Outbox:
        """The connection to a peer; it is kept, because connecting takes longer than a round."""
        outbox = self._outboxes.get(address)
        if outbox is None:
            outbox = self._outboxes[address] = self._connect(address)
        return outbox

    def _socket(self, address: str) -> zmq.Socket[bytes]:
        """A socket for the connection to a peer."""
        socket = self.context.socket(zmq.PUSH)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.setsockopt(zmq.IPV6, int("[" in address))
        if self._keys.encrypted:
            socket.curve_secretkey, socket.curve_publickey = self._keys.secret, self._keys.public
            socket.curve_serverkey = self._keys.public
        return socket

    def _connect(self, address: str) -> Outbox:
        socket = self._socket(address)
        socket.connect(address)
        here = address.rpartition(":")[0] == self.address.rpartition(":")[0]
        ring = Ring.make() if here else None
        outbox = Outbox(socket, ring, self.token)
        if ring is not None:
            # The offer travels by the socket, because the peer has not opened the ring yet.
            offer = ring.offer + self.address.encode()
            header = np.array([*_OFFERS, 0, 0, 0, len(offer), 0])
            outbox.send(header, np.frombuffer(offer + bytes(-len(offer) % 8), np.int64))
        return outbox

    def receive(self) -> Mail | None:
        """The next message that arrived by the socket; None if there is none. Messages that are not of this service are
        dropped unread. The rings are polled by the caller."""
        while True:
            try:
                frame = self.inbox.recv(zmq.NOBLOCK)
            except zmq.Again:
                return None
            if len(frame) < _WORDS_AT or len(frame) % 8 or not hmac.compare_digest(frame[:_TOKEN_BYTES], self.token):
                continue
            # A copy, because kernels are compiled for writable arrays.
            whole = np.frombuffer(frame, np.int64, offset=_TOKEN_BYTES).copy()
            header, words = whole[:HEADER_WORDS], whole[HEADER_WORDS:]
            if tuple(header[MARK:CALL]) != _OFFERS:
                return header, words
            offer = words.tobytes()[: header[SIZE]]
            ring = Ring.accept(offer[:OFFER_BYTES])
            if ring is not None:
                self.rings[offer[OFFER_BYTES:].decode()] = ring

    def keep(self, addresses: list[str]) -> None:
        """Close the connections to all other peers, because processes come and go. Rings of processes that may still
        write to us are kept and read, even if they are no peers now: such a process may become a peer again without
        ever having noticed that it was none."""
        for address in self._outboxes.keys() - set(addresses):
            self._outboxes.pop(address).close()
        self.rings = {address: ring for address, ring in self.rings.items() if not ring.over}

    def close(self) -> None:
        """Stop listening and drop what was not sent."""
        for outbox in self._outboxes.values():
            outbox.close()
        self.rings.clear()
        if self._authenticator is not None:
            self._authenticator.stop()
        # All sockets, also that of a connection that Ctrl-C has interrupted before it had an outbox: the end of a
        # context waits for each.
        self.context.destroy(0)


class _OnlyOurs:
    """Admits connections that have proved to hold the service's key pair."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return hmac.compare_digest(key, self._public)


def authenticator(context: zmq.Context[zmq.Socket[bytes]], keys: Keys) -> ThreadAuthenticator:
    """The authenticator that decides about each new connection to sockets of the context."""
    made = ThreadAuthenticator(context)
    made.start()
    made.configure_curve_callback(domain="*", credentials_provider=_OnlyOurs(keys.public))
    return made
