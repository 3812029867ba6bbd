"""TLS 1.3 between a worker and the rendezvous, with a certificate that the driver makes for its own lifetime.

The certificate is not signed by any authority: workers pin it, because they get it with the task's closure. A socket of
Python's ssl module must not be read and written by two threads at once, and the rendezvous does both. Here a lock is
held while bytes are encrypted or decrypted, and never while a thread waits for the network.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import tempfile
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "vernier-rendezvous"
"""The host name in the certificate, wherever the driver runs."""

_RECORD_HEADER = 5
_LARGEST_RECORD = (1 << 14) + 256
_PIECE = 1 << 20
_YEARS = datetime.timedelta(days=3650)
_SIGNS = x509.KeyUsage(
    digital_signature=True, key_cert_sign=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, crl_sign=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Identity:
    """A certificate and its private key, which never leaves this process. pem: the certificate alone."""

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            # A worker's clock may be behind.
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + _YEARS)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.pem = made.public_bytes(serialization.Encoding.PEM).decode()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Without session tickets, the wire carries only our own data: a readable socket always has a message for us.
        self._context.num_tickets = 0
        # The ssl module reads keys only from files. This file is readable by us alone and is deleted at once.
        with tempfile.NamedTemporaryFile() as file:
            file.write(private + self.pem.encode())
            file.flush()
            self._context.load_cert_chain(file.name)

    def accept(self, connected: socket.socket) -> Channel:
        """The driver's side of a connection. Raises OSErrors, among others when the client does not speak TLS or is too
        slow."""
        return Channel(connected, self._context, server=True)


def connect(connected: socket.socket, certificate: str) -> Channel:
    """A worker's side of a connection. Raises OSErrors, among others when the certificate is not the pinned one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificate)
    return Channel(connected, context, server=False)


class Channel:
    """A connected socket under TLS, with the methods that Wire needs. One thread may read while another one writes."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, *, server: bool) -> None:
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if server else NAME
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server, server_hostname=name)
        self._lock = threading.Lock()
        try:
            self._greet()
        finally:
            # After a failure, too, the other side must receive what TLS has to say (the alert).
            self._socket.sendall(self._outgoing.read())

    def fileno(self) -> int:
        """Readable when a message has arrived: whole records are taken from the socket, and no record contains two
        messages."""
        return self._socket.fileno()

    def settimeout(self, seconds: float | None) -> None:
        """As for a socket."""
        self._socket.settimeout(seconds)

    def sendall(self, data: bytes) -> None:
        """Send all of it. One thread at a time."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            with self._lock:
                self._tls.write(view[start : start + _PIECE])
                sealed = self._outgoing.read()
            self._socket.sendall(sealed)

    def recv_into(self, view: memoryview) -> int:
        """Receive up to len(view) bytes; returns 0 at the end. One thread at a time."""
        while True:
            with self._lock:
                try:
                    return self._tls.read(len(view), view)  # type: ignore[return-value]
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return 0
            record = self._record()
            if not record:
                return 0
            with self._lock:
                self._incoming.write(record)

    def shutdown(self, how: int) -> None:
        """As for a socket."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """As for a socket."""
        self._socket.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _greet(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                record = self._record()
                if not record:
                    raise ConnectionResetError("the connection was closed in its greeting") from None
                self._incoming.write(record)

    def _record(self) -> bytes:
        """The next TLS record as it is on the wire, without reading past it; empty at the end of the stream."""
        head = self._exactly(_RECORD_HEADER)
        length = int.from_bytes(head[3:], "big")
        if length > _LARGEST_RECORD:
            raise ssl.SSLError(f"a record of {length} bytes is no TLS")
        body = self._exactly(length)
        return head + body if len(head) == _RECORD_HEADER and len(body) == length else b""

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            read = self._socket.recv(count - len(data))
            if not read:
                break
            data += read
        return bytes(data)
