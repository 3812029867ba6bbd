"""Compaction of a batch to any frontier, as the seed proves it: each time is advanced, and equal updates are summed.

Merges compact traces to a data time and keep all rounds, which is what loops permit (storage/trace/merge.py). This is
the general form, for batches whose readers hold any antichain of product times. Source: seed 000, "Compaction".
"""

import numpy as np

from vernier.storage.time.antichain import Antichain
from vernier.storage.trace.batch import Layer, keyed_rows
from vernier.storage.updates import Updates


def compact(layer: Layer, frontier: Antichain) -> Layer:
    """The batch for readers that see only times at or after `frontier`, as small as possible.

    frontier: has 1 + depth coordinates, else DepthMismatch. At every time at or after it, the updates sum to the same
    collection. With an empty frontier there are no readers left, and the result has no updates. O(n x frontier + n log
    n). Raises DiffOverflow.
    """
    updates = layer.to_updates()
    if not len(frontier):
        updates = Updates.empty(updates.width, updates.depth)
    data = updates.data.copy()
    times = data[:, updates.width : -1]
    times[:] = frontier.advance(np.ascontiguousarray(times))
    rows = keyed_rows(Updates(data, updates.width, updates.depth), layer.key_width)
    since = layer.since if not len(frontier) else max(layer.since, int(frontier.elements[:, 0].max()))
    return Layer.of_rows(rows, layer.key_width, layer.depth, layer.lower, layer.upper, since)
