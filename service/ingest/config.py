"""The configuration of sources: the topic that a source is read from, its format, and how its data time advances."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.bounds import DIFF_RANGE, MOST_BYTES
from vernier.service.ingest.formats import ALONE, KEYED, NAMES
from vernier.service.ingest.formats.by_schema import Schemas
from vernier.service.ingest.formats.registry import Registry
from vernier.service.ingest.watermarks import Rounding
from vernier.storage.errors import CallerError


class SourceMisfit(CallerError):
    """The settings of sources do not fit the program or one another."""

    message = "{problem}"
    problem: str


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """Where a source comes from and how its data time advances.

    lateness_ns: without progress messages, an event clock is complete up to its newest time minus this. max_ahead_ns:
    how far an event clock's times may be ahead of the broker's (service/ingest/future_times.py). idle_timeout_ms: a
    partition of an event clock that has had no records for this long, in the broker's time, becomes idle and no longer
    holds back the others; None: never. on_late: what happens to an update before the frontier. records: about how many
    updates share a data time; None: only updates that came with the same one. schemas, registry: for the formats avro
    and protobuf; message: for protobuf. key: the key columns of a source of upserts.
    """

    topic: str
    format: str = "vernier"
    clock: Literal["arrival", "event"] = "arrival"
    lateness_ns: int | None = None
    max_ahead_ns: int | None = None
    idle_timeout_ms: int | None = 30_000
    on_late: Literal["reject", "advance"] = "reject"
    rounding: Rounding = "exact"
    records: int | None = None
    schemas: Schemas = ()
    key: tuple[str, ...] = ()
    registry: Registry | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class IngestionConfig:
    """The configuration of ingest as a whole. sources: by name. partitions: the number of partitions of each topic (1
    if a topic is missing). slack_ms: see advance_arrival. max_message_bytes: a longer message is refused;
    max_decoded_bytes: so is one that takes more than this when it is expanded. diff_range: diffs are between this and
    its negative."""

    sources: Mapping[str, SourceConfig]
    partitions: Mapping[str, int] = field(default_factory=dict)
    heartbeat_topic: str | None = None
    slack_ms: int = 1
    max_message_bytes: int = 8 << 20
    max_decoded_bytes: int = MOST_BYTES
    diff_range: int = DIFF_RANGE

    def without(self, topics: Collection[str]) -> IngestionConfig:
        """The same, with these topics left unread."""
        left = {topic: count for topic, count in self.partitions.items() if topic not in topics}
        return replace(self, partitions=left)


def by_topic(sources: Mapping[str, RowType], config: IngestionConfig) -> dict[str, list[str]]:
    """The sources of each topic, in name order. Raises SourceMisfit."""
    topics: dict[str, list[str]] = {}
    for name in sorted(sources):
        if name not in config.sources:
            raise SourceMisfit(problem=f"source {name} has no settings; say at least which topic it is read from")
        mine = config.sources[name]
        if mine.format not in NAMES:
            known = ", ".join(NAMES)
            raise SourceMisfit(problem=f"source {name} has the unknown format {mine.format!r} (known are {known})")
        if mine.topic == config.heartbeat_topic:
            raise SourceMisfit(problem=f"source {name} cannot be read from {mine.topic}, the topic of heartbeats")
        topics.setdefault(mine.topic, []).append(name)
    for topic, names in topics.items():
        first = config.sources[names[0]]
        if len(names) > 1 and first.format in ALONE:
            problem = f"sources {' and '.join(names)} share topic {topic}, but messages in format {first.format}"
            raise SourceMisfit(problem=f"{problem} cannot say which one they are for; give each a topic of its own")
        if (first.format == "upsert" and not first.key) or (first.key and first.format not in KEYED):
            said = "format upsert but no key" if not first.key else f"a key but format {first.format}"
            raise SourceMisfit(problem=f"source {names[0]} has {said}; set both, as in sources.{names[0]}.key: [id]")
        if first.key and first.clock == "event" and (first.rounding != "exact" or first.records is not None):
            problem = (
                f"source {names[0]} has upserts with times of their own, so the later of two must be known exactly"
            )
            raise SourceMisfit(problem=f"{problem}; leave its rounding exact, without records, or use clock arrival")
        for column in first.key:
            if column not in sources[names[0]]:
                known = ", ".join(sources[names[0]].names)
                raise SourceMisfit(
                    problem=f"the key of source {names[0]} has {column!r}, which is not a column of it ({known})"
                )
        if first.format in ("avro", "protobuf") and not first.schemas and first.registry is None:
            problem, file = f"source {names[0]} has format {first.format} but no schema", "schema_file"
            file = "descriptor_file" if first.format == "protobuf" else file
            raise SourceMisfit(problem=f"{problem}; set sources.{names[0]}.registry, {file} or schema_folder")
        for name in names[1:]:
            # Each source may have its own on_late, rounding and records. Everything else belongs to the partitions
            # and must be the same.
            mine = replace(config.sources[name], on_late=first.on_late, rounding=first.rounding, records=first.records)
            if mine != first:
                problem = (
                    f"sources {names[0]} and {name} share topic {topic}, so format, clock, lateness and idle timeout"
                )
                raise SourceMisfit(problem=f"{problem} must be the same: {first} and {mine}")
    return topics
