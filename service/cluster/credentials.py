"""Keys: what the processes of one service know each other by, and what hides their talk from everybody else.

The driver makes them when it starts and keeps no copy; workers get theirs with the task's closure, over Spark's own
channel. Whoever has them is of the service. On loopback a token is enough: only this machine's users could listen, and
those of another user cannot. Between hosts the rendezvous is TLS with a certificate of its own
(service/cluster/tls.py), and the exchange is CURVE (service/cluster/exchange/all_to_all.py); the token is asked for
inside both.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True)
class Keys:
    """Of one driver's life. token: said first on every connection. certificate: the rendezvous', PEM, which workers
    pin. public, secret: the pair for CURVE, Z85. No certificate and no pair: nothing is encrypted."""

    token: str = field(repr=False)
    certificate: str = field(default="", repr=False)
    public: bytes = b""
    secret: bytes = field(default=b"", repr=False)

    @staticmethod
    def plain(token: str | None = None) -> Keys:
        """A token alone."""
        return Keys(token or secrets.token_hex(16))

    @staticmethod
    def sealed(certificate: str) -> Keys:
        """A token, a pair, and the certificate of the rendezvous."""
        public, secret = zmq.curve_keypair()
        return Keys(secrets.token_hex(16), certificate, public, secret)

    @property
    def encrypted(self) -> bool:
        """Whether both channels are."""
        return bool(self.certificate)
