"""Which rows a worker adds up before it sends them to the owners of their keys (operators/physical/combine.py)."""

from __future__ import annotations

from collections.abc import Sequence

from vernier.operators.kernels.aggregating import AVG, AVG_DECIMAL, COUNT, FLAG, KIND, SUM, SUM_DECIMAL, WORD, WORDS
from vernier.operators.kernels.combining import IS_FLAG, PLAIN
from vernier.operators.planning.stages import Words


def gates_of(aggregations: Sequence[Words], key: int, vals: int, texts: Words) -> Words | None:
    """The kinds of the val words of rows `[key | val …]` for linear aggregates, whose words are columns of `[hash | key
    | val]`, as kernels/combining.py takes them; None if the rows have to be sent as they are. texts: the words of `[key
    | val]` at which a text begins."""
    if any(at >= key for at in texts):
        return None
    flags, summed, first = set[int](), dict[int, int](), 1 + key
    for row in aggregations:
        if row[FLAG] >= 0:
            flags.add(row[FLAG] - first)
        if row[KIND] == COUNT:
            continue
        if row[KIND] not in (SUM, AVG) and (row[KIND] not in (SUM_DECIMAL, AVG_DECIMAL) or row[WORDS] > 1):
            return None
        gate = row[FLAG] - first if row[FLAG] >= 0 else PLAIN
        if summed.setdefault(row[WORD] - first, gate) != gate:
            return None
    if flags & summed.keys():
        return None
    return tuple(IS_FLAG if word in flags else summed[word] for word in range(vals))
