"""Creates topics."""

import contextlib
from collections.abc import Mapping

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError

from vernier.service.kafka.broker_errors import BrokerError


def create_topics(
    bootstrap: str,
    topics: Mapping[str, int],
    *,
    config: Mapping[str, str] | None = None,
    replication: int = -1,
    timeout_seconds: float = 30,
) -> dict[str, int]:
    """Create the topics (name → number of partitions) that do not exist; return how many partitions each has now.

    `config` holds settings of the new topics (`cleanup.policy`, …); `replication` -1 is the cluster's default. Existing
    topics are left unchanged, whatever their number of partitions. Returns when every partition has a leader. Raises
    BrokerError when the brokers cannot be reached or refuse.
    """
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=bootstrap,
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
        admin.wait_for_topics(list(topics))
        return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics(list(topics))}
    except KafkaError as error:
        raise BrokerError(
            problem=f"cannot create topics {', '.join(topics)} on {bootstrap}: {_first_line(error)}"
        ) from error
    finally:
        admin.close()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
