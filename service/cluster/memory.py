"""Memory: how much a worker process has, and what it lets go of when that is too much.

State is on disk and memory is a cache of it, so a worker may give back what it has written: layers go on from their
segments, and the pages of all mapped columns leave the process. What the next epochs touch comes back, a page at a
time. What an epoch itself needs (its updates, its slices, the layers it makes) cannot give way; this limit is held
between epochs, that within one is operators/runtime/budget.py.
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
    """Let go of what is on disk of these shards. O(layers), and a mapping for each segment that was not mapped yet."""
    opened: dict[str, Segment] = {}
    traces = [trace for shard in shards for trace in shard.state.traces.values()]
    for layer in {id(layer): layer for trace in traces for layer in trace.layers}.values():
        if layer.ref is None or spill.in_file(layer) or (layer.ref.low, layer.ref.high) != (LOWEST, HIGHEST):
            continue  # not written yet, there already, or a part, which is mapped but for its offsets
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
