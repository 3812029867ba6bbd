"""Clients of the kafka package, with fixes for resources that it leaves open."""

from __future__ import annotations

from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError


class Producer(KafkaProducer):  # type: ignore[misc]
    """A producer that is fully closed after `close`, whatever messages are still being sent.

    The package's own `close` raises KafkaTimeoutError when messages are not acknowledged in time, and leaves its thread
    running. That thread still sends the messages after the caller has reported that they were not sent.
    """

    _closing = False

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every message is acknowledged or has failed. Raises KafkaTimeoutError."""
        try:
            super().flush(timeout)
        except KafkaTimeoutError:
            if not self._closing:
                raise

    def close(self, timeout: float | None = None, **about: Any) -> None:
        """Wait up to `timeout` seconds for messages in flight, then drop them."""
        self._closing = True
        super().close(timeout, **about)
