"""Rollups: what successive manifests have in common is written once, and each manifest says only how it differs.

An epoch adds a few batches and changes a few totals; the rest of both is as before. From time to time the owner of a
state writes the batches of all arrangements and all totals into a segment of their own, the rollup. Each manifest after
that names the rollup, and instead of its batches and totals contains a `Delta`: which runs of the rollup's batches are
still there, the batches that are not in it, and the totals that differ. So the size of a manifest depends on what has
changed since the rollup, not on the size of the state, and a rollup is written when the deltas since the last one are
as long as that one was.

A rollup is part of the state like any segment that a manifest names: collected, copied, leased and verified with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from vernier.storage.blob.segment import Entry
from vernier.storage.state.manifest import BatchRef, Delta, Manifest, ShardDelta, Written

LABEL = "rollup"
MORE = "+"
"""In a change of a list: the items that were appended."""

_encode = msgspec.json.Encoder().encode


class Contents(msgspec.Struct, frozen=True):
    """What a rollup's entry holds as JSON: the batches of each arrangement by shard, and the totals."""

    traces: dict[str, list[list[BatchRef]]]
    stats: dict[str, Any]


_decode = msgspec.json.Decoder(Contents).decode


class Rollup:
    """A rollup in memory. ref: where it is stored."""

    def __init__(self, ref: BatchRef, contents: Contents, nbytes: int) -> None:
        self.ref, self.contents, self.nbytes = ref, contents, nbytes
        self._places = {
            name: [{batch: place for place, batch in enumerate(shard)} for shard in shards]
            for name, shards in contents.traces.items()
        }

    @staticmethod
    def entry(manifest: Manifest) -> Entry:
        """What to write, so that manifests like this one need to say little."""
        traces = {name: trace.shards for name, trace in manifest.traces.items()}
        data = np.frombuffer(_encode(Contents(traces, manifest.stats)), np.uint8)
        return Entry(LABEL, {"updates": 0, "lower": 0, "upper": 0, "since": 0}, {"json": data})

    @staticmethod
    def open(ref: BatchRef, entry: Entry) -> Rollup:
        """The rollup that an entry holds. Raises DecodeError."""
        data = entry.arrays["json"].tobytes()
        return Rollup(ref, _decode(data), len(data))

    def delta(self, manifest: Manifest) -> Delta:
        """How a manifest differs from the rollup."""
        shards = {
            name: [self._shard_delta(name, shard, batches) for shard, batches in enumerate(trace.shards)]
            for name, trace in manifest.traces.items()
        }
        return Delta(shards, changes(self.contents.stats, manifest.stats))

    def whole(self, written: Written, delta: Delta) -> Manifest:
        """The manifest of which `written` has the delta."""
        traces = {
            name: msgspec.structs.replace(
                trace, shards=[self._shard(name, number, one) for number, one in enumerate(delta.shards[name])]
            )
            for name, trace in written.traces.items()
        }
        stats = changed(self.contents.stats, delta.stats)
        return msgspec.structs.replace(plain(written), traces=traces, stats=stats)

    def _shard_delta(self, name: str, shard: int, batches: Sequence[BatchRef]) -> ShardDelta:
        places = self._places[name][shard] if shard < len(self._places.get(name, ())) else {}
        kept: list[int] = []
        fresh: list[BatchRef] = []
        for at, batch in enumerate(batches):
            place = places.get(batch)
            if place is None:
                fresh.append(batch)
            elif kept and kept[-3] + kept[-1] == at and kept[-2] + kept[-1] == place:
                kept[-1] += 1
            else:
                kept += [at, place, 1]
        return ShardDelta(kept, fresh)

    def _shard(self, name: str, shard: int, delta: ShardDelta) -> list[BatchRef]:
        found: list[BatchRef] = []
        fresh = iter(delta.fresh)
        for at, place, count in zip(delta.kept[::3], delta.kept[1::3], delta.kept[2::3], strict=True):
            while len(found) < at:
                found.append(next(fresh))
            found += self.contents.traces[name][shard][place : place + count]
        found += fresh
        return found


def written(manifest: Manifest, delta: Delta | None) -> Written:
    """What is written for a manifest: all of it, or without what the delta has."""
    fields = msgspec.structs.asdict(manifest)
    if delta is not None:
        fields["traces"] = {name: msgspec.structs.replace(one, shards=[]) for name, one in manifest.traces.items()}
        fields["stats"] = {}
    return Written(**fields, delta=delta)


def plain(found: Written) -> Manifest:
    """The manifest as it is used, without the delta."""
    return Manifest(**{name: getattr(found, name) for name in Manifest.__struct_fields__})


def changes(old: Any, new: Any) -> Any:
    """How one JSON value became another: `[new]`, or, where an object or a list has changed inside, an object of the
    changes by key or index. A key that is gone has null, and `+` has the items appended to a list."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        inside: dict[str, Any] = {key: None for key in old if key not in new}
        for key, value in new.items():
            if key not in old:
                inside[key] = [value]
            elif old[key] != value:
                inside[key] = changes(old[key], value)
        return inside
    if isinstance(old, list) and isinstance(new, list) and len(old) <= len(new):
        inside = {
            str(at): changes(one, value) for at, (one, value) in enumerate(zip(old, new, strict=False)) if one != value
        }
        if len(new) > len(old):
            inside[MORE] = new[len(old) :]
        return inside
    return [new]


def changed(old: Any, by: Any) -> Any:
    """The JSON value that `changes` made `by` from; shares what has not changed with the old one."""
    if isinstance(by, list):
        return by[0]
    if isinstance(old, Mapping):
        kept = {key: value for key, value in old.items() if by.get(key, ()) is not None}
        return kept | {key: changed(old.get(key), change) for key, change in by.items() if change is not None}
    items = list(old)
    for at, change in by.items():
        if at == MORE:
            items += change
        else:
            items[int(at)] = changed(items[int(at)], change)
    return items
