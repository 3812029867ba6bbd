"""Rehearsal: a task that does with messages what an epoch's worker does before it needs the state, for nothing.

Its process then has the programs' plan, the formats of their messages, a connection to the state's store and the
modules for all of it, before the first epoch needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from vernier.service.cluster.process import planned, state_at
from vernier.service.config.programs import Program
from vernier.service.ingest.config import IngestionConfig
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.ingest.stash import HeldUpdates
from vernier.storage.blob.location import BlobLocation
from vernier.storage.errors import StorageError
from vernier.storage.strings.string_heap import Heap


@dataclass(frozen=True)
class Rehearsal:
    """What the task needs to know. state: where the state lies; planning: see operators/planning/planner.py."""

    state: BlobLocation
    programs: tuple[Program, ...]
    ingestion: IngestionConfig
    planning: dict[str, Any] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode the messages of a task. Raises ProgramErrors."""
        plan = planned(self.programs, **self.planning)
        held: dict[str, list[HeldUpdates]] = {name: [] for name in plan.sources}
        Ingestion(plan.sources, self.ingestion).decode(list(batches), {}, {}, held, Heap())
        with suppress(StorageError):
            state_at(self.state).head()
        return iter(())
