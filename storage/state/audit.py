"""Audit: verify offline every checksum of a state directory and every invariant of its batches.

It reads all bytes once, batch by batch, through the mapped files. It needs memory for a few flags per update, not for
the data. It takes no lock; while a service runs, each epoch is audited under a lease.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from vernier.storage.blob.segment import Entry, Segment
from vernier.storage.errors import EpochGone, ManifestMissing, StorageError
from vernier.storage.kernels.hashing import key_rows, owner
from vernier.storage.kernels.texts import H0, encode
from vernier.storage.state.manifest import HIGHEST, LOWEST, NO_EPOCH, BatchRef, Manifest, TraceEntry
from vernier.storage.state.reshard import BatchMismatch, open_batch
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Texts
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Ints

Flags = npt.NDArray[np.bool_]


@dataclass
class Audit:
    """What was checked, and what is wrong: one sentence per problem; empty if the state is sound."""

    manifests: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    """Segments that no manifest names: failed attempts left them, and the next start deletes them."""


def audit(state: StateDirectory, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Audit all epochs of a directory: the manifests, the segments they name, and the batches in these.

    progress: called after each segment with the bytes done and the total. O(bytes).
    """
    found = Audit()
    head, epochs = state.head(), state.epochs()
    if head != NO_EPOCH and head not in epochs:
        newest = f"the newest is of epoch {epochs[-1]}" if epochs else "no manifest exists"
        found.problems.append(str(ManifestMissing(path=state.path, epoch=head, newest=newest)))
    sizes = state.segments()
    named: set[str] = set()
    opened: dict[str, Segment] = {}
    checked: set[BatchRef] = set()
    total = sum(sizes.values())
    for epoch in epochs:
        try:
            lease = state.lease(epoch)
        except EpochGone:
            continue  # garbage-collected meanwhile
        except StorageError as problem:
            found.problems.append(str(problem))
            continue
        with lease:
            found.manifests += 1
            fresh = lease.manifest.segments() - named
            named |= fresh
            for name in sorted(fresh):
                segment = _check_segment(state, name, found)
                if segment is not None:
                    opened[name] = segment
                if progress is not None:
                    progress(found.bytes, total)
            found.problems += _manifest_problems(lease.manifest, opened, checked, found)
    # The epoch that may be running has segments that no manifest names yet.
    running = f"{state.head() + 1:012d}-"
    found.unused = sorted(name for name in sizes.keys() - named if not name.startswith(running))
    return found


def _check_segment(state: StateDirectory, name: str, found: Audit) -> Segment | None:
    try:
        segment = state.open(name)
    except StorageError as problem:
        found.problems.append(str(problem))
        return None
    found.segments += 1
    found.bytes += segment.nbytes
    for label in segment.labels:
        try:
            segment.verify_entry(label)
        except StorageError as problem:
            found.problems.append(str(problem))
    return segment


def _manifest_problems(
    manifest: Manifest, opened: dict[str, Segment], checked: set[BatchRef], found: Audit
) -> Iterator[str]:
    """The problems of what a manifest names; batches in `checked` were audited with another epoch."""
    for ref in manifest.refs():
        if ref not in checked and ref.segment in opened:
            for problem in _ref_problems(ref, opened[ref.segment]):
                yield f"epoch {manifest.epoch}: {problem}"
    for name, trace in manifest.traces.items():
        if len(trace.shards) != manifest.workers:
            yield f"epoch {manifest.epoch}: {name}: {len(trace.shards)} shards for {manifest.workers} workers"
        for shard, refs in enumerate(trace.shards):
            where = f"epoch {manifest.epoch}: {name}: shard {shard}"
            yield from (f"{where}: {problem}" for problem in _order_problems(refs, manifest))
            for ref, segment in _unchecked(refs, opened, checked):
                found.batches += 1
                try:
                    batch = open_batch(segment, ref)
                except BatchMismatch as problem:
                    yield f"{where}: {problem}"
                    continue
                problems = [*_width_problems(batch, trace), *batch_problems(batch)]
                if not problems and len(batch.hashes) and manifest.workers > 1:
                    problems += _owner_problems(batch, shard, manifest.workers)
                yield from (f"{where}: segment {ref.segment}: {ref.label}: {problem}" for problem in problems)
    for name, refs in manifest.changes.items():
        for ref, segment in _unchecked(refs, opened, checked):
            found.batches += 1
            where = f"epoch {manifest.epoch}: changes of {name}: segment {ref.segment}: {ref.label}"
            yield from (f"{where}: {problem}" for problem in _change_problems(segment, ref))
    for name, shards in manifest.held.items():
        for ref, segment in _unchecked([ref for refs in shards for ref in refs], opened, checked):
            where = f"epoch {manifest.epoch}: stash of {name}: segment {ref.segment}: {ref.label}"
            yield from (f"{where}: {problem}" for problem in _waiting_problems(segment.entry(ref.label), ref))
    checked.update(manifest.refs())


