"""Spans of epochs for OpenTelemetry, an extra: `pip install vernier[otel]`, then `otel.endpoint` in the settings.

    epoch ─┬─ worker 0 ── read, meet, load, decode, admit, dataflow, persist
           ├─ worker 1 ── …
           └─ commit

Spans are made when the epoch is committed, from what the workers have reported: nothing is measured twice, and an epoch
never waits for tracing. The SDK sends them in its own thread; if no collector accepts them, they are dropped.
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
"""Phases that are parts of other phases; they become attributes and not spans."""


class NoTelemetry(CallerError):
    """The settings ask for spans, but the packages for them are not installed."""

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
        """The Spans for these settings; None without an endpoint."""
        if settings.endpoint is None:
            return None
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise NoTelemetry(package=str(error.name)) from error
        return Spans(app, BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.endpoint)))

    def epoch(self, manifest: Manifest, reports: Sequence[Report], seconds: float, fields: Mapping[str, Any]) -> None:
        """Make the spans of a committed epoch that took `seconds` and has just ended. fields: as in its log line."""
        from opentelemetry.trace import set_span_in_context

        end = time.time_ns()
        # A worker's clock may be ahead of ours; a child span must not begin before its parent.
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
        """Send the remaining spans, if a collector accepts them."""
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
