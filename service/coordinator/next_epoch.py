"""What the next epoch starts from, where that is not simply the newest commit.

Topics may have been created again or have lost messages, an operator may discard the future, or the state may have to
be built anew. All of this takes effect with the next commit, which ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from vernier.service.cluster.messages import Start
from vernier.service.coordinator.consumer_lag import Offsets
from vernier.service.coordinator.topics import Found
from vernier.service.ingest.future_times import Discard, discarded, discarding
from vernier.service.ingest.ingestion_state import begin_again, set_back
from vernier.storage.state.manifest import Manifest

_log = logging.getLogger("vernier.epochs")


class NextEpoch:
    """The differences between the newest commit and the start of the epoch after it.

    anew: it starts from an empty state. topics: the ids of the topics that epochs read. lost: by source, the messages
    that were gone before they were read.
    """

    def __init__(self) -> None:
        self.anew = False
        self.topics: dict[str, str] = {}
        self.lost: dict[str, int] = {}
        self._discard: Discard | None = None
        self._begun: frozenset[str] = frozenset()
        self._skipped: dict[str, dict[int, int]] = {}
        self._partitions: Mapping[str, int] = {}

    def start(self, newest: Manifest | None) -> Start:
        """The state from which the workers of the next epoch start."""
        if newest is None or self.anew:
            ingestion = {} if self._discard is None else set_back({}, self._discard)
            return Start(epoch=newest.epoch + 1 if newest else 1, base="", ingestion=ingestion, offsets={})
        ingestion, offsets = newest.ingestion, newest.offsets
        if self._begun:
            offsets = {topic: own for topic, own in offsets.items() if topic not in self._begun}
            ingestion = begin_again(ingestion, {topic: self._partitions[topic] for topic in self._begun})
        if self._discard is not None:
            ingestion = set_back(ingestion, self._discard)
        if self._skipped:
            offsets = offsets | {topic: offsets[topic] | own for topic, own in self._skipped.items()}
        return Start(epoch=newest.epoch + 1, base=newest.attempt, ingestion=ingestion, offsets=offsets)

    def begin_anew(self, newest: Manifest | None, why: str) -> None:
        """Start it from an empty state."""
        # Epoch numbers continue, so the old epochs stay until new ones displace them.
        self.anew = True
        _log.warning("epoch %d starts from an empty state: %s", self.start(newest).epoch, why)

    def discard(self, newest: Manifest | None, after: int, ends: Callable[[], Offsets]) -> None:
        """Discard everything that is in the topics now and is at or after the data time `after`.

        If the state is already past that time, it is built anew. This is done once per time: if the state has it
        recorded already, nothing happens. ends: returns the current end offsets of the topics.
        """
        if newest is not None and discarded(newest.ingestion) == after:
            return
        self._discard = discarding(after, ends())
        if newest is not None and newest.upper > after:
            self.begin_anew(newest, f"its state is final before {newest.upper}, and all from {after} on is discarded")

    def follow(
        self,
        known: Mapping[str, str],
        found: Mapping[str, Found],
        begun: Collection[str],
        lost: Mapping[tuple[str, int], tuple[int, int]],
        sources: Callable[[str], Sequence[str]],
    ) -> None:
        """Set what is read. known: the ids of the topics from which the state was built; the others: see
        `Committer.follow`."""
        self.topics = {topic: about.id or known.get(topic, "") for topic, about in found.items()}
        self._partitions = {topic: about.partitions for topic, about in found.items()}
        self._begun, self._skipped, self.lost = frozenset(begun), {}, {}
        for topic in sorted(begun):
            _log.warning("topic %s was created again: it is read from its beginning", topic)
        for (topic, partition), (first, count) in lost.items():
            if topic in begun:
                continue
            _log.warning(
                "%d messages of partition %d of topic %s were removed before an epoch read them",
                count,
                partition,
                topic,
            )
            self._skipped.setdefault(topic, {})[partition] = first
            for source in sources(topic):
                self.lost[source] = self.lost.get(source, 0) + count

    def committed(self) -> None:
        """The epoch is committed: the one after it starts from there."""
        self.anew = False
        self._begun, self._skipped, self.lost, self._discard = frozenset(), {}, {}, None
