"""A broker that accepts connections and never answers, beside one that does."""

import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from vernier.service.config.kafka_net import Connections
from vernier.service.config.settings import Settings
from vernier.service.kafka.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a socket that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def about(silent: str, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of clients that ask the silent address first."""
    choices = iter((True,))
    whole = random.choice

    def choose(several: Any) -> Any:
        first = next((one for one in several if f"{one.host}:{one.port}" == silent), None)
        return first if first is not None and next(choices, False) else whole(several)

    monkeypatch.setattr("kafka.net.manager.random.choice", choose)
    settings = Settings(program="configs/demo.py", kafka={"bootstrap": f"{silent},{broker.bootstrap}"})
    return settings.kafka_client()


@pytest.mark.parametrize("kind", [KafkaAdminClient, KafkaConsumer, KafkaProducer])
def test_the_others_are_asked(kind: Any, about: dict[str, Any]) -> None:
    client = kind(**about, bootstrap_timeout_ms=20_000)
    client.close()


def test_a_question_that_any_broker_answers_goes_to_one_that_does(
    silent: str, about: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = KafkaAdminClient(**about, bootstrap_timeout_ms=20_000, request_timeout_ms=10_000)
    try:
        client.list_topics()
        cluster, least = client._manager.cluster, Connections.least_loaded_node
        mute = next(one for one in cluster._bootstrap_brokers.values() if f"{one.host}:{one.port}" == silent)
        chosen = iter([mute.node_id])
        monkeypatch.setattr(Connections, "least_loaded_node", lambda self: next(chosen, None) or least(self))
        client._manager.reset_backoff(mute.node_id)
        assert isinstance(client.list_topics(), list)
        assert next(chosen, None) is None
    finally:
        client.close()
