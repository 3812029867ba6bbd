"""Future times: refuses messages as a whole whose times are further ahead than any clock can be.

With an event clock, the producer's times move the frontier, so a single time far in the future would make every later
update of all producers late. A message is therefore compared with the broker's timestamp of its own record: an update
or a promise (progress) may be ahead of it by the source's `max_ahead` at most. The same pass discards what an operator
no longer wants (`vernier up --discard-after`). All of this is a pure function of the log, so every replay refuses the
same messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from vernier.service.codec.instants import format_instant
from vernier.service.ingest.formats.messages import NO_TIME, Parsed, Refused
from vernier.service.ingest.records import Messages
from vernier.service.ingest.watermarks import NS_PER_MS
from vernier.storage.updates import CLOSED

Ints = npt.NDArray[np.int64]


class Discard(msgspec.Struct, frozen=True):
    """What an operator has discarded: in each partition, the messages before offset `until` that have an update or a
    promise at or after the data time `after`. As long as this is in the ingest state, the same discard is not repeated.
    """

    after: int
    until: dict[str, dict[str, int]]


def refuse_ahead(
    messages: Messages, parsed: Parsed, time: Ints, max_ahead_ns: int | None, discard: Discard | None
) -> list[Refused]:
    """The messages that have a time too far ahead, or that are discarded. time: int64[n], the updates' data times,
    NO_TIME where the clock does not use them. O(updates + promises).

    The promise that nothing at all follows (CLOSED) is taken as meant, whatever the broker's time is; but it can be
    discarded.
    """
    found: dict[int, Refused] = {}
    # A record without a broker timestamp (0) cannot be checked.
    now = messages.ms * NS_PER_MS
    if max_ahead_ns is not None:
        limit = np.where(now > 0, np.minimum(now, CLOSED - max_ahead_ns) + max_ahead_ns, CLOSED)
        for message, at, what in _beyond(parsed, time, limit, strict=True):
            if at != CLOSED:
                broker = format_instant(int(now[message]))
                detail = (
                    f"{what} {at}, more than max_ahead, {max_ahead_ns / 1e9:g} s, ahead of the broker's time {broker}"
                )
                found.setdefault(message, Refused(message, "future", detail, _source(parsed, message)))
    if discard is not None and messages.topic in discard.until:
        known = discard.until[messages.topic]
        limit = np.full(len(messages), CLOSED, np.int64)
        for partition, run in messages.runs():
            old = messages.offset[run] < known.get(str(partition), 0)
            limit[run] = np.where(old, discard.after, CLOSED)
        for message, at, what in _beyond(parsed, time, limit, strict=False):
            if limit[message] != CLOSED:
                detail = f"{what} {at}, and an operator discarded everything at or after {discard.after}"
                found.setdefault(message, Refused(message, "future", detail, _source(parsed, message)))
    return list(found.values())


def _beyond(parsed: Parsed, time: Ints, limit: Ints, *, strict: bool) -> list[tuple[int, int, str]]:
    """(message, time, kind) of the first update of each message, and of each promise, beyond its limit."""
    own = limit[parsed.message]
    far = np.flatnonzero((time != NO_TIME) & ((time > own) if strict else (time >= own)))
    found = []
    if len(far):
        first = np.unique(parsed.message[far], return_index=True)[1]
        found = [(int(parsed.message[i]), int(time[i]), "an update is at") for i in far[first].tolist()]
    for entry in parsed.progress:
        bound = int(limit[entry.message])
        if entry.upper > bound if strict else entry.upper >= bound:
            found.append((entry.message, entry.upper, "it promises that nothing follows before"))
    return found


def _source(parsed: Parsed, message: int) -> str | None:
    """The source of a message's first update. A promise applies to all sources of the topic, so it names one only if
    there is just one."""
    at = int(np.searchsorted(parsed.message, message))
    if at < len(parsed.message) and parsed.message[at] == message:
        return parsed.names[int(parsed.source[at])]
    return parsed.names[0] if len(parsed.names) == 1 else None


def discarding(after: int, ends: Mapping[str, Mapping[int, int]]) -> Discard:
    """A Discard of what is in the topics now and is at or after a data time."""
    return Discard(after, {topic: {str(one): end for one, end in own.items()} for topic, own in ends.items()})


def discarded(ingestion: Mapping[str, Any]) -> int | None:
    """The data time at and after which an operator has discarded what was in the topics, from the ingest state of a
    manifest."""
    found = ingestion.get("discard")
    return None if found is None else int(found["after"])
