"""Checks of parsed messages that every format needs: a message with an update without a time, or with too large a diff,
is refused as a whole."""

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vernier.service.ingest.formats.messages import NO_TIME, Parsed, Refused

Bools = npt.NDArray[np.bool_]


def without_messages(parsed: Parsed, messages: Collection[int]) -> Parsed:
    """The parsed batch without anything from these messages."""
    if not messages:
        return parsed
    progress = [entry for entry in parsed.progress if entry.message not in messages]
    refused = [refusal for refusal in parsed.refused if refusal.message not in messages]
    kept = _kept(parsed, ~np.isin(parsed.message, list(messages)))
    return replace(kept, progress=progress, refused=refused)


def refuse_timeless(parsed: Parsed) -> tuple[Parsed, list[Refused]]:
    """Refuse the messages that have an update without a time, which a source with an event clock needs."""
    bad = parsed.time == NO_TIME
    if not bad.any():
        return parsed, []
    detail = "the message has no time, and source {name} has an event clock"
    return _without(parsed, bad, lambda name, _: Refused(0, "decode", detail.format(name=name), name))


def refuse_diffs(parsed: Parsed, diff_range: int) -> tuple[Parsed, list[Refused]]:
    """Refuse the messages that have a diff so large that sums of such diffs could overflow 64 bits."""
    bad = (parsed.diff > diff_range) | (parsed.diff < -diff_range)
    if not bad.any():
        return parsed, []

    def refusal(name: str, update: int) -> Refused:
        detail = f"a diff is {parsed.diff[update]}, outside the diff_range of {-diff_range} to {diff_range}"
        return Refused(0, "overflow", detail, name)

    return _without(parsed, bad, refusal)


def _without(parsed: Parsed, bad: Bools, refusal: Callable[[str, int], Refused]) -> tuple[Parsed, list[Refused]]:
    """The batch without the messages of bad updates, and their refusals. refusal: makes one from a source's name and
    the number of the message's first bad update."""
    messages, first = np.unique(parsed.message[bad], return_index=True)
    updates = np.flatnonzero(bad)[first]
    refused = [
        replace(refusal(parsed.names[int(parsed.source[update])], update), message=message)
        for message, update in zip(messages.tolist(), updates.tolist(), strict=True)
    ]
    return _kept(parsed, ~np.isin(parsed.message, messages)), refused


def _kept(parsed: Parsed, keep: Bools) -> Parsed:
    """The parsed batch with only some of its updates; keep: bool[n]."""
    words = {name: rows[keep[parsed.source == number]] for number, (name, rows) in enumerate(parsed.words.items())}
    source, message, time, diff = (column[keep] for column in (parsed.source, parsed.message, parsed.time, parsed.diff))
    return replace(parsed, source=source, message=message, time=time, diff=diff, words=words)
