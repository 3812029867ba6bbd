"""Ingestion refuses each hostile message of the chaos test for the reason that the test says."""

import pytest

from bench.chaos.poison import MESSAGES
from bench.chaos.program import app
from bench.chaos.sources import SETTINGS, resolved
from tests.ingest.log import Service, Topics
from vernier.service.config.settings import load
from vernier.service.ingest.config import IngestionConfig
from vernier.service.ingest.ingestion import Ingestion


def ingestions(source: str) -> Service:
    settings = load(None, {f"sources.{name}": about for name, about in SETTINGS.items()}, {}).settings
    config = settings.ingestion(app, {name: int(about["partitions"]) for name, about in SETTINGS.items()})
    mine = IngestionConfig({source: config.sources[source]}, partitions={source: config.partitions[source]})
    return Service(Ingestion({source: app.sources[source].schema}, mine))


@pytest.mark.parametrize("source", sorted(SETTINGS))
def test_each_is_refused_for_its_reason(source: str) -> None:
    topics, service = Topics(), ingestions(source)
    for partition in range(SETTINGS[source]["partitions"]):
        topics.append(source, partition, resolved(source, 1_000), key=b"null")
    before = service.epoch(topics.records)[0].upper
    assert before > 5 or SETTINGS[source]["clock"] == "arrival", "what is late must be so"
    told = []
    for message in MESSAGES:
        if message.source == source:
            record = topics.append(source, 0, message.value, key=message.key)
            service.epoch([record])
            (letter,) = service.letters
            service.letters.clear()
            told.append((message.name, letter.reason, message.reason or letter.reason))
    assert [(name, found) for name, found, _ in told] == [(name, wanted) for name, _, wanted in told]
    assert not service.entered
