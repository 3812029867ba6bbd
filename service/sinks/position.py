"""Positions: how far each view has gone out, kept in Kafka by the very transactions that send it.

They are in a compacted topic of one partition, so what a reader of committed messages sees of the output and of the
positions is always the same moment: that is what makes it exactly once, whatever dies and whatever files are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vernier.service.errors import StrangePositions
from vernier.service.kafka.embedded_broker import create_topics
from vernier.service.kafka.reading import CommittedReader

_KEY = b"positions"
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.1"}


class Position(msgspec.Struct, frozen=True):
    """How far a view has gone out to a topic. frontier: all its changes before it are there. meaning: of the view then
    (history.ViewType). messages: how many have been sent, by kind."""

    topic: str
    format: str
    frontier: int
    meaning: str
    messages: dict[str, int] = {}


class Positions(msgspec.Struct, frozen=True):
    """All views' positions. epoch: the newest one of which all views have gone out."""

    epoch: int = 0
    views: dict[str, Position] = {}


def positions_topic(app: str) -> str:
    """The topic that holds an app's positions."""
    return f"{app}.publisher"


def prepare(bootstrap: str, app: str, replication: int) -> None:
    """Make the topic of positions, if there is none. Raises BrokerError."""
    create_topics(bootstrap, {positions_topic(app): 1}, config=_COMPACTED, replication=replication)


def record(app: str, positions: Positions) -> dict[str, Any]:
    """The message that says so, as keywords for a producer."""
    value = msgspec.json.encode(positions)
    return {"topic": positions_topic(app), "key": _KEY, "value": value, "partition": 0}


def read(client: Mapping[str, Any], app: str) -> Positions:
    """The newest positions that are committed. Whoever asks has fenced all other publishers, else they may move on.

    Raises KafkaErrors, a timeout included, and StrangePositions for what another release wrote.
    """
    newest = None
    with CommittedReader(client) as reader:
        for records in reader.read(positions_topic(app)):
            newest = records[-1].value
    if newest is None:
        return Positions()
    try:
        return msgspec.json.decode(newest, type=Positions)
    except msgspec.DecodeError as error:
        raise StrangePositions(topic=positions_topic(app), problem=str(error)) from error
