"""String exchange: sends rows to another worker together with the contents of the long strings in them, in one message.

Such a message, a parcel, is one matrix, so it travels like plain rows: the rows; then the contents that the receiver
has not been sent in this epoch (hashes, offsets and bytes, cut to the width of a row); then one row that gives the size
of each part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.operators.runtime.exchange import Exchange, Round, least
from vernier.storage.strings.string_heap import Heap, Texts
from vernier.storage.updates import Ints

_NUMBERS = 4
"""Numbers in the last row before the round: count of rows, count of texts, their bytes, and whether a round follows."""


def swap_parcels(
    exchange: Exchange, parts: Sequence[Ints], texts: Sequence[int], heap: Heap, mine: Round | None, depth: int
) -> tuple[list[Ints], Round | None]:
    """Send parts[i] and the texts it needs to worker i. Returns the part from each worker and the least round proposed.

    texts: the columns at which a text begins; rows with a text are always wide enough for the last row of a parcel. The
    received contents are added to the heap. `mine`, this worker's proposed round if any, has `depth` coordinates.
    """
    sent = [
        _pack(part, None if i == exchange.index else heap.unsent(i, part, texts), mine) for i, part in enumerate(parts)
    ]
    rows, said = [], []
    for parcel in exchange.all_to_all(sent):
        part, contents, theirs = _unpack(parcel, depth)
        if contents is not None:
            heap.add(contents)
        rows.append(part)
        said.append(theirs)
    return rows, least(said)


def _pack(rows: Ints, contents: Texts | None, mine: Round | None) -> Ints:
    columns = rows.shape[1]
    last = np.zeros((1, columns), np.int64)
    last[0, 0] = len(rows)
    if mine is not None:
        last[0, _NUMBERS - 1] = 1
        last[0, _NUMBERS : _NUMBERS + len(mine)] = mine
    if contents is None or len(contents) == 0:
        return np.concatenate((rows, last))
    size = len(contents.data)
    last[0, 1:3] = len(contents), size
    data = np.concatenate((contents.data, np.zeros(-size % 8, np.uint8))).view(np.int64)
    flat = np.concatenate((contents.hashes.ravel(), contents.offsets, data))
    flat = np.concatenate((flat, np.zeros(-len(flat) % columns, np.int64)))
    return np.concatenate((rows, flat.reshape(-1, columns), last))


def _unpack(parcel: Ints, depth: int) -> tuple[Ints, Texts | None, Round | None]:
    last = parcel[-1].tolist()
    n, m, size = last[: _NUMBERS - 1]
    said = tuple(last[_NUMBERS : _NUMBERS + depth]) if last[_NUMBERS - 1] else None
    if m == 0:
        return parcel[:n], None, said
    flat = np.ascontiguousarray(parcel[n:-1]).ravel()
    hashes, offsets, data = flat[: 2 * m].reshape(m, 2), flat[2 * m : 3 * m + 1], flat[3 * m + 1 :]
    return parcel[:n], Texts(hashes, offsets, data.view(np.uint8)[:size]), said
