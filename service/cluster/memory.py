"""Memory: how much memory a worker process uses between epochs, and what it frees when that is too much.

State is on disk and memory is a cache of it, so a worker may free everything it has written: layers are then read from
their segments, and the pages of all mapped columns are dropped. What later epochs touch is loaded again, page by page.
What a running epoch needs (its updates, its slices, the layers it makes) cannot be freed. This limit applies between
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
    """Free what is on disk of these shards. O(layers), plus one mapping for each segment that was not mapped yet."""
    opened: dict[str, Segment] = {}
    traces = [trace for shard in shards for trace in shard.state.traces.values()]
    for layer in {id(layer): layer for trace in traces for layer in trace.layers}.values():
        if layer.ref is None or spill.in_file(layer) or (layer.ref.low, layer.ref.high) != (LOWEST, HIGHEST):
            continue  # not written yet, mapped already, or part of a layer (mapped but for its offsets)
        name = layer.ref.segment
        if name not in opened:
            opened[name] = directory.open(name)
        spill.rebind(layer, opened[name], layer.ref.label)
    for trace in traces:
        trace.replace(list(trace.layers))
        trace.let_go()
    spill.release(
        (layer for trace in traces for layer in trace.layers),
        (column for trace in traces for merge in trace.merges for column in merge.columns),
    )
    gc.collect()
    spill.give_back()
