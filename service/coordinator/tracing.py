"""Spans of epochs for OpenTelemetry, an extra: `pip install vernier[otel]`, then `otel.endpoint` in the settings.

    epoch ─┬─ worker 0 ── read, meet, load, decode, admit, dataflow, persist
           ├─ worker 1 ── …
           └─ commit

They are made when the epoch is committed, from what the workers have reported: nothing is measured twice, and an epoch
waits for nobody. Sending is the SDK's business, in a thread of its own; when nobody takes them, they are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vernier.service.cluster.messages import Report
from vernier.storage.errors import CallerError
from vernier.storage.state.manifest import Manifest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

    from vernier.service.config.sections import Otel

_NS = 1_000_000_000
_INSIDE = frozenset({"exchange"})
"""Phases that are parts of others, so no spans but values."""


class NoTelemetry(CallerError):
    """The settings want spans and the packages for them are not here."""

    message = "otel.endpoint is set and {package} is not installed; install vernier[otel], or leave the setting out"
    package: str


class Spans:
    """Makes the spans of one service. app: its name. processor: where they go. Raises NoTelemetry."""

    def __init__(self, app: str, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        self._provider = TracerProvider(resource=Resource.create({"service.name": f"vernier-{app}"}))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("vernier")

    @staticmethod
    def of(settings: Otel, app: str) -> Spans | None:
        """As the settings say; None without an endpoint."""
        if settings.endpoint is None:
            return None
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise NoTelemetry(package=str(error.name)) from error
        return Spans(app, BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.endpoint)))

    def epoch(self, manifest: Manifest, reports: Sequence[Report], seconds: float, fields: Mapping[str, Any]) -> None:
        """The spans of a committed epoch that has just ended after so many seconds. fields: as in its line of log."""
        from opentelemetry.trace import set_span_in_context

        end = time.time_ns()
        # A worker's clock may be ahead of ours; a part never begins before the whole.
        begin = min([end - int(seconds * _NS), *(report.began_ns for report in reports if report.began_ns)])
        values = {f"vernier.{name}": value for name, value in fields.items() if not isinstance(value, Mapping)}
        whole = self._tracer.start_span("epoch", start_time=begin, attributes=values)
        within = set_span_in_context(whole)
        done = begin
        for report in reports:
            done = max(done, self._worker(report, report.began_ns or begin, within))
        commit = self._tracer.start_span("commit", within, start_time=min(done, manifest.committed_ns))
        commit.end(end_time=end)
        whole.end(end_time=end)

    def close(self) -> None:
        """Send what is left, as far as somebody takes it."""
        self._provider.shutdown()

    def _worker(self, report: Report, at: int, within: Any) -> int:
        from opentelemetry.trace import set_span_in_context

        values: dict[str, Any] = {
            "vernier.shard": report.shard,
            "vernier.process": report.worker,
            "vernier.memory_bytes": report.memory,
            "vernier.exchange_bytes": report.exchanged,
            "vernier.changes": sum(sum(signs) for signs in report.signs.values()),
        }
        values |= {f"vernier.{name}_ms": report.phases[name] * 1e3 for name in _INSIDE & report.phases.keys()}
        values |= {f"vernier.rounds.{loop}": rounds for loop, rounds in report.rounds.items()}
        worker = self._tracer.start_span("worker", within, start_time=at, attributes=values)
        inner = set_span_in_context(worker)
        for name, took in report.phases.items():
            if name not in _INSIDE:
                phase = self._tracer.start_span(name, inner, start_time=at)
                at += int(took * _NS)
                phase.end(end_time=at)
        worker.end(end_time=at)
        return at
