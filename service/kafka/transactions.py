"""Transactions: read_committed readers see all messages of a transaction, or none.

The client's `commit_transaction` does not promise that. If a record is not acknowledged within the client's delivery
timeout, the client drops it and its future fails, but the commit of the remaining records still succeeds. So we commit
only when every record's future has an acknowledgement. After any other end the producer is closed and the outcome is
unknown: the caller reads from Kafka what has become of the transaction, once a new producer has fenced the old one
(docs/decisions/0018 has the measurements).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, KafkaTimeoutError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from vernier.service.kafka.clients import Producer

Sending = Mapping[str, Any]
"""A record as keyword arguments of the client's `send`."""

TRANSACTION_MS = 60_000
"""The broker aborts a transaction that stays open for longer."""
DELIVERY_MS = 45_000
REQUEST_MS = 15_000
_CLOSE_SECONDS = 1.0
_log = logging.getLogger("vernier.transactions")


class Fenced(KafkaError):  # type: ignore[misc]
    """Another producer with the same transactional id has taken over."""


class Transactions:
    """Transactions under one transactional id, one at a time. make: makes the producer; tests pass one that fails.

    For one thread. delivery_ms bounds the acknowledgement of a transaction's records, and again the answer to its
    commit, so it must be less than the broker's own limit.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        name: str,
        make: Callable[..., KafkaProducer] = Producer,
        *,
        delivery_ms: int = DELIVERY_MS,
        request_ms: int = REQUEST_MS,
        **options: Any,
    ) -> None:
        self.name = name
        self._make, self._delivery_ms = make, delivery_ms
        self._options = {
            **client,
            "transactional_id": name,
            "acks": "all",
            "transaction_timeout_ms": TRANSACTION_MS,
            "delivery_timeout_ms": delivery_ms,
            "request_timeout_ms": request_ms,
            "max_block_ms": 30_000,
            **options,
        }
        self._producer: KafkaProducer | None = None

    @property
    def is_open(self) -> bool:
        """Whether the newest transaction, if there was one, is known to be committed."""
        return self._producer is not None

    def open(self) -> None:
        """Fence every other producer of this transactional id, and wait until its transaction is committed or aborted.

        From now on, only `commit` changes what Kafka holds under this id. Raises KafkaErrors.
        """
        if self._producer is not None:
            return
        producer = self._make(**self._options)
        try:
            producer.init_transactions()
        except BaseException:
            _drop(producer)
            raise
        self._producer = producer

    def commit(
        self,
        records: Iterable[Sending],
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        group: str | None = None,
    ) -> None:
        """Send the records, and a group's offsets, in one transaction. Call `open` first.

        Returns when the transaction is committed. Otherwise raises Fenced, KafkaErrors, or what iterating over
        `records` raises. The producer is then closed, and the transaction may be committed (if the answer to its commit
        was lost) or not at all.
        """
        producer = self._producer
        if producer is None:
            raise KafkaError("no producer is open")
        began = time.monotonic()
        try:
            self._commit(producer, records, offsets, group)
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            self.close()
            seconds = time.monotonic() - began
            if seconds * 1000 < self._options["transaction_timeout_ms"]:
                raise Fenced(f"another producer has taken over the name {self.name}") from error
            # The broker also fences a producer when it aborts a transaction that was open for too long.
            raise KafkaTimeoutError(f"the broker aborted a transaction that was open for {seconds:.0f} s") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the producer. The next producer with the same id aborts an open transaction."""
        producer, self._producer = self._producer, None
        if producer is not None:
            _drop(producer)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _commit(
        self,
        producer: KafkaProducer,
        records: Iterable[Sending],
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        group: str | None,
    ) -> None:
        producer.begin_transaction()
        try:
            sent = [producer.send(**record) for record in records]
        except KafkaError as error:
            # After a failure the client refuses all records with an error of its own, which holds the cause.
            raise next((one for one in error.args if isinstance(one, KafkaError)), error) from error
        if offsets is not None:
            self._wait(lambda: producer.send_offsets_to_transaction(dict(offsets), group), "offsets")
        producer.flush(self._delivery_ms / 1000 + _CLOSE_SECONDS)
        # `flush` also succeeds when records have expired; only their futures show it.
        failed = [future.exception for future in sent if not future.is_done or future.failed()]
        if failed:
            raise _cause(failed)
        self._wait(producer.commit_transaction, "the commit")

    def _wait(self, call: Callable[[], None], what: str) -> None:
        """Call the client with a time limit: it waits for these without end, even for a broker that never comes
        back."""
        problem: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                problem.append(error)

        thread = threading.Thread(target=run, name=f"{self.name}: {what}", daemon=True)
        thread.start()
        thread.join(self._delivery_ms / 1000)
        if thread.is_alive():
            raise KafkaTimeoutError(f"no answer to {what} within {self._delivery_ms / 1000:g} s")
        if problem:
            raise problem[0]


def _cause(failed: list[BaseException | None]) -> BaseException:
    """Why records failed. After one has expired, the client takes a new producer epoch and refuses its own other
    records as belonging to an old one; that does not mean another producer."""
    known = [error for error in failed if error is not None]
    others = (error for error in known if not isinstance(error, InvalidProducerEpochError))
    return next(others, known[0] if known else KafkaTimeoutError("a record was not acknowledged"))


def _drop(producer: KafkaProducer) -> None:
    with contextlib.suppress(KafkaError):
        producer.close(timeout=_CLOSE_SECONDS)
