"""The section of the settings for the snapshot with which a source begins."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field, field_validator, model_validator

from vernier.service.codec.instants import BadInstant, parse_instant
from vernier.service.config.section import Section
from vernier.storage.updates import CLOSED, MIN_TIME

_PLACES = ("path", "table", "query")


class Snapshot(Section):
    """The rows that a source has before its topic is read: docs/lakehouse.md."""

    format: str = Field(description="parquet, csv, jdbc, delta, or any other format that Spark reads")
    path: str | None = Field(default=None, description="a file, a folder, or a URI")
    table: str | None = Field(default=None, description="a table of the database, or of Spark's catalog")
    query: str | None = Field(default=None, description="jdbc: a query of the database")
    options: dict[str, str] = Field(default={}, description="options of Spark's reader, like url and numPartitions")
    time: str | None = Field(
        default=None,
        description="the data time as of which the rows are (nanoseconds or RFC 3339); default with an arrival clock: "
        "when the snapshot begins",
    )
    follow: str | dict[int, int] = Field(
        default="earliest",
        description="where the topic is read from: earliest, latest (when the snapshot begins), a time, or offsets "
        "by partition",
    )
    piece_mb: int = Field(
        default=16, ge=1, description="about how much of a file a worker reads at a time, as it is stored"
    )

    @field_validator("time", "follow", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """YAML reads a time as a datetime, and nanoseconds as a number."""
        if isinstance(value, datetime):
            return value.isoformat()
        return str(value) if isinstance(value, int) else value

    @field_validator("time", "follow")
    @classmethod
    def _is_time(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in ("earliest", "latest"):
            try:
                at = parse_instant(value)
            except BadInstant as error:
                raise ValueError(str(error)) from error
            if not MIN_TIME < at < CLOSED - 1:
                raise ValueError(f"{at} is not a data time")
        return value

    @model_validator(mode="after")
    def _has_place(self) -> Snapshot:
        given = [name for name in _PLACES if getattr(self, name) is not None]
        if len(given) > 1 or (not given and "dbtable" not in self.options and "path" not in self.options):
            raise ValueError(f"a snapshot needs one of path, table and query, and has {', '.join(given) or 'none'}")
        return self

    @property
    def time_ns(self) -> int | None:
        """The data time of the rows, if it is set."""
        return None if self.time is None else parse_instant(self.time)
