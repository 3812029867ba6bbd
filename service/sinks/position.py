"""Stores how far each view is published, in Kafka, within the transactions that publish it.

The positions are in a compacted topic with one partition. A reader of committed messages therefore always sees output
and positions of the same moment. This makes publishing exactly once, whatever process dies and whatever files are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vernier.service.errors import StrangePositions
from vernier.service.kafka.reading import CommittedReader
from vernier.service.kafka.topics import create_topics

_KEY = b"positions"
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.1"}


class Position(msgspec.Struct, frozen=True):
    """How far a view is written to a topic, or another place of that name.

    frontier: all changes of the view before it are there. meaning: the view's meaning at that time
    (views/view_type.py). messages: the number sent (elsewhere: changes or rows written), by kind. view: the view, if
    the sink has another name.
    """

    topic: str
    format: str
    frontier: int
    meaning: str
    messages: dict[str, int] = {}
    view: str = ""


class Positions(msgspec.Struct, frozen=True):
    """The positions of all views. epoch: the newest epoch that is published completely."""

    epoch: int = 0
    views: dict[str, Position] = {}


def positions_topic(app: str) -> str:
    """The topic that holds an app's positions."""
    return f"{app}.publisher"


def prepare(bootstrap: str, app: str, replication: int) -> None:
    """Create the topic of positions if it does not exist. Raises BrokerError."""
    create_topics(bootstrap, {positions_topic(app): 1}, config=_COMPACTED, replication=replication)


def record(app: str, positions: Positions) -> dict[str, Any]:
    """The message that stores the positions, as keyword arguments for a producer."""
    value = msgspec.json.encode(positions)
    return {"topic": positions_topic(app), "key": _KEY, "value": value, "partition": 0}


def read(client: Mapping[str, Any], app: str) -> Positions:
    """Read the newest committed positions. A publisher must first fence all others, which could still advance them.

    Raises KafkaErrors (also after a timeout), and StrangePositions for positions that another release wrote.
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
