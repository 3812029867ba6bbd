"""Checks whether the sidecar of given settings is alive, for a container's health check.

    python -m vernier.service.sidecar.health_probe

It requests /healthz, which needs no token, on this machine. With TLS it does not verify the certificate, because that
is issued for the names that other machines use.
"""

from __future__ import annotations

import argparse
import http.client
import ssl
import sys
from collections.abc import Sequence

from vernier.service.config.sections import Http
from vernier.service.config.settings import load
from vernier.storage.errors import CallerError, VernierError

_SECONDS = 4.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class BadCertificate(CallerError):
    """The certificate or its key cannot be used."""

    message = "http.tls_cert {cert}, http.tls_key {key}: {problem}"
    cert: str
    key: str
    problem: str


def address(settings: Http) -> str:
    """The URL of the sidecar as seen from this machine."""
    host = _EVERYWHERE.get(settings.host, settings.host)
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"


def alive(settings: Http) -> bool:
    """Whether the sidecar answers /healthz."""
    found = _asked(settings, "/healthz")
    return found is not None and found[0] == 200


def answers(settings: Http) -> bool:
    """Whether the sidecar has read an epoch, so that views can be queried."""
    found = _asked(settings, "/readyz")
    return found is not None and b'"no_epoch"' not in found[1]


def _asked(settings: Http, path: str) -> tuple[int, bytes] | None:
    """The status and body of the answer; None if the sidecar does not answer."""
    host = _EVERYWHERE.get(settings.host, settings.host)
    if settings.tls_cert is None:
        asked = http.client.HTTPConnection(host, settings.port, timeout=_SECONDS)
    else:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        asked = http.client.HTTPSConnection(host, settings.port, timeout=_SECONDS, context=context)
    try:
        asked.request("GET", path)
        answer = asked.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        asked.close()


def check_certificate(settings: Http) -> None:
    """Raises BadCertificate if there is a certificate whose files cannot be used."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:
        return
    try:
        for file in (cert, key):
            file.read_bytes()
        # Without `password`, an encrypted key would prompt for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except OSError as error:
        reason = "they do not match, or are not in PEM format" if isinstance(error, ssl.SSLError) else error.strerror
        raise BadCertificate(cert=str(cert), key=str(key), problem=str(reason or error).lower()) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the sidecar is alive, else 1 with a line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m vernier.service.sidecar.health_probe", description=__doc__)
    parser.add_argument("--config", metavar="FILE")
    given = parser.parse_args(arguments)
    try:
        settings = load(given.config).settings.http
    except VernierError as error:
        print(f"probe: {error}", file=sys.stderr)
        return 1
    if alive(settings):
        return 0
    print(f"probe: no sidecar answers at {address(settings)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
