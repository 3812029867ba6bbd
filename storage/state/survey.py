"""Survey: what a state directory contains, in numbers."""

from dataclasses import dataclass

import numpy as np

from vernier.storage.blob.segment import Segment
from vernier.storage.errors import Damaged
from vernier.storage.state.lease import ReadLease
from vernier.storage.state.manifest import TraceEntry
from vernier.storage.state.reshard import open_batch
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import distinct


@dataclass(frozen=True)
class Arrangement:
    """One arrangement over all shards.

    lower, upper: data times covered, None if there are no batches. since: the earliest data time as of which it can be
    read. For a view it is the view's own; otherwise it is the latest since of its batches, None if there are none.
    distinct_times: the number of distinct data times in it.
    """

    name: str
    key_width: int
    val_width: int
    depth: int
    batches: int
    updates: int
    bytes: int
    distinct_times: int
    lower: int | None
    upper: int | None
    since: int | None


@dataclass(frozen=True)
class Survey:
    """A state directory at one epoch.

    bytes: size of the segments that the epoch needs. epochs: all epochs that are kept.
    """

    path: str
    app: str
    program: str
    workers: int
    epoch: int
    attempt: str
    committed_ns: int
    lower: int
    upper: int
    epochs: list[int]
    arrangements: list[Arrangement]
    views: dict[str, str]
    held_updates: int
    segments: int
    bytes: int


def survey(state: StateDirectory, epoch: int | None = None) -> Survey:
    """Survey an epoch, by default the newest intact one. Of all batches it reads only the columns of times.

    Raises NothingCommitted, EpochGone, Damaged.
    """
    with _lease(state, epoch) as lease:
        found = lease.manifest
        segments = {name: state.open(name) for name in sorted(found.segments())}
        sinces = found.sinces()
        held = (ref for shards in found.held.values() for shard in shards for ref in shard)
        return Survey(
            path=state.path,
            app=found.app,
            program=found.program,
            workers=found.workers,
            epoch=found.epoch,
            attempt=found.attempt,
            committed_ns=found.committed_ns,
            lower=found.lower,
            upper=found.upper,
            epochs=state.epochs(),
            arrangements=[
                _arrangement(name, trace, segments, sinces.get(name)) for name, trace in sorted(found.traces.items())
            ],
            views={name: view.trace for name, view in sorted(found.views.items())},
            held_updates=sum(ref.updates for ref in held),
            segments=len(segments),
            bytes=sum(segment.nbytes for segment in segments.values()),
        )


def _lease(state: StateDirectory, epoch: int | None) -> ReadLease:
    try:
        return state.lease(epoch)
    except Damaged:
        newest = state.latest() if epoch is None else None
        if newest is None:
            raise
        return state.lease(newest.epoch)


def _arrangement(name: str, trace: TraceEntry, segments: dict[str, Segment], since: int | None) -> Arrangement:
    refs = [ref for shard in trace.shards for ref in shard]
    times = [distinct(open_batch(segments[ref.segment], ref).times) for ref in refs]
    return Arrangement(
        name=name,
        key_width=trace.key_width,
        val_width=trace.val_width,
        depth=trace.depth,
        batches=len(refs),
        updates=sum(ref.updates for ref in refs),
        bytes=sum(ref.nbytes for ref in refs),
        distinct_times=len(distinct(np.concatenate(times))) if times else 0,
        lower=min((ref.lower for ref in refs), default=None),
        upper=max((ref.upper for ref in refs), default=None),
        since=since if since is not None else max((ref.since for ref in refs), default=None),
    )
