"""Shard: one worker's part of the state, in memory and in the state directory.

Memory is a cache of the directory. A shard in memory is used (hot) only if it is exactly what the newest manifest
names. Any shard can be opened from the directory, which maps files and reads almost nothing.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vernier.operators.engine.worker import WorkerState
from vernier.operators.failures import NeedsHistory
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.adapted import Adapt
from vernier.operators.planning.former_columns import adapted_columns
from vernier.operators.planning.plan import Plan, Whole
from vernier.service.ingest.rejects import DeadLetter
from vernier.service.ingest.stash import HeldUpdates
from vernier.service.views.view import key_first
from vernier.storage.blob.segment import Entry, Segment
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.state.manifest import BatchRef, Manifest
from vernier.storage.state.reshard import hash_range, reshard
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.spine import Trace
from vernier.storage.trace.time_queue import Queue, Run
from vernier.storage.updates import Updates

SHOWN_BYTES = 64 << 10
"""How many bytes of a dead letter's value the segment's directory shows; the arrays hold the whole value."""


@dataclasses.dataclass
class Shard:
    """The traces and held updates of shard `index`, one of `workers`, as `attempt` left them at the end of `epoch`."""

    index: int
    epoch: int
    attempt: str
    state: WorkerState
    held: dict[str, list[HeldUpdates]]
    workers: int = 1

    @staticmethod
    def empty(plan: Plan, index: int, workers: int = 1) -> Shard:
        """The shard before the first epoch."""
        return Shard(index, 0, "", WorkerState.empty(plan), {name: [] for name in plan.sources}, workers)

    @staticmethod
    def load(plan: Plan, directory: StateDirectory, manifest: Manifest, index: int, workers: int) -> Shard:
        """Shard `index` of `workers` as the manifest has it. Opens O(batches) files. Verifies all but large entries;
        the driver has verified those before the first epoch begins (service/coordinator/scrub.py).

        If another number of workers made the state, arrangements are resharded (storage/state/reshard.py). Updates held
        at ingest are assigned by the number of their old shard, because they may enter on any worker; what operators
        hold goes to the shard to which its rows belong.
        """
        opened: dict[str, Segment] = {}

        def segment(name: str) -> Segment:
            if name not in opened:
                opened[name] = directory.open(name)
            return opened[name]

        since = manifest.sinces()
        traces = {}
        for name, stored in manifest.traces.items():
            trace = Trace(name, stored.key_width, stored.val_width, stored.depth, since.get(name, manifest.upper))
            trace.replace(reshard(stored.shards, index, workers, segment, lazy=True))
            traces[name] = trace
        columns = _columns(plan, manifest)
        heap = Heap()
        held = {
            name: [
                _open_held(name, segment(ref.segment).entry(ref.label), ref, columns.get(name, schema), schema, heap)
                for own in manifest.held.get(name, [])[index::workers]
                for ref in own
            ]
            for name, schema in plan.sources.items()
        }
        queues = {}
        same = plan.evolve(columns).same
        for current, shape in plan.queues.items():
            name = current if current in manifest.held else same.get(current, current)
            if name not in manifest.held:  # from a program that has just joined
                continue
            shards = [
                [Run.open(segment(ref.segment).entry(ref.label, lazy=True).arrays, ref) for ref in own]
                for own in manifest.held[name]
            ]
            runs = _runs_of(shards, _placement(plan, current), index, workers)
            queues[name] = Queue(name, shape.width, shape.depth, runs)
        wholes = {
            name: Whole(one.whole.of, tuple(one.whole.words)) for name, one in manifest.traces.items() if one.whole
        }
        state = WorkerState(traces, manifest.upper, queues, heap, wholes=wholes, sources=columns)
        return Shard(index, manifest.epoch, manifest.attempt, state, held, workers)

    def fits(self, plan: Plan) -> bool:
        """Whether the shard has exactly what a plan keeps; otherwise it must be adapted to the plan
        (operators/engine/migrate.py)."""
        return self.state.traces.keys() == plan.arrangements.keys() and self.state.queues.keys() == plan.queues.keys()

    def fresh_batches(self) -> list[Batch]:
        """The batches that no segment contains yet."""
        return [batch for trace in self.state.traces.values() for batch in trace.named if batch.ref is None]

    def open_heap(self) -> Heap:
        """The heap at the start of an epoch: if earlier epochs have put much into memory, that is freed, and the texts
        of the held batches are made available again."""
        heap = self.state.heap
        heap.trim()
        heap.attach(batch.texts for batches in self.held.values() for batch in batches)
        return heap

    def fresh_runs(self) -> list[tuple[str, Run]]:
        """The runs of queues that no segment contains yet, with their labels."""
        queues = self.state.queues.items()
        return [(f"{name}-{i}", run) for name, queue in queues for i, run in enumerate(queue.runs) if run.ref is None]


def _placement(plan: Plan, queue: str) -> tuple[int, ...] | None:
    """The words whose hash determines where the rows of a queue are placed; None if they may be anywhere."""
    return next(op.part for op in plan.ops if getattr(op, "queue", None) == queue)


def _runs_of(shards: list[list[Run]], part: tuple[int, ...] | None, index: int, workers: int) -> list[Run]:
    """A queue's runs on worker `index`: unchanged, or, after a reshard, new runs with this worker's rows. Resharding
    costs O(waiting rows)."""
    if len(shards) == workers or part is None:
        return [run for own in shards[index::workers] for run in own]
    words, none = np.array(part, np.int64), np.empty(0, np.int64)
    low, high = hash_range(index, workers)
    runs = []
    for run in (run for own in shards for run in own):
        hashes = key_rows(np.ascontiguousarray(run.data), words, none, 0)[:, 0]
        mine = (hashes >= low) & (hashes <= high)
        if mine.any():
            runs.append(Run(run.data[mine], run.times[mine], texts=run.texts))
    return runs


def _columns(plan: Plan, manifest: Manifest) -> dict[str, RowType]:
    """The columns that the sources of a plan had in a commit. Older releases do not say; the driver knows."""
    found = {}
    for name, row in plan.sources.items():
        entry = manifest.sources.get(name)
        if entry is not None and entry.columns:
            found[name] = RowType.from_json(entry.columns)
        elif entry is not None:
            found[name] = row.former[-1] if row.former else row
    return found


def _open_held(name: str, entry: Entry, ref: BatchRef, had: RowType, row_type: RowType, heap: Heap) -> HeldUpdates:
    """A stored batch of held updates; rows of earlier columns of the source are adapted, and stored anew."""
    # Copies: held updates are few, and kernels are compiled for writable arrays.
    arrays = {name: np.array(array) for name, array in entry.arrays.items()}
    held = HeldUpdates.open(had.width, arrays, ref)
    if had == row_type:
        return held
    columns = adapted_columns(name, had, row_type)
    if isinstance(columns, str):
        raise NeedsHistory(what=f"the updates of source {name} that wait for their time", why=columns)
    heap.attach([held.texts])
    data = held.updates.data
    rows = Adapt(had, tuple(columns.items())).rows(np.ascontiguousarray(data[:, : had.width]), heap)
    updates = Updates(np.hstack([rows, data[:, had.width :]]), row_type.width, 0)
    return dataclasses.replace(held, updates=updates, ref=None)


@dataclasses.dataclass(frozen=True)
class Stored:
    """Where one shard's own output of an epoch is stored: dead letters, and change batches by view (views without
    changes are absent)."""

    changes: dict[str, BatchRef]
    dead: BatchRef | None


def store(
    directory: StateDirectory,
    plan: Plan,
    shard: Shard,
    interval: tuple[int, int],
    changes: Mapping[str, Updates],
    letters: Sequence[DeadLetter],
) -> Stored:
    """Write what is new in a shard, its changes (schema order) and its dead letters: one segment, one sync.

    The shard's batches, held batches and queue runs then refer to their stored copies. Nothing exists until a manifest
    names it. Raises StorageErrors.
    """
    batches, runs = shard.fresh_batches(), shard.fresh_runs()
    changed = {}
    for view, updates in changes.items():
        about = plan.views[view]
        if len(updates):
            stored = key_first(updates, about.schema, about.key)
            width = plan.arrangements[about.trace].key_width
            batch = Batch.build(stored, width, interval[0], interval[1], interval[0])
            if batch.updates:
                if texts := plan.arrangements[about.trace].texts:
                    batch.settle(texts, shard.state.heap)
                changed[view] = batch
    _settle_held(plan, shard)
    waiting = [(name, i) for name, held in shard.held.items() for i, one in enumerate(held) if one.ref is None]
    entries = [Entry(f"layer-{i}", batch.meta(), batch.arrays()) for i, batch in enumerate(batches)]
    entries += [Entry(f"changes-{view}", batch.meta(), batch.arrays()).narrow() for view, batch in changed.items()]
    entries += [_held_entry(name, i, shard.held[name][i]) for name, i in waiting]
    entries += [Entry(label, run.meta(), run.arrays()) for label, run in runs]
    if letters:
        entries.append(_letters_entry(letters, interval))
    refs = iter(directory.write(shard.epoch, shard.attempt, shard.index, entries) if entries else ())
    for batch in batches:
        batch.ref = next(refs)
    written = {view: next(refs) for view in changed}
    for name, i in waiting:
        shard.held[name][i] = dataclasses.replace(shard.held[name][i], ref=next(refs))
    for _, run in runs:
        run.ref = next(refs)
    return Stored(written, next(refs, None))


def _settle_held(plan: Plan, shard: Shard) -> None:
    """Attach the contents of their long texts to the batches that no segment contains yet."""
    for name, row_type in plan.sources.items():
        if row_type.text_words:
            for i, one in enumerate(shard.held[name]):
                if one.ref is None:
                    texts = shard.state.heap.dictionary(one.updates.data, row_type.text_words)
                    shard.held[name][i] = dataclasses.replace(one, texts=texts)


def _held_entry(name: str, number: int, held: HeldUpdates) -> Entry:
    lower, upper = int(held.time[0]), int(held.time[-1]) + 1
    meta = {"updates": len(held), "lower": lower, "upper": upper, "since": lower}
    return Entry(f"held-{name}-{number}", meta, held.arrays())


def _letters_entry(letters: Sequence[DeadLetter], interval: tuple[int, int]) -> Entry:
    """Dead letters as JSON for people to read, and whole values as bytes: values[offsets[i]:offsets[i + 1]] is the
    value of dead letter i."""
    values = [letter.value or b"" for letter in letters]
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    listed = [
        {
            "reason": letter.reason,
            "detail": letter.detail,
            "source": letter.source,
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "frontier": letter.frontier,
            "key": _base64(letter.key),
            "value": _base64(None if letter.value is None else letter.value[:SHOWN_BYTES]),
            "headers": [[name, _base64(value)] for name, value in letter.headers],
            "bytes": len(letter.value or b""),
        }
        for letter in letters
    ]
    meta = {"updates": len(letters), "lower": interval[0], "upper": interval[1], "since": interval[0]}
    arrays: dict[str, Any] = {"values": np.frombuffer(b"".join(values), np.uint8), "offsets": offsets}
    return Entry("dead-letters", {**meta, "letters": listed}, arrays)


def read_dead_letters(entry: Entry) -> list[DeadLetter]:
    """The dead letters of a stored entry, with their whole values."""
    values, offsets = entry.arrays["values"], entry.arrays["offsets"]
    letters = []
    for i, shown in enumerate(entry.meta["letters"]):
        value = None if shown["value"] is None else values[offsets[i] : offsets[i + 1]].tobytes()
        place = (shown["topic"], shown["partition"], shown["offset"], shown["frontier"], shown["source"])
        headers = tuple((name, _bytes(text)) for name, text in shown["headers"])
        letters.append(DeadLetter(shown["reason"], shown["detail"], *place, _bytes(shown["key"]), value, headers))
    return letters


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
