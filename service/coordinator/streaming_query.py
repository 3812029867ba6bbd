"""Query: one running streaming query of the service, from its first offsets to its end."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from vernier.service.config.settings import Settings
from vernier.service.coordinator.consumer_lag import Offsets
from vernier.service.coordinator.session import batch_ends, open_stream, set_limit, start_query
from vernier.service.coordinator.small_batches import SmallBatches
from vernier.service.ingest.config import IngestionConfig


class Query:
    """Calls `epoch` for each micro-batch from the next offsets on, one after another. scratch: the folder for its
    checkpoint, which is deleted at its end. limit: the maximum number of messages of a micro-batch; None for all."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        ingestion: IngestionConfig,
        offsets: Offsets,
        limit: int | None,
        epoch: Callable[[DataFrame, int], None],
        scratch: Path,
    ) -> None:
        self.limit = limit
        self._spark = spark
        self._checkpoint = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=scratch))
        stream = open_stream(spark, settings, ingestion, offsets, limit)
        epoch_settings = settings.epoch
        most = min(epoch_settings.direct_messages, epoch_settings.max_messages or epoch_settings.direct_messages)
        if settings.spark.on_cluster:
            most = 0  # there it is Spark that notices when a host is gone
        self.small = SmallBatches(settings.kafka_client(), lambda: batch_ends(self._query), most, lambda: self.limit)
        self._epoch, self._skipped = epoch, 0
        self._query: StreamingQuery = start_query(stream, self._micro_batch, self._checkpoint)

    def ended(self, seconds: int) -> bool:
        """Wait up to this many seconds for the query to end; returns whether it has. Raises the PySparkException that
        ended it."""
        return bool(self._query.awaitTermination(seconds))

    def limit_to(self, messages: int) -> None:
        """Limit the next micro-batches to this many messages. Call it while a micro-batch runs."""
        set_limit(self._spark, self._query, messages)
        self.limit = messages

    def passed(self, committed: Offsets) -> dict[str, dict[int, int]]:
        """The next offset of each partition; everything before it is committed. Only Spark knows about records that
        readers never see, such as transaction markers. committed: the newest commit's offsets."""
        passed = {topic: dict(own) for topic, own in committed.items()}
        progress = self._query.lastProgress
        for source in progress.sources if progress is not None else ():
            for topic, own in json.loads(source.endOffset or "{}").items():
                mine = passed.setdefault(topic, {})
                mine.update({int(one): max(end, mine.get(int(one), 0)) for one, end in own.items()})
        return passed

    def close(self) -> None:
        """Stop the query, between micro-batches."""
        self._query.stop()
        self.small.close()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _micro_batch(self, frame: DataFrame, number: int) -> None:
        """Make the epochs of a micro-batch. Spark skips the messages that are processed already at once, and not in
        micro-batches as large as an epoch: the limit of the next one grows by their number."""
        self._epoch(frame, number)
        if self.limit is None:
            return
        skipped = self.small.ahead if self.small.ahead > self.limit else 0
        if skipped or self._skipped:
            set_limit(self._spark, self._query, self.limit + skipped)
            self._skipped = skipped
