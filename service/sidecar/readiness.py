"""Decides whether every view is caught up, and if not, what lags and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vernier.service.codec.instants import format_instant
from vernier.service.sidecar.options import Options
from vernier.service.sidecar.problems import about_damage
from vernier.service.status.intake import Observed
from vernier.service.status.trouble import Trouble
from vernier.service.views.snapshot_reader import Snapshot
from vernier.storage.blob.segment import damaged_file
from vernier.storage.errors import Damaged
from vernier.storage.state.manifest import SourceEntry
from vernier.storage.updates import CLOSED, MIN_TIME

FULL_BYTES = 1 << 20
"""Free bytes below which a disk counts as full; an epoch writes a segment and a manifest."""

_NAMED = 5
"""Number of partitions that are named; further ones are only counted."""


def laggards(
    snapshot: Snapshot | None,
    failure: str | None,
    trouble: Trouble | None,
    options: Options,
    now_ns: int,
    observed: Observed | None = None,
    damage: Iterable[Damaged] = (),
    free_bytes: int | None = None,
    silent_s: float = 0.0,
) -> list[dict[str, Any]]:
    """The reasons why the answers are not current, each as {laggard, why}; empty if all is well.

    observed: the driver's observed state of the intake. damage: damaged files of the state. free_bytes: free space for
    the state, if known. silent_s: for how long its store has not answered. The pipeline lags if it commits nothing (it
    commits on every heartbeat, with or without input). A source lags if many of its messages are unread. With the event
    clock a quiet source holds the frontier back by design, so that alone is not lag, unless updates wait because of it.
    """
    reasons = [{"laggard": f"file {damaged_file(one)}", "why": about_damage(one)} for one in damage]
    if failure is not None:
        reasons.append({"laggard": "sidecar", "why": failure})
    if silent_s > 0:
        reasons.append({"laggard": "state", "why": f"{options.state} has not answered for {silent_s:.1f} s"})
    if trouble is not None:
        reasons.append({"laggard": "program" if trouble.program else "pipeline", "why": trouble.describe()})
    if free_bytes is not None and free_bytes < FULL_BYTES:
        why = (
            f"no space left in {options.state}: {free_bytes} bytes are free; free some space, and the service continues"
        )
        reasons.append({"laggard": "disk", "why": why})
    closed = observed is not None and not observed.open
    if observed is not None and closed:
        reasons.append({"laggard": "intake", "why": observed.describe()})
    if snapshot is None:
        reasons.append({"laggard": "pipeline", "why": f"no epoch has been committed in {options.state} yet"})
        return reasons
    age_ms = snapshot.age_ns(now_ns) // 1_000_000
    if age_ms > options.stale_after_ms and not closed:
        why = f"its newest epoch {snapshot.manifest.epoch} was committed {age_ms / 1000:.1f} s ago"
        views = ", ".join(snapshot.views)
        reasons.append({"laggard": "pipeline", "why": f"{why}; views {views} are at {snapshot.frontier}"})
    reasons += _loading(snapshot)
    for source, entry in snapshot.manifest.sources.items():
        for partition, about in entry.partitions.items():
            if about.lag is not None and about.lag > options.lag_limit:
                why = f"partition {partition} has {about.lag} unread messages"
                reasons.append({"laggard": f"source {source}", "why": why})
    reasons += _ahead(snapshot, options, now_ns)
    if not closed:
        reasons += _held_back(snapshot, options)
    return reasons


def _loading(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The sources because of whose snapshots views are not shown yet."""
    reasons = []
    for source, entry in snapshot.manifest.sources.items():
        given = entry.snapshot
        if given is None or (given.done == given.pieces and snapshot.frontier > given.time):
            continue
        why = f"{given.done} of {given.pieces} pieces of its snapshot have entered, {given.rows} rows"
        if given.done == given.pieces:
            why = f"its snapshot is as of {format_instant(given.time)}, and the frontier is not past that"
        reasons.append({"laggard": f"source {source}", "why": why})
    return reasons


def _ahead(snapshot: Snapshot, options: Options, now_ns: int) -> list[dict[str, Any]]:
    """The sources, or the pipeline, whose frontier is well ahead of the clock. Times that are final there are in the
    future.
    """
    limit = now_ns + options.stale_after_ms * 1_000_000
    far = {
        f"source {name}": entry.frontier
        for name, entry in snapshot.manifest.sources.items()
        if entry.frontier is not None and limit < entry.frontier < CLOSED
    }
    if not far and limit < snapshot.frontier < CLOSED:
        far = {"pipeline": snapshot.frontier}
    return [
        {
            "laggard": who,
            "why": f"its frontier {at} ({format_instant(at)}) is {(at - now_ns) / 1e9:.0f} s ahead of the clock, so "
            "current updates are late; see `vernier up --discard-after`",
        }
        for who, at in far.items()
    ]


def _held_back(snapshot: Snapshot, options: Options) -> list[dict[str, Any]]:
    """The sources whose frontier did not advance for longer than `stale_after_ms` while updates wait for it."""
    sources = snapshot.manifest.sources
    held = sum(entry.held for entry in sources.values())
    newest = snapshot.history[-1]
    still = next((note for note in reversed(snapshot.history) if note.upper != newest.upper), None)
    if not held or still is None:
        return []
    since_ms = (newest.committed_ns - still.committed_ns) // 1_000_000
    frontiers = {name: entry.frontier for name, entry in sources.items() if entry.frontier is not None}
    if since_ms <= options.stale_after_ms or not frontiers:
        return []
    least = min(frontiers.values())
    at = "the beginning" if least == MIN_TIME else str(least)
    why = f"its frontier has been at {at} for {since_ms / 1000:.1f} s while {held} updates wait"
    return [
        {"laggard": f"source {name}", "why": why + _waited_for(name, sources[name], least)}
        for name, frontier in frontiers.items()
        if frontier == least
    ]


def _waited_for(source: str, entry: SourceEntry, frontier: int) -> str:
    """The partitions of the source that hold its frontier back, and what would let them advance."""
    held_by = [str(number) for number, part in entry.partitions.items() if not part.idle and part.frontier == frontier]
    if not held_by:
        return ""
    listed = ", ".join(held_by[:_NAMED]) + (f" and {len(held_by) - _NAMED} more" if len(held_by) > _NAMED else "")
    words = f" for partition{'s' if len(held_by) > 1 else ''} {listed} of topic {entry.topic}"
    if entry.clock != "event":
        return words
    setting = f"sources.{source}"
    return (
        f"{words}; ways out: send progress messages to each partition (`vernier send --promise`), set "
        f"{setting}.lateness so that its own updates advance it (if it is set, no newer ones have come), ignore it "
        "while it is idle "
        f"({setting}.idle_timeout_ms), or end a "
        'bounded source with the promise that nothing follows ("upper": [])'
    )
