"""Receipts: what has been sent, as a token that says by itself when it is visible.

A receipt names the offsets that the updates got, so nothing has to be kept: an epoch has read them when its manifest's
offsets are past them, whoever looks, and after any restart. It has their effect when its frontier is past their times,
too. With an event clock those are the updates' own. With an arrival clock the door gives them while it reads, always
greater ones in a partition: so the last one it has given, at any epoch that had read them, is not before theirs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from vernier.service.ingest.ingestion import DoorState
from vernier.service.ingest.watermarks import Resolution, cut_at
from vernier.storage.errors import CallerError
from vernier.storage.state.manifest import Manifest

_LONGEST = 16_384


class BadReceipt(CallerError):
    """A token that no sidecar gave out."""

    code = "bad_token"
    message = "the token cannot be read; use it as it was answered"


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """Updates of one source. offsets: by partition of the topic, the one behind the last of them. latest: the greatest
    of their data times; None where the door gives them. resolution: of the source."""

    source: str
    topic: str
    offsets: dict[int, int]
    latest: int | None
    resolution: Resolution

    def encode(self) -> str:
        """As URL-safe text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @staticmethod
    def decode(text: str) -> Receipt:
        """From text. Raises BadReceipt."""
        try:
            if len(text) > _LONGEST:
                raise ValueError
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            return msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Receipt)
        except (msgspec.MsgspecError, binascii.Error, UnicodeError, ValueError, RecursionError):
            raise BadReceipt() from None

    def after(self, earlier: Receipt) -> Receipt:
        """One that covers both. Raises BadReceipt when they are not of one source."""
        if (earlier.source, earlier.topic) != (self.source, self.topic):
            raise BadReceipt()
        both = {**earlier.offsets, **{p: max(o, earlier.offsets.get(p, 0)) for p, o in self.offsets.items()}}
        times = [one.latest for one in (self, earlier) if one.latest is not None]
        return Receipt(self.source, self.topic, both, max(times, default=None), self.resolution)

    def is_read(self, manifest: Manifest) -> bool:
        """Whether an epoch has read all of them."""
        read = manifest.offsets.get(self.topic, {})
        return all(read.get(partition, 0) >= offset for partition, offset in self.offsets.items())

    def bound(self, manifest: Manifest) -> int | None:
        """A time which none of them is behind, as far as an epoch that has read them knows."""
        if self.latest is not None or not self.offsets:
            return self.latest
        clocks = msgspec.convert(manifest.door, DoorState).topics.get(self.topic, {})
        known = [clocks[str(partition)].last for partition in self.offsets if str(partition) in clocks]
        return max(known, default=None) if len(known) == len(self.offsets) else None

    def has_passed(self, bound: int | None, frontier: int) -> bool:
        """Whether a frontier is behind all of them, whose times are up to `bound`."""
        return not self.offsets or (bound is not None and bound < cut_at(frontier, self.resolution))


def as_json(offsets: Mapping[int, int]) -> dict[str, str]:
    """Offsets by partition, as decimal strings."""
    return {str(partition): str(offset) for partition, offset in sorted(offsets.items())}