def _unchecked(
    refs: Iterable[BatchRef], opened: dict[str, Segment], checked: set[BatchRef]
) -> Iterator[tuple[BatchRef, Segment]]:
    """The references that have not been audited yet and whose entries exist and are intact, with their segments."""
    for ref in refs:
        if ref not in checked and ref.segment in opened and opened[ref.segment].is_verified(ref.label):
            yield ref, opened[ref.segment]


def _change_problems(segment: Segment, ref: BatchRef) -> list[str]:
    try:
        return batch_problems(open_batch(segment, ref))
    except BatchMismatch as problem:
        return [str(problem)]


def _waiting_problems(entry: Entry, ref: BatchRef) -> Iterator[str]:
    """Checks that stashed updates, of a source or inside an operator, are sorted by time."""
    data = entry.arrays["data"]
    times = entry.arrays.get("times", data[:, -2])
    if not len(data) == len(times) == ref.updates:
        yield f"has {len(data)} rows and {len(times)} times, expected {ref.updates}"
    elif len(times) and ((times[1:] < times[:-1]).any() or times[0] < ref.lower or times[-1] >= ref.upper):
        yield f"times do not ascend within [{ref.lower}, {ref.upper})"
    elif not data[:, -1].all():
        yield f"diff {_first(data[:, -1] == 0)} is zero"


def _ref_problems(ref: BatchRef, segment: Segment) -> Iterator[str]:
    where = f"segment {ref.segment}"
    if ref.label not in segment.labels:
        yield f"{where} has no entry {ref.label!r}"
        return
    meta, nbytes = segment.meta(ref.label), segment.nbytes_of(ref.label)
    stored = {name: meta.get(name) for name in ("updates", "lower", "upper", "since")} | {"nbytes": nbytes}
    part = (ref.low, ref.high) != (LOWEST, HIGHEST)
    for name, value in stored.items():
        expected = getattr(ref, name)
        # For a part of a batch the manifest counts less. After a reshard it may also say an earlier lower.
        less = name == "lower" or (part and name in ("updates", "nbytes"))
        if value is None or value < expected or (value != expected and not less):
            yield f"{where}: {ref.label}: {name} is {value}, the manifest says {expected}"


def _order_problems(refs: list[BatchRef], manifest: Manifest) -> Iterator[str]:
    """Batches are oldest first and follow one another without overlap, up to the epoch's upper.

    Batches from before a reshard may overlap in time, because their hashes differ.
    """
    for before, after in pairwise(refs):
        ordered = after.upper >= before.upper and manifest.cut_at is not None and after.lower < manifest.cut_at
        if after.lower < before.upper and not ordered:
            yield f"batch {after.label} begins at {after.lower}, before {before.label} ends at {before.upper}"
    for ref in refs:
        if ref.upper < ref.lower or ref.upper > manifest.upper:
            yield f"batch {ref.label} covers [{ref.lower}, {ref.upper}), the epoch ends at {manifest.upper}"


def _width_problems(batch: Batch, trace: TraceEntry) -> Iterator[str]:
    found = (batch.key_width, batch.val_width, batch.depth)
    expected = (trace.key_width, trace.val_width, trace.depth)
    if found != expected:
        yield f"key width, val width and depth are {found}, the arrangement's {expected}"


def _owner_problems(batch: Batch, shard: int, workers: int) -> Iterator[str]:
    # Hashes ascend, and so do their owners: the first and the last suffice.
    for hashed in (batch.hashes[0], batch.hashes[-1]):
        found = owner(hashed, workers)
        if found != shard:
            yield f"hash {hashed} belongs to shard {found} of {workers}"
            return


def batch_problems(batch: Batch) -> list[str]:
    """The problems of one batch's shapes, offsets, order, hashes, times and diffs; empty if it is sound. O(n)."""
    problems = list(_shape_problems(batch))
    if not problems and batch.updates:
        problems = [*_order_of_keys(batch), *_order_of_vals(batch), *_order_of_times(batch), *_time_problems(batch)]
    return problems + ([] if batch.texts is None else list(_text_problems(batch.texts)))


def _text_problems(texts: Texts) -> Iterator[str]:
    """Checks that a dictionary's contents have the hashes it states, each once and in order."""
    offsets = texts.offsets
    if len(offsets) != len(texts) + 1 or offsets[0] != 0 or offsets[-1] != len(texts.data):
        yield f"text_offsets has {len(offsets)} entries, expected {len(texts) + 1} from 0 to {len(texts.data)}"
    elif (offsets[1:] < offsets[:-1]).any():
        yield f"text_offsets does not ascend at {_first(offsets[1:] < offsets[:-1]) + 1}"
    elif len(texts):
        yield from _ascending("text", list(texts.hashes.T))
        found = encode(texts.data.__array_interface__["data"][0], np.ascontiguousarray(offsets))[:, H0:]
        wrong = (found != texts.hashes).any(axis=1)
        if wrong.any():
            yield f"text {_first(wrong)} does not have the hash that it is stored under"


