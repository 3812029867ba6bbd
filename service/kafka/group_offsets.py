"""The offsets that consumer groups have committed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import RetriableError

_PATIENCE, _PAUSE = 15.0, 0.1
"""For how many seconds a cluster is asked again, and the time between two questions."""


def group_offsets(client: Mapping[str, Any], groups: Mapping[str, list[TopicPartition]]) -> dict[str, dict[Any, Any]]:
    """The offsets of these partitions by group, those that have been committed. client: the settings of Kafka's client.

    A cluster makes its topic of offsets when it is first asked for one, and cannot answer before it has, so it is asked
    again while it says that it cannot yet. Raises KafkaErrors.
    """
    admin = KafkaAdminClient(**client)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                found: dict[str, dict[Any, Any]] = admin.list_group_offsets(groups)
                return found
            except RetriableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
    finally:
        admin.close()
