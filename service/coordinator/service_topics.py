"""The topics of one service: created if they are missing, followed while queries run, and their lag."""

from __future__ import annotations

import logging
from collections.abc import Collection

from vernier.operators.language.collection.app import App
from vernier.service.config.settings import Settings, heartbeat_topic
from vernier.service.coordinator.committer import Committer
from vernier.service.coordinator.consumer_lag import Lag, ends
from vernier.service.coordinator.topic_check import check_whole
from vernier.service.coordinator.topics import Choice, Found, TopicReplaced, Topics
from vernier.service.ingest.config import IngestionConfig
from vernier.service.kafka.topics import CHOSEN, REPLACED, TIMESTAMPS, create_topics, replaced_timestamps
from vernier.storage.threads import Threads

_HOUR_MS = 3_600_000
_log = logging.getLogger("vernier.driver")


class ServiceTopics:
    """The topics of an app's sources. ingestion: the configuration of ingestion, with the partitions of all topics;
    lag: their end offsets, followed in a thread of `threads`."""

    def __init__(self, settings: Settings, app: App, threads: Threads) -> None:
        self._settings, self._app = settings, app
        self._client = settings.kafka_client()
        self._found: dict[str, Found] = {}
        self.ingestion = self._prepare()
        self._topics = self._chosen()
        self.lag = Lag(self._client, self.ingestion.partitions, threads, self._look)

    def use(self, app: App) -> None:
        """Read the topics of another app from now on, between two queries."""
        self._app = app
        self.ingestion = self._prepare()
        before, self._topics = self._topics, self._chosen()
        before.close()
        self.lag.follow(self.ingestion.partitions)

    def ends(self) -> dict[str, dict[int, int]]:
        """The current end offsets of the sources' topics."""
        partitions = {
            topic: n for topic, n in self.ingestion.partitions.items() if topic != self.ingestion.heartbeat_topic
        }
        return ends(self._client, partitions)

    def rebuild_replaced(self, epochs: Committer) -> None:
        """Start from an empty state if a topic is not the one that the state was built from."""
        try:
            self._topics.replaced(epochs.known_topics, self._topics.look())
        except TopicReplaced as error:
            epochs.begin_anew(f"topic {error.topic} was deleted and created again")

    def check_whole(self) -> None:
        """Raises TopicsTrimmed if a topic no longer has its first messages, and BrokerError. Sources with a snapshot do
        not need them."""
        settings = self._settings
        topics = {settings.topic(source) for source in self._app.sources if settings.source(source).snapshot is None}
        check_whole(self._client, topics, self.ingestion.partitions)

    def follow(self, epochs: Committer) -> bool:
        """Make the next query read the topics as they are now. Returns whether their partitions have changed.

        Raises TopicReplaced, MessagesLost, LagUnknown and BrokerError.
        """
        topics = self._topics
        found = topics.look()
        if len(found) < len(topics.names):  # a topic has been deleted
            self._prepare()
            found = topics.look()
        begun = topics.replaced(epochs.known_topics, found)
        here = {topic: about for topic, about in found.items() if topic not in begun}
        lost = {} if epochs.anew else topics.lost(epochs.start.offsets, here)
        epochs.follow(found, begun, lost, topics.sources)
        self._found = found
        counts = {topic: about.partitions for topic, about in found.items()}
        partitions = {**self.ingestion.partitions, **counts}
        if partitions == self.ingestion.partitions:
            return False
        self.ingestion = self._settings.ingestion(self._app, partitions)
        epochs.change(epochs.plan, self.ingestion)
        self.lag.follow(self.ingestion.partitions)
        _log.info("partitions of topics: %s", ", ".join(f"{topic} {count}" for topic, count in sorted(counts.items())))
        return True

    def differ(self, epochs: Committer) -> bool:
        """Whether the running query must be replaced, because the topics are not those it was started with."""
        return any(
            about.partitions != self.ingestion.partitions.get(topic)
            or (about.id and about.id != epochs.topics.get(topic, about.id))
            for topic, about in self._found.items()
        )

    def check(self, epochs: Committer, topics: Collection[str]) -> None:
        """Raise before an epoch is committed with rows of a topic that is no longer the one that the query was started
        with."""
        mine = [topic for topic in topics if topic != self.ingestion.heartbeat_topic]
        if mine:
            self._topics.check(epochs.topics, mine)

    def close(self) -> None:
        """Close the connections."""
        self.lag.close()
        self._topics.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._found = self._topics.look()

    def _chosen(self) -> Topics:
        """The topics of the programs' sources, with what the settings say about each."""
        choices = []
        for name in self._app.sources:
            about = self._settings.source(name)
            topic = self._settings.topic(name)
            choices.append(Choice(name, topic, about.on_new_topic == "restart", about.on_lost == "skip"))
        return Topics(self._client, choices)

    def _reads_timestamps(self, topic: str) -> bool:
        """Whether a source takes its data times from the timestamps of this topic's records."""
        sources = [self._settings.source(one) for one in self._app.sources if self._settings.topic(one) == topic]
        return any(source.format == "upsert" and source.clock == "event" for source in sources)

    def _warn_of_timestamps(self, topics: Collection[str]) -> None:
        """Say for which topics brokers replace the timestamps that are data times."""
        for topic in replaced_timestamps(self._client, topics):
            _log.warning(
                "topic %s has %s=%s: the broker replaces the timestamps of records, which its source takes as data "
                "times (format upsert, clock event); set it to %s",
                topic,
                TIMESTAMPS,
                REPLACED,
                CHOSEN,
            )

    def _prepare(self) -> IngestionConfig:
        """Create the missing topics; returns the ingest configuration with the partitions of all topics."""
        settings, name = self._settings, self._app.name
        wanted: dict[str, int] = {}
        for source in self._app.sources:
            count = settings.source(source).partitions or settings.workers
            wanted[settings.topic(source)] = max(count, wanted.get(settings.topic(source), 0))
        letters = {f"{one}.dlq" for one in [*self._app.sources, *wanted]}
        options = {"replication": settings.kafka.replication, "timeout_seconds": settings.kafka.patience_seconds}
        stamped = {topic for topic in wanted if self._reads_timestamps(topic)}
        found: dict[str, int] = {}
        for topics, config in ((wanted.keys() - stamped, {}), (stamped, {TIMESTAMPS: CHOSEN})):
            counts = {topic: wanted[topic] for topic in sorted(topics)}
            if counts:
                found |= create_topics(settings.kafka.bootstrap, counts, config=config, **options)  # type: ignore[arg-type]
        self._warn_of_timestamps(sorted(stamped))
        create_topics(settings.kafka.bootstrap, dict.fromkeys(letters, 1), **options)  # type: ignore[arg-type]
        beat = {heartbeat_topic(name): settings.workers}
        kept = {"retention.ms": str(_HOUR_MS)}
        # There may be more workers than when it was made.
        found |= create_topics(settings.kafka.bootstrap, beat, config=kept, grow=True, **options)  # type: ignore[arg-type]
        return settings.ingestion(self._app, found)
