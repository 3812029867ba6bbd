"""A change of programs under way, as the driver sees it: what the workers fill, how far they are, when to switch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from vernier.operators.planning.plan import Plan
from vernier.service.cluster.messages import Report, Target
from vernier.service.config.programs import Program
from vernier.service.ingest.config import IngestionConfig
from vernier.service.status.change import FILE, ProgramChange
from vernier.storage.blob.blob import Blob
from vernier.storage.errors import StorageError

_log = logging.getLogger("vernier.epochs")


@dataclass
class Changing:
    """The programs to change to, with their plan. since_ns: when it began. switching: the next epoch is the first one
    of the new programs."""

    programs: Sequence[Program]
    plan: Plan
    ingestion: IngestionConfig
    since_ns: int = 0
    switching: bool = False
    views: list[str] = field(default_factory=list)

    @property
    def target(self) -> Target:
        """What workers need to know of it."""
        listed = [(program.name, program.text) for program in self.programs]
        return Target(self.plan.fingerprint, listed, self.switching)

    def reported(self, reports: Sequence[Report], state: Blob) -> None:
        """Note how far the workers are, after a commit."""
        filled = [report.filled for report in reports if report.filled is not None]
        if len(filled) < len(reports):
            return
        rows, taken = sum(one.rows for one in filled), sum(one.taken for one in filled)
        self.switching = all(one.ready for one in filled)
        about = ProgramChange(
            programs=[program.name for program in self.programs],
            views=self.views,
            rows=rows,
            taken=taken,
            since_ns=self.since_ns,
        )
        _log.info("%s", about.describe())
        show(state, about)


def show(state: Blob, about: ProgramChange | None) -> None:
    """Write the status file, or delete it. A failure must not hold up the epochs."""
    try:
        if about is None:
            FILE.delete(state)
        else:
            FILE.write(state, about)
    except StorageError as problem:
        _log.warning("cannot write how far the change of programs is: %s", problem)
