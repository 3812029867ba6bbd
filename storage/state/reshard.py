"""Reshard: opens the batches of N shards as those of M shards.

Batches are sorted by hash and each worker owns a contiguous range of hashes, so a new worker finds its part of an old
batch with two binary searches. Columns are slices of the mapped ones; only offsets are copied, because they count from
the first row. No data is rewritten: a reference keeps its hash range until a merge makes a new batch of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from vernier.storage.blob.segment import Segment
from vernier.storage.errors import InvariantError
from vernier.storage.state.manifest import HIGHEST, LOWEST, BatchRef
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Ints

_HALF = 1 << 32
_SIGN = 1 << 63


class BatchMismatch(InvariantError):
    """A stored batch does not match the reference to it."""

    message = "segment {segment}: {label} has {found} updates between its hashes {low} and {high}, expected {expected}"
    segment: str
    label: str
    low: int
    high: int
    found: int
    expected: int


def hash_range(index: int, workers: int) -> tuple[int, int]:
    """The lowest and the highest hash that a worker owns; see `vernier.storage.kernels.hashing.owner`."""
    first, following = (-(-_HALF * i // workers) for i in (index, index + 1))
    return (first << 32) - _SIGN, (following << 32) - 1 - _SIGN


def open_batch(segment: Segment, ref: BatchRef, *, lazy: bool = False) -> Batch:
    """The batch that a reference names, restricted to its range of hashes. The stored entry is verified first.

    lazy: a large batch that is needed whole is opened unverified, in O(1); see `Segment.entry`. Raises EntryMissing,
    BatchMismatch, Damaged.
    """
    return _open(segment, ref, lazy=lazy and _is_whole(ref))


def _open(segment: Segment, ref: BatchRef, *, lazy: bool) -> Batch:
    entry = segment.entry(ref.label, lazy=lazy)
    batch = _cut(entry.meta, entry.arrays, ref)
    if batch.updates != ref.updates:
        raise BatchMismatch(
            segment=ref.segment,
            label=ref.label,
            low=ref.low,
            high=ref.high,
            found=batch.updates,
            expected=ref.updates,
        )
    return batch


def reshard(
    shards: Sequence[Sequence[BatchRef]],
    index: int,
    workers: int,
    opened: Callable[[str], Segment],
    *,
    lazy: bool = False,
) -> list[Batch]:
    """The batches of worker `index` of `workers`, from those of all shards of an arrangement; `opened` opens segments.

    If there are as many workers as shards, these are the shard's own. Otherwise batches of several shards are combined,
    ordered by upper. The lower of each is moved back to at most the lowers of those after it, so that any run of
    neighbours covers the times that its members cover. They may overlap in time, but never in hashes.

    lazy: large batches are opened unverified, also those of which a part is needed, for callers that know that they are
    intact. O(batches), plus O(keys) for the offsets of parts; without lazy also the bytes of each batch.
    """
    if len(shards) == workers:
        return [_open(opened(ref.segment), ref, lazy=lazy) for ref in shards[index]]
    low, high = hash_range(index, workers)
    parts = []
    for number, refs in enumerate(shards):
        least, most = hash_range(number, len(shards))
        if most < low or least > high:
            continue
        for ref in refs:
            if low <= least and most <= high:
                parts.append(ref)
            else:
                wanted = msgspec.structs.replace(ref, low=max(low, ref.low), high=min(high, ref.high))
                if wanted.low > wanted.high:
                    continue
                entry = opened(ref.segment).entry(ref.label, lazy=lazy)
                batch = _cut(entry.meta, entry.arrays, wanted)
                if batch.updates:
                    parts.append(msgspec.structs.replace(wanted, updates=batch.updates, nbytes=batch.nbytes))
    parts.sort(key=lambda ref: ref.upper)
    least = parts[-1].lower if parts else 0
    for place in range(len(parts) - 1, -1, -1):
        least = min(least, parts[place].lower)
        parts[place] = msgspec.structs.replace(parts[place], lower=least)
    return [_open(opened(ref.segment), ref, lazy=lazy) for ref in parts]


def _is_whole(ref: BatchRef) -> bool:
    """Whether a reference names all of a stored batch. Finding a part requires searching the stored hashes."""
    return (ref.low, ref.high) == (LOWEST, HIGHEST)


def _cut(meta: Mapping[str, Any], arrays: Mapping[str, Ints], ref: BatchRef) -> Batch:
    about = {**meta, "lower": ref.lower, "upper": ref.upper}
    if not _is_whole(ref):
        arrays, updates = _between(meta["updates"], arrays, ref.low, ref.high)
        about["updates"] = updates
    batch = Batch.open(about, arrays)
    batch.ref = ref
    return batch


def _between(updates: int, arrays: Mapping[str, Ints], low: int, high: int) -> tuple[dict[str, Ints], int]:
    """A batch's arrays for the hashes from `low` to `high`, and the number of updates in them. Arrays that are not
    columns are returned whole."""
    cut = dict(arrays)
    hashes = arrays["hashes"]
    a, b = int(np.searchsorted(hashes, low, "left")), int(np.searchsorted(hashes, high, "right"))
    cut["hashes"] = hashes[a:b]
    cut["keys"] = arrays["keys"][a:b] if len(arrays["keys"]) else arrays["keys"]
    cut["key_offsets"], a, b = _offsets(arrays["key_offsets"], a, b)
    cut["vals"] = arrays["vals"][a:b]
    cut["val_offsets"], a, b = _offsets(arrays["val_offsets"], a, b)
    for name in ("times", "rounds", "diffs"):
        column = arrays[name]
        # A constant column is stored as one row, also if there is only one update.
        cut[name] = column[a:b] if len(column) == updates else column[: min(1, b - a)]
    return cut, b - a


def _offsets(offsets: Ints, a: int, b: int) -> tuple[Ints, int, int]:
    """The offsets of entries [a, b), counted from the first of them, and the range that they point to."""
    if len(offsets) == 0:
        return offsets, a, b
    first, last = int(offsets[a]), int(offsets[b])
    # Omitted if they count 0, 1, 2 …, as in any batch.
    kept = offsets[:0] if last - first == b - a else offsets[a : b + 1] - first
    return kept, first, last
