"""The OpenAPI models of the answers of the status routes, of ingest and of tokens."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vernier.service.sidecar.schemas import Frontier, Responses, Time, answer, problems

_NUMBERS = "By label, and the value"


class Health(BaseModel):
    """The process is alive."""

    status: str = Field(examples=["ok"])
    pid: int = Field(examples=[4711])
    uptime_seconds: float = Field(examples=[12.5])


class Ready(BaseModel):
    """Every view is caught up."""

    ready: bool = Field(examples=[True])
    epoch: int = Field(examples=[128])
    stale_ms: int = Field(examples=[120])
    views: dict[str, Frontier] = Field(examples=[{"reach": ["1767225600000000000"]}])


class SourceFrontiers(BaseModel):
    """How far a source is final; null if unknown."""

    frontier: Frontier
    partitions: dict[str, Frontier]


class Frontiers(BaseModel):
    """Frontiers of sources, partitions and views."""

    epoch: int = Field(examples=[128])
    lower: Frontier
    upper: Frontier
    message_time: str = Field(description="When the epoch was committed", examples=["2026-01-01T00:00:00.000000000Z"])
    committed: str = Time
    stale_ms: int = Field(examples=[120])
    views: dict[str, Frontier] = Field(examples=[{"reach": ["1767225600000000000"]}])
    since: dict[str, Frontier] = Field(examples=[{"reach": ["1767225000000000000"]}])
    sources: dict[str, SourceFrontiers]


class Point(BaseModel):
    """Latencies in one time step, in seconds."""

    at: str = Time
    p50: float | None
    p99: float | None
    count: int


class Observed(BaseModel):
    """Latency from received to visible, in seconds."""

    count: int
    mean: float | None
    quantiles: dict[str, float | None] = Field(examples=[{"0.5": 0.21, "0.99": 0.4}])
    histogram: list[int] = Field(description="Counts by bucket; the last is beyond all bounds")


class ViewLatency(Observed):
    """Latency from received to visible since the service first started; `recent`: in the last five minutes."""

    recent: Observed
    series: list[Point]


class Latency(BaseModel):
    """Latency from received to visible, by view."""

    unit: str = Field(examples=["seconds"])
    meaning: str
    bounds: list[float]
    recent_seconds: float = Field(description="The seconds that `recent` covers: five minutes, or fewer after a start")
    views: dict[str, ViewLatency]
    notice_seconds: dict[str, float | int | None]


class Epoch(BaseModel):
    """A committed epoch: its data times [lower, upper), and the number of changes by view."""

    epoch: int = Field(examples=[128])
    lower: str = Time
    upper: str = Time
    committed: str = Time
    changes: dict[str, int] = Field(examples=[{"reach": 3}])


class Epochs(BaseModel):
    """The newest epochs, oldest first."""

    epochs: list[Epoch]
    stale_ms: int
    change: str | None = Field(
        description="How far a change of programs is, if one is under way",
        examples=["filling counts: 120,000 of 400,000 rows (30 %)"],
    )


class Sources(BaseModel):
    """Sources: topic, format, clock, frontier, partitions, offsets read, counts."""

    sources: dict[str, dict[str, Any]] = Field(examples=[{"edges": {"topic": "edges", "format": "json", "held": 0}}])
    stale_ms: int


class Sinks(BaseModel):
    """Output topics: how far each view is published, how many epochs they are behind, and any problem."""

    model_config = ConfigDict(extra="allow")
    sinks: dict[str, dict[str, Any]] = Field(examples=[{"reach": {"topic": "demo.reach"}}])
    behind_epochs: int | None = Field(examples=[0])
    problem: str | None = Field(examples=[None])


class BatchAbout(BaseModel):
    """A batch of an arrangement."""

    segment: str
    updates: int
    bytes: int
    lower: str = Time
    upper: str = Time
    since: str = Time


class TraceAbout(BaseModel):
    """An arrangement, its batches by shard, and its readers."""

    model_config = ConfigDict(extra="allow")
    trace: str = Field(examples=["view:reach"])
    key_words: int
    val_words: int
    depth: int
    updates: int
    bytes: int
    shards: list[list[BatchAbout]]


class Traces(BaseModel):
    """All arrangements."""

    traces: list[TraceAbout]
    stale_ms: int


class Letter(BaseModel):
    """A refused message; the dead-letter topic holds the complete message."""

    model_config = ConfigDict(extra="allow")
    epoch: int = Field(examples=[128])
    reason: str = Field(examples=["decode"])
    detail: str = Field(examples=["the message has no 'u'"])
    topic: str = Field(examples=["edges"])
    partition: int = Field(examples=[0])
    offset: int = Field(examples=[17])


class Letters(BaseModel):
    """The newest refused messages, newest first, and totals by source and reason."""

    dead_letters: list[Letter]
    totals: list[dict[str, Any]] = Field(
        description=_NUMBERS, examples=[[{"source": "edges", "reason": "decode", "value": 2}]]
    )
    stale_ms: int = Field(examples=[120])


class Dataflow(BaseModel):
    """The plan as in `vernier explain --format json`, and counters by operator."""

    program: str
    plan: dict[str, Any]
    operators: dict[str, Any]


class Config(BaseModel):
    """Settings with secrets masked, and the origin of each that is not a default."""

    sidecar: dict[str, Any]
    service: dict[str, Any]
    origins: dict[str, str] = Field(examples=[{"http.port": "--set http.port"}])


class Sent(BaseModel):
    """Kafka has acknowledged the updates. offsets: by partition, the offset after the last of them."""

    token: str = Field(examples=["WyJlZGdlcyIsImVkZ2VzIix7IjAiOjEyfSxudWxsLCJleGFjdCJd"])
    source: str = Field(examples=["edges"])
    topic: str = Field(examples=["edges"])
    updates: int = Field(examples=[2])
    offsets: dict[str, str] = Field(examples=[{"0": "12"}])


class ViewVisible(BaseModel):
    """Whether a view includes the effect of the updates."""

    visible: bool = Field(examples=[True])
    frontier: Frontier


class Visible(BaseModel):
    """Whether updates are visible.

    read: an epoch has read them. as_of: the first data time that includes all of them.
    """

    visible: bool = Field(examples=[True])
    source: str = Field(examples=["edges"])
    read: bool = Field(examples=[True])
    as_of: str | None = Field(examples=["1767225600000000000"])
    views: dict[str, ViewVisible]
    stale_ms: int = Field(examples=[120])


def _about(model: type[BaseModel], *others: int) -> Responses:
    return answer(model) | problems(*others)


_EXAMPLE = [{"data": [1, 2], "time": "1767225600000000000"}, {"data": {"src": 1, "dst": 3}, "diff": -1}]
_LINES = '{"data":[1,2],"time":"1767225600000000000"}\n{"data":{"src":1,"dst":3},"diff":-1}\n'
_UPDATE: dict[str, Any] = {
    "description": "An update, or a bare row, or a promise",
    "anyOf": [{"type": "object"}, {"type": "array"}],
}

healthz = _about(Health)
readyz = _about(Ready, 503)
frontiers = _about(Frontiers, 503)
latency = _about(Latency, 422, 503)
epochs = _about(Epochs, 422, 503)
sources = _about(Sources, 503)
sinks = _about(Sinks, 503)
traces = _about(Traces, 503)
letters = _about(Letters, 422, 503)
dataflow = _about(Dataflow, 404, 503)
config = _about(Config)
token = _about(Visible, 400, 404, 422, 503)
_SENT: Responses = {202: answer(Sent)[200]}
ingest = _SENT | problems(400, 404, 408, 409, 413, 415, 422, 429, 503)
updates: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Updates as in update files; `time` and `diff` may be left out. All are accepted, or none",
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}, "example": _LINES},
            "application/json": {"schema": {"type": "array", "items": _UPDATE}, "example": _EXAMPLE},
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
