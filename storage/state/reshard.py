"""Recut: the layers of N shards, opened as those of M.

Layers are sorted by hash and workers own contiguous ranges of hashes, so a new worker takes its part of an old layer by
two binary searches. Columns are slices of the mapped ones; offsets alone are copied, because they count from the first
row. Nothing is rewritten: a reference remembers its range until a merge makes a new layer of it. Source: seed 000.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from vernier.storage.blob.segment import Segment
from vernier.storage.errors import InvariantError
from vernier.storage.state.manifest import HIGHEST, LOWEST, LayerRef
from vernier.storage.trace.batch import Layer
from vernier.storage.updates import Ints

_HALF = 1 << 32
_SIGN = 1 << 63


class NotThatLayer(InvariantError):
    """What is stored does not fit what a reference says of it."""

    message = "segment {segment}: {label} has {found} updates between its hashes {low} and {high}, expected {expected}"
    segment: str
    label: str
    low: int
    high: int
    found: int
    expected: int


def hash_range(index: int, workers: int) -> tuple[int, int]:
    """The least and the greatest hash that a worker owns; see `vernier.storage.kernels.hashing.owner`."""
    first, following = (-(-_HALF * i // workers) for i in (index, index + 1))
    return (first << 32) - _SIGN, (following << 32) - 1 - _SIGN


def open_layer(segment: Segment, ref: LayerRef, *, lazy: bool = False) -> Layer:
    """The layer that a reference names, restricted to its range of hashes; what is stored is verified first.

    lazy: a large layer that is wanted whole is opened unverified, in O(1); see `Segment.entry`. Raises EntryMissing,
    NotThatLayer, Damaged.
    """
    entry = segment.entry(ref.label, lazy=lazy and _is_whole(ref))
    layer = _cut(entry.meta, entry.arrays, ref)
    if layer.updates != ref.updates:
        raise NotThatLayer(
            segment=ref.segment,
            label=ref.label,
            low=ref.low,
            high=ref.high,
            found=layer.updates,
            expected=ref.updates,
        )
    return layer


def recut(
    shards: Sequence[Sequence[LayerRef]],
    index: int,
    workers: int,
    opened: Callable[[str], Segment],
    *,
    lazy: bool = False,
) -> list[Layer]:
    """The layers of worker `index` of `workers`, out of those of all shards of an arrangement; `opened` opens segments.

    With as many workers as shards these are the shard's own. Else layers of several shards come together: in order of
    their uppers, and each is said to begin no later than those after it, so that any run of neighbours covers what they
    cover. They may overlap in time, never in hashes. O(layers), and what `open_layer` costs (lazy: see there).
    """
    if len(shards) == workers:
        return [open_layer(opened(ref.segment), ref, lazy=lazy) for ref in shards[index]]
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
                entry = opened(ref.segment).entry(ref.label)
                layer = _cut(entry.meta, entry.arrays, wanted)
                if layer.updates:
                    parts.append(msgspec.structs.replace(wanted, updates=layer.updates, nbytes=layer.nbytes))
    parts.sort(key=lambda ref: ref.upper)
    least = parts[-1].lower if parts else 0
    for place in range(len(parts) - 1, -1, -1):
        least = min(least, parts[place].lower)
        parts[place] = msgspec.structs.replace(parts[place], lower=least)
    return [open_layer(opened(ref.segment), ref, lazy=lazy) for ref in parts]


def _is_whole(ref: LayerRef) -> bool:
    """Whether a reference names all of a stored layer; a part is found by searching the stored hashes."""
    return (ref.low, ref.high) == (LOWEST, HIGHEST)


def _cut(meta: Mapping[str, Any], arrays: Mapping[str, Ints], ref: LayerRef) -> Layer:
    about = {**meta, "lower": ref.lower, "upper": ref.upper}
    if not _is_whole(ref):
        arrays, updates = _between(meta["updates"], arrays, ref.low, ref.high)
        about["updates"] = updates
    layer = Layer.open(about, arrays)
    layer.ref = ref
    return layer


def _between(updates: int, arrays: Mapping[str, Ints], low: int, high: int) -> tuple[dict[str, Ints], int]:
    """A layer's arrays for the hashes from `low` to `high`, and how many updates these have. Arrays that are no columns
    are left whole."""
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
        # A column of one row stands for all, also where there is one update.
        cut[name] = column[a:b] if len(column) == updates else column[: min(1, b - a)]
    return cut, b - a


def _offsets(offsets: Ints, a: int, b: int) -> tuple[Ints, int, int]:
    """The offsets of entries [a, b), counted from the first of these, and where what they point at begins and ends."""
    if len(offsets) == 0:
        return offsets, a, b
    first, last = int(offsets[a]), int(offsets[b])
    # Left out where they count 0, 1, 2 …, as in any layer.
    kept = offsets[:0] if last - first == b - a else offsets[a : b + 1] - first
    return kept, first, last
