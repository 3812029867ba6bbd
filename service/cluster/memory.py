"""Memory: how much memory a worker process uses between epochs, and what it frees when that is too much.

State is on disk and memory is a cache of it, so a worker may free everything it has written: batches are then read from
their segments, and the pages of all mapped columns are dropped. What later epochs touch is loaded again, page by page.
What a running epoch needs (its updates, its slices, the batches it makes) cannot be freed. This limit applies between
epochs; the limit within an epoch is operators/runtime/budget.py.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable

from vernier.service.cluster.shard import Shard
from vernier.storage.blob.segment import Segment
from vernier.storage.state.manifest import HIGHEST, LOWEST
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace import spill


def relieve(shards: Iterable[Shard], directory: StateDirectory) -> None:
    """Free what is on disk of these shards. O(batches), plus one mapping for each segment that was not mapped yet."""
    opened: dict[str, Segment] = {}
    traces = [trace for shard in shards for trace in shard.state.traces.values()]
    for batch in {id(batch): batch for trace in traces for batch in trace.batches}.values():
        if batch.ref is None or spill.in_file(batch) or (batch.ref.low, batch.ref.high) != (LOWEST, HIGHEST):
            continue  # not written yet, mapped already, or part of a batch (mapped but for its offsets)
        name = batch.ref.segment
        if name not in opened:
            opened[name] = directory.open(name)
        spill.rebind(batch, opened[name], batch.ref.label)
    for trace in traces:
        trace.replace(list(trace.batches))
        trace.release()
    spill.release(
        (batch for trace in traces for batch in trace.batches),
        (column for trace in traces for merge in trace.merges for column in merge.columns),
    )
    gc.collect()
    spill.return_memory()
