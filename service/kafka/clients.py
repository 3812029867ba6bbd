"""Clients of the kafka package, with what it leaves open closed."""

from __future__ import annotations

from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError


class Producer(KafkaProducer):  # type: ignore[misc]
    """A producer that is closed after `close`, whatever is under way.

    The package's own `close` raises KafkaTimeoutError when messages are not acknowledged in time, and leaves its thread
    running: it goes on to send them, after the caller has reported that they were not sent.
    """

    _closing = False

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything is acknowledged or has failed. Raises KafkaTimeoutError."""
        try:
            super().flush(timeout)
        except KafkaTimeoutError:
            if not self._closing:
                raise

    def close(self, timeout: float | None = None, **about: Any) -> None:
        """Wait up to `timeout` seconds for what is under way, then drop it."""
        self._closing = True
        super().close(timeout, **about)