def _shape_problems(batch: Batch) -> Iterator[str]:
    """Checks lengths and offsets. If these are right, all other checks are safe to run."""
    n, keys = batch.updates, len(batch.hashes)
    vals = len(batch.val_offsets) - 1 if len(batch.val_offsets) else n
    shapes: dict[str, tuple[Ints, list[tuple[int, ...]]]] = {
        "hashes": (batch.hashes, [(keys,)]),
        "keys": (batch.keys, [(keys if batch.key_width > 1 else 0, batch.key_width)]),
        "vals": (batch.vals, [(vals, batch.val_width)]),
        "times": (batch.times, [(n,), (min(n, 1),)]),
        "rounds": (batch.rounds, [(n, batch.depth), (min(n, 1), batch.depth)]),
        "diffs": (batch.diffs, [(n,), (min(n, 1),)]),
    }
    for name, (array, allowed) in shapes.items():
        if array.shape not in allowed or array.dtype != np.int64:
            wanted = " or ".join(f"int64{list(shape)}" for shape in allowed)
            yield f"{name} is {array.dtype}{list(array.shape)}, expected {wanted}"
    for name, offsets, count, end in (
        ("key_offsets", batch.key_offsets, keys, vals),
        ("val_offsets", batch.val_offsets, vals, n),
    ):
        if len(offsets) == 0:
            if count != end:
                yield f"{name} is elided, but {count} offsets cannot stand for {end}"
        elif len(offsets) != count + 1 or offsets[0] != 0 or offsets[-1] != end:
            yield f"{name} has {len(offsets)} entries to {offsets[-1]}, expected {count + 1} from 0 to {end}"
        elif not (offsets[1:] > offsets[:-1]).all():
            yield f"{name} does not ascend at {_first(offsets[1:] <= offsets[:-1]) + 1}"


def _order_of_keys(batch: Batch) -> Iterator[str]:
    yield from _ascending("key", [batch.hashes, *(batch.keys.T if batch.key_width > 1 else ())])
    if batch.key_width > 1:
        columns = np.arange(batch.key_width, dtype=np.int64)
        hashes = key_rows(np.ascontiguousarray(batch.keys), columns, columns[:0], 0)[:, 0]
        if not np.array_equal(hashes, batch.hashes):
            at = _first(hashes != batch.hashes)
            yield f"hash {batch.hashes[at]} of key {at}: expected {hashes[at]}"


def _order_of_vals(batch: Batch) -> Iterator[str]:
    yield from _ascending("val", list(batch.vals.T), batch.key_offsets)


def _order_of_times(batch: Batch) -> Iterator[str]:
    columns = [np.broadcast_to(column, batch.updates) for column in (*batch.rounds.T, batch.times)]
    yield from _ascending("time", columns, batch.val_offsets)


def _time_problems(batch: Batch) -> Iterator[str]:
    least, most = int(batch.times.min()), int(batch.times.max())
    # Compaction advances times to since, which may be past upper. It is lazy, so times before since are no problem.
    if least < batch.lower or most > max(batch.upper - 1, batch.since):
        since = f"since {batch.since}"
        yield f"times from {least} to {most} in a batch that covers [{batch.lower}, {batch.upper}), {since}"
    if not batch.diffs.all():
        yield f"diff {_first(batch.diffs == 0)} is zero"
    if batch.depth and batch.rounds.min() < 0:
        yield f"round {int(batch.rounds.min())} is negative"


def _ascending(what: str, columns: list[Ints], starts: Ints | None = None) -> Iterator[str]:
    """Checks that the rows of `columns` ascend strictly within each group; `starts` are the groups' offsets. None: all
    rows are one group; empty: each row is a group of its own."""
    count = len(columns[0]) if columns else 0
    if starts is not None and len(starts) == 0:
        return
    if not columns:
        # Without columns all rows are equal, so each group may have only one row.
        if starts is not None and len(starts) != int(starts[-1]) + 1:
            yield f"{what}s without words repeat"
        return
    rises, level = np.zeros(count - 1, np.bool_), np.ones(count - 1, np.bool_)
    for column in columns:
        rises |= level & (column[1:] > column[:-1])
        level &= column[1:] == column[:-1]
    if starts is not None:
        rises[starts[1:-1] - 1] = True
    if not rises.all():
        at = _first(~rises) + 1
        yield f"{what} {at} {[int(column[at]) for column in columns]} does not follow the one before it"


def _first(flags: Flags) -> int:
    return int(np.argmax(flags))
