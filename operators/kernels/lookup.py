"""Half-join kernel: pairs rows with what another collection holds at each row's own time."""

import numpy as np
from numba import njit

from vernier.operators.kernels.joining import multiply
from vernier.storage.kernels.cells import more_rows
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW


@njit(cache=True)
def pair_at(  # type: ignore[no-untyped-def]
    fresh, runs, k, v, spans, entries, w, index, start, most
):
    """Rows `[columns | time | diff]` from new keyed rows `[hash | key (k) | val (v) | time | diff]`, sorted by key.

    runs: int64[keys + 1], the runs of equal keys. The history of key i is entries[spans[i, 0] : spans[i, 1]], rows
    `[val (w) | time | diff]` sorted by (val, time). The diff of a pair is the new row's diff times the multiplicity of
    the val at the row's time. index: int64[columns], positions in key, fresh val and other val, laid side by side. The
    call begins at the new row `start` and stops after about `most` output rows. Returns (rows, status, the new row at
    which the next call continues). O(new rows of a key x its history).
    """
    width = index.shape[0]
    out = np.empty((fresh.shape[0] - start + 16, width + 2), np.int64)
    count = 0
    # The last run that begins at or before `start`.
    first_run, beyond = 0, runs.shape[0]
    while beyond - first_run > 1:
        middle = (first_run + beyond) >> 1
        if runs[middle] <= start:
            first_run = middle
        else:
            beyond = middle
    for r in range(first_run, runs.shape[0] - 1):
        for f in range(max(start, runs[r]), runs[r + 1]):
            if count >= most:
                return out[:count], 0, f
            time, diff = fresh[f, 1 + k + v], fresh[f, 2 + k + v]
            e = spans[r, 0]
            while e < spans[r, 1]:
                first, held = e, np.int64(0)
                same = True
                while same:
                    if entries[e, w] <= time:
                        held, wrapped = add_checked(held, entries[e, w + 1])
                        if wrapped:
                            return out[:0], OVERFLOW, f
                    e += 1
                    same = e < spans[r, 1]
                    if same:
                        for c in range(w):
                            if entries[e, c] != entries[first, c]:
                                same = False
                                break
                if held == 0:
                    continue
                product, wrapped = multiply(diff, held)
                if wrapped:
                    return out[:0], OVERFLOW, f
                if count == out.shape[0]:
                    out = more_rows(out, count)
                for c in range(width):
                    at = index[c]
                    out[count, c] = fresh[f, 1 + at] if at < k + v else entries[first, at - k - v]
                out[count, width] = time
                out[count, width + 1] = product
                count += 1
    return out[:count], 0, fresh.shape[0]
