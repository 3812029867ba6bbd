"""What is reported about each committed epoch: a log line, and spans if tracing is on (tracing.py)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from vernier.service.cluster.messages import Report
from vernier.service.cluster.rendezvous import Attempt
from vernier.service.coordinator.tracing import Spans
from vernier.service.observability import logs
from vernier.storage.state.manifest import Manifest

_log = logging.getLogger("vernier.epoch")


class EpochLog:
    """Reports epochs. spans: where to send spans in addition to the log line; None for nowhere."""

    def __init__(self, spans: Spans | None = None) -> None:
        self.spans = spans

    def committed(self, manifest: Manifest, attempt: Attempt, seconds: float) -> None:
        """Report an epoch that this attempt has committed. seconds: how long the attempt took."""
        if self.spans is None and not _log.isEnabledFor(logging.INFO):
            return
        fields = describe(manifest, attempt.reports, seconds, attempt.opened_seconds)
        logs.values(_log, fields)
        if self.spans is not None:
            self.spans.epoch(manifest, attempt.reports, seconds, fields)

    def failed(self, epoch: int, attempt: Attempt, reason: str) -> None:
        """Report an attempt that did not become an epoch."""
        _log.warning("epoch=%d attempt=%s failed: %s", epoch, attempt.id, reason)


def describe(manifest: Manifest, reports: Sequence[Report], seconds: float, opened: float) -> dict[str, Any]:
    """The values of an epoch's log line. ms: the time of the whole attempt, and for each phase that of its slowest
    worker. The phase exchange is contained in admit and dataflow."""
    phases = {name: max(report.phases[name] for report in reports) for name in reports[0].phases}
    return {
        "epoch": manifest.epoch,
        "attempt": manifest.attempt,
        "lower": manifest.lower,
        "upper": manifest.upper,
        "updates": sum(one.inserted + one.deleted for report in reports for one in report.counts.values()),
        "held": sum(sum(report.waiting.values()) for report in reports),
        "dead": sum(ref.updates for ref in manifest.dead),
        "changes": sum(sum(signs) for report in reports for signs in report.signs.values()),
        "times": sum(report.times for report in reports),
        "ms": {
            "epoch": round(seconds * 1000, 1),
            "open": round(opened * 1000, 1),
            **{name: round(took * 1000, 1) for name, took in phases.items()},
        },
    }
