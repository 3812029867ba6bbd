"""Keys: the credentials by which the processes of one service recognise each other, and which encrypt their traffic.

The driver makes them when it starts and stores no copy. Workers get theirs with the task's closure, over Spark's
own channel. A process that has the keys belongs to the service. On loopback a token is enough: only users of this
machine could listen, and users other than ours cannot. Between hosts, the rendezvous uses TLS with a certificate of its
own (service/cluster/tls.py), and the exchange uses CURVE (service/cluster/exchange/all_to_all.py); inside both, the
token is still required.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import zmq


@dataclass(frozen=True)
class Keys:
    """The keys of one driver, valid for its lifetime. token: sent first on every connection. certificate: the
    rendezvous' PEM, which workers pin. public, secret: the key pair for CURVE, Z85. Without certificate and pair
    nothing is encrypted."""

    token: str = field(repr=False)
    certificate: str = field(default="", repr=False)
    public: bytes = b""
    secret: bytes = field(default=b"", repr=False)

    @staticmethod
    def plain(token: str | None = None) -> Keys:
        """Keys with a token alone."""
        return Keys(token or secrets.token_hex(16))

    @staticmethod
    def sealed(certificate: str) -> Keys:
        """Keys with a token, a key pair, and the certificate of the rendezvous."""
        public, secret = zmq.curve_keypair()
        return Keys(secrets.token_hex(16), certificate, public, secret)

    @property
    def encrypted(self) -> bool:
        """Whether both channels are encrypted."""
        return bool(self.certificate)
