"""What one worker's ingestion has counted in an epoch, by source."""

from __future__ import annotations

import msgspec


class SourceCounts(msgspec.Struct, omit_defaults=True):
    """The counts of one source (or of a topic, where the source of a message is unknown).

    inserted, deleted: updates decoded and not refused, by the sign of their diff. bytes: of the messages. copies:
    counted updates that came a second time, and updates that the source's snapshot contains; both are dropped.
    late_rejected, late_advanced: updates behind the frontier, by what was done. skewed: arrivals moved up to the
    frontier. held, released: updates that began and that ended to wait for their data time. delay_ms: arrival minus
    data time of the newest update, with the event clock. refused: messages that became dead letters, by reason.
    """

    inserted: int = 0
    deleted: int = 0
    bytes: int = 0
    copies: int = 0
    late_rejected: int = 0
    late_advanced: int = 0
    skewed: int = 0
    held: int = 0
    released: int = 0
    delay_ms: int | None = None
    refused: dict[str, int] = {}

    def refuse(self, reason: str) -> None:
        """Count a message that became a dead letter."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
