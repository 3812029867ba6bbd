"""Arithmetic of diffs that never wraps silently."""

import numpy as np

from storage.errors import DiffOverflow
from storage.updates import Ints

_LEAST = -(2**63)


def negate(diff: Ints) -> Ints:
    """-diff for int64[n]. Raises DiffOverflow for -2**63, which has no positive twin."""
    if len(diff) and int(diff.min()) == _LEAST:
        raise DiffOverflow(operation="negation")
    return np.negative(diff)
