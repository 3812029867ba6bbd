"""Read tokens: a token names updates that were sent, and contains all that is needed to decide when they are visible.

A token contains the Kafka offsets of its updates, so the sidecar stores nothing. An epoch has read the
updates if the offsets in its manifest are past them. Any sidecar can check this, also after a restart. The effect of
the updates is visible if the frontier is past their times, too. With an event clock these are the updates' own times.
With an arrival clock, ingestion assigns the times when it reads the messages, in ascending order within a partition.
The last time that it assigned, at any epoch that has read the updates, is therefore not before theirs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from vernier.service.ingest.ingestion_state import IngestionState
from vernier.service.ingest.watermarks import Rounding, cut_at
from vernier.storage.errors import CallerError
from vernier.storage.state.manifest import Manifest

_LONGEST = 16_384


class BadReceipt(CallerError):
    """A token was not issued by a sidecar."""

    code = "bad_token"
    message = "the token cannot be read; use it exactly as the answer gave it"


class ReadToken(msgspec.Struct, frozen=True, array_like=True):
    """Updates of one source.

    offsets: by partition of the topic, the offset after the last of them. latest: the greatest of their data times;
    None if ingestion assigns the times. rounding: of the source.
    """

    source: str
    topic: str
    offsets: dict[int, int]
    latest: int | None
    rounding: Rounding

    def encode(self) -> str:
        """Encode as URL-safe text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @staticmethod
    def decode(text: str) -> ReadToken:
        """Decode from text. Raises BadReceipt."""
        try:
            if len(text) > _LONGEST:
                raise ValueError
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            return msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=ReadToken)
        except (msgspec.MsgspecError, binascii.Error, UnicodeError, ValueError, RecursionError):
            raise BadReceipt() from None

    def after(self, earlier: ReadToken) -> ReadToken:
        """Return a receipt that covers both. Raises BadReceipt if they are for different sources."""
        if (earlier.source, earlier.topic) != (self.source, self.topic):
            raise BadReceipt()
        both = {**earlier.offsets, **{p: max(o, earlier.offsets.get(p, 0)) for p, o in self.offsets.items()}}
        times = [one.latest for one in (self, earlier) if one.latest is not None]
        return ReadToken(self.source, self.topic, both, max(times, default=None), self.rounding)

    def is_read(self, manifest: Manifest) -> bool:
        """Whether an epoch has read all of the updates."""
        read = manifest.offsets.get(self.topic, {})
        return all(read.get(partition, 0) >= offset for partition, offset in self.offsets.items())

    def bound(self, manifest: Manifest) -> int | None:
        """A time that none of the updates is after, if the epoch (which has read them) knows one."""
        if self.latest is not None or not self.offsets:
            return self.latest
        clocks = msgspec.convert(manifest.ingestion, IngestionState).topics.get(self.topic, {})
        known = [clocks[str(partition)].last for partition in self.offsets if str(partition) in clocks]
        return max(known, default=None) if len(known) == len(self.offsets) else None

    def has_passed(self, bound: int | None, frontier: int) -> bool:
        """Whether a frontier is past all of the updates, whose times are at most `bound`."""
        return not self.offsets or (bound is not None and bound < cut_at(frontier, self.rounding))


def as_json(offsets: Mapping[int, int]) -> dict[str, str]:
    """Offsets by partition, as decimal strings."""
    return {str(partition): str(offset) for partition, offset in sorted(offsets.items())}
