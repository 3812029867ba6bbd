"""Reach: finds out quickly whether brokers answer, and reports failures with the address and the setting it comes
from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from vernier.storage.errors import CallerError

if TYPE_CHECKING:
    from vernier.service.config.settings import Settings

REACH_MS = 2_500
"""How long a command waits for the first answer."""


class NoBroker(CallerError):
    """No broker answers."""

    message = (
        "no kafka broker answers at {bootstrap}{reason}; "
        "give --bootstrap HOST:PORT, or the setting kafka.bootstrap (--set, --config or VERNIER_KAFKA__BOOTSTRAP)"
    )
    bootstrap: str
    reason: str


@contextmanager
def reach(settings: Settings) -> Iterator[None]:
    """A context for a command's work with brokers: first checks that a broker answers. Raises NoBroker.

    A Kafka failure inside the context becomes one line, too.
    """
    check(settings)
    try:
        yield
    except KafkaError as error:
        raise NoBroker(bootstrap=settings.kafka.bootstrap, reason=f" any more ({_line(error)})") from error


def check(settings: Settings) -> None:
    """Raises NoBroker when no broker answers within 2.5 s."""
    try:
        KafkaAdminClient(**settings.kafka_client(), bootstrap_timeout_ms=REACH_MS, request_timeout_ms=REACH_MS).close()
    except KafkaError as error:
        # A timeout adds nothing to the text `no broker answers`.
        known = "" if "imeout" in type(error).__name__ else f" ({_line(error)})"
        raise NoBroker(bootstrap=settings.kafka.bootstrap, reason=known) from error


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
