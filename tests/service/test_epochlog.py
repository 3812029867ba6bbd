"""What is logged of an epoch: one line, as text or JSON, and spans."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.service.test_rendezvous import START, report
from vernier.service.cluster.messages import Report
from vernier.service.cluster.rendezvous import Attempt
from vernier.service.config.sections import Otel
from vernier.service.coordinator.epoch_log import EpochLog, describe
from vernier.service.coordinator.tracing import Spans
from vernier.service.ingest.counts import SourceCounts
from vernier.service.observability import logs
from vernier.storage.state.manifest import Manifest

PHASES = {"read": 0.001, "admit": 0.004, "dataflow": 0.02, "persist": 0.002, "exchange": 0.003}
WHOLE = {"read": 1.0, "admit": 4.0, "dataflow": 40.0, "persist": 2.0, "exchange": 3.0}
COMMITTED = 1_700_000_000_000_000_000


def attempt() -> Attempt:
    """One of two workers, complete; shard 1 is slower in the dataflow."""
    made = Attempt("abc", START, 2)
    made.reports = [_report(shard) for shard in range(2)]
    made.opened_seconds = 0.05
    return made


def _report(shard: int) -> Report:
    return msgspec.structs.replace(
        report("abc", shard),
        phases=PHASES | {"dataflow": 0.02 * (shard + 1)},
        counts={"edges": SourceCounts(inserted=3, deleted=1)},
        signs={"reach": (2, 1)},
        rounds={"reach": 4},
        waiting={"edges": 5},
        times=6,
        began_ns=COMMITTED - 60_000_000 + shard,
    )


@pytest.fixture
def manifest() -> Manifest:
    """What the attempt became."""
    return Manifest(
        epoch=5, attempt="abc", lower=10, upper=20, committed_ns=COMMITTED, workers=2, app="demo", program="p",
        traces={}, held={}, ingestion={}, offsets={}, views={}, changes={}, dead=[], stats={},
    )  # fmt: skip


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """What the logger of epochs says, as JSON."""
    text, logger = io.StringIO(), logging.getLogger("vernier.epoch")
    handler, level = logging.StreamHandler(text), logger.level
    handler.setFormatter(logs.JsonLines())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield text
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_one_object_an_epoch(manifest: Manifest, said: io.StringIO) -> None:
    EpochLog().committed(manifest, attempt(), 0.1)
    (line,) = said.getvalue().splitlines()
    told = json.loads(line)
    assert told.pop("at").endswith("+00:00")
    assert told == {
        "level": "info", "logger": "vernier.epoch", "epoch": 5, "attempt": "abc", "lower": 10, "upper": 20,
        "updates": 8, "held": 10, "dead": 0, "changes": 6, "times": 12,
        "ms": {"epoch": 100.0, "open": 50.0, **WHOLE},
    }  # fmt: skip


def test_text_is_one_line_of_names_and_values(manifest: Manifest, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vernier.epoch")
    EpochLog().committed(manifest, attempt(), 0.1)
    (line,) = caplog.messages
    assert line == (
        "epoch=5 attempt=abc lower=10 upper=20 updates=8 held=10 dead=0 changes=6 times=12 ms.epoch=100 ms.open=50 "
        "ms.read=1 ms.admit=4 ms.dataflow=40 ms.persist=2 ms.exchange=3"
    )


def test_other_lines_are_objects_too(said: io.StringIO) -> None:
    EpochLog().failed(7, attempt(), 'a worker said "no"')
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("vernier.epoch").exception("what is %s", "this")
    first, second = (json.loads(line) for line in said.getvalue().splitlines())
    assert first["message"] == 'epoch=7 attempt=abc failed: a worker said "no"'
    assert first["level"] == "warning"
    assert second["message"] == "what is this"
    assert "two\nlines" in second["exception"]


def test_spans_of_an_epoch(manifest: Manifest) -> None:
    kept = InMemorySpanExporter()
    spans = Spans("demo", SimpleSpanProcessor(kept))
    done = attempt()
    spans.epoch(manifest, done.reports, 0.1, describe(manifest, done.reports, 0.1, 0.05))
    spans.close()
    found = kept.get_finished_spans()
    names = [span.name for span in found]
    phases = [name for name in PHASES if name != "exchange"]
    assert names == [*phases, "worker", *phases, "worker", "commit", "epoch"]
    whole = found[-1]
    assert whole.parent is None
    assert whole.resource.attributes["service.name"] == "vernier-demo"
    assert _attributes(whole)["vernier.updates"] == 8
    by_id = {span.context.span_id: span for span in found if span.context is not None}
    for span in found:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        parent = None if span.parent is None else by_id[span.parent.span_id]
        assert (parent.name if parent else None) == {
            "epoch": None, "worker": "epoch", "commit": "epoch"}.get(span.name, "worker")  # fmt: skip
        if parent is not None:
            assert parent.start_time is not None
            assert parent.start_time <= span.start_time
    slow = found[names.index("worker", len(phases) + 1)]
    assert _attributes(slow)["vernier.shard"] == 1
    assert _attributes(slow)["vernier.rounds.reach"] == 4
    assert slow.start_time == COMMITTED - 60_000_000 + 1
    assert slow.end_time == slow.start_time + 47_000_000


def test_off_unless_there_is_an_endpoint() -> None:
    assert Spans.of(Otel(), "demo") is None


def _attributes(span: Any) -> dict[str, Any]:
    return dict(span.attributes)
