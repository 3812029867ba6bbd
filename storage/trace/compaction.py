"""Compaction of a layer to any frontier, as the seed proves it: each time becomes its stand-in, equal ones add up.

Merges compact traces to a data time and keep all rounds, which is what loops allow (storage/trace/merge.py); this is
the general form, for layers whose readers hold any antichain of product times. Source: seed 000, "Compaction".
"""

import numpy as np

from vernier.storage.time.antichain import Antichain
from vernier.storage.trace.batch import Layer, keyed_rows
from vernier.storage.updates import Updates


def compact(layer: Layer, frontier: Antichain) -> Layer:
    """The layer for readers that see only times at or after `frontier`, as small as it gets.

    frontier: of 1 + depth coordinates (DepthMismatch). At every time at or after it the updates add up to the same;
    none at all are left where nobody reads any more (an empty frontier). O(n x frontier + n log n). DiffOverflow.
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
