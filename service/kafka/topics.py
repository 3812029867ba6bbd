"""Creates topics."""

import contextlib
import time
from collections.abc import Collection, Mapping
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

from vernier.service.config.kafka_net import NetClient
from vernier.service.kafka.broker_errors import BrokerError

TIMESTAMPS, CHOSEN, REPLACED = "message.timestamp.type", "CreateTime", "LogAppendTime"
"""The setting of a topic that says whose timestamps its records have: the producer's, or the broker's."""


def create_topics(
    bootstrap: str,
    topics: Mapping[str, int],
    *,
    config: Mapping[str, str] | None = None,
    replication: int = -1,
    timeout_seconds: float = 30,
    grow: bool = False,
) -> dict[str, int]:
    """Create the topics (name → number of partitions) that do not exist; return how many partitions each has now.

    `config` holds settings of the new topics (`cleanup.policy`, …); `replication` -1 is the cluster's default. Existing
    topics are left unchanged, whatever their number of partitions; with `grow`, they get more if they have fewer and
    the brokers allow it. Returns when every partition has a leader. Raises BrokerError when the brokers cannot be
    reached or refuse.
    """
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            kafka_client=NetClient,
            client_id="vernier-admin",
            request_timeout_ms=int(timeout_seconds * 1000),
            bootstrap_timeout_ms=int(timeout_seconds * 1000),
        )
    except KafkaError as error:
        raise BrokerError(problem=f"no kafka broker answers on {bootstrap}: {_first_line(error)}") from error
    try:
        present = {name for name in admin.list_topics() if name in topics}
        for name, partitions in topics.items():
            if name in present:
                continue
            wanted = {"num_partitions": partitions, "replication_factor": replication, "configs": dict(config or {})}
            with contextlib.suppress(TopicAlreadyExistsError):  # another process was faster
                admin.create_topics({name: wanted})
        deadline = time.monotonic() + timeout_seconds
        found = _partitions(admin, dict.fromkeys(topics, 1), deadline)
        short = {name: count for name, count in topics.items() if found[name] < count}
        if grow and short:
            with contextlib.suppress(KafkaError):
                admin.create_partitions(short)
                found = _partitions(admin, topics, deadline)
        return found
    except KafkaError as error:
        raise BrokerError(
            problem=f"cannot create topics {', '.join(topics)} on {bootstrap}: {_first_line(error)}"
        ) from error
    finally:
        admin.close()


def replaced_timestamps(client: Mapping[str, Any], topics: Collection[str]) -> list[str]:
    """Those of these topics whose records have the broker's timestamps. None if the brokers do not say, which some
    allow administrators only. client: Kafka client settings."""
    if not topics:
        return []
    try:
        admin = KafkaAdminClient(**client)
        try:
            wanted = [ConfigResource(ConfigResourceType.TOPIC, topic, [TIMESTAMPS]) for topic in topics]
            found = admin.describe_configs(wanted, config_filter="all")["topic"]
        finally:
            admin.close()
    except KafkaError:
        return []
    return [topic for topic in topics if found.get(topic, {}).get(TIMESTAMPS, {}).get("value") == REPLACED]


def _partitions(admin: KafkaAdminClient, least: Mapping[str, int], deadline: float) -> dict[str, int]:
    """The numbers of partitions of topics, once the broker that is asked knows at least these. Each question may go to
    another broker, and one that has not heard of a new topic yet describes it as one without partitions."""
    topics = list(least)
    while (left := deadline - time.monotonic()) > 0:
        admin.wait_for_topics(topics, timeout_ms=left * 1000)
        found = {one["name"]: len(one["partitions"]) for one in admin.describe_topics(topics) if not one["error_code"]}
        if all(found.get(topic, 0) >= count for topic, count in least.items()):
            return found
    raise KafkaTimeoutError("no broker that was asked has all of them")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
