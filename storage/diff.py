"""Arithmetic on diffs (signed multiplicities) that never wraps silently."""

import numpy as np

from vernier.storage.errors import DiffOverflow
from vernier.storage.updates import Ints

_LEAST = -(2**63)


def negate(diff: Ints) -> Ints:
    """-diff for int64[n]. Raises DiffOverflow for -2**63, whose negation does not fit int64."""
    if len(diff) and int(diff.min()) == _LEAST:
        raise DiffOverflow(operation="negation")
    return np.negative(diff)


def multiply(diff: Ints, factor: Ints) -> Ints:
    """diff * factor for two int64[n]. O(n). Raises DiffOverflow when a product leaves int64."""
    product: Ints = diff * factor
    if len(diff) == 0 or _reach(diff) * _reach(factor) < 2**63:
        return product
    # Dividing back finds the products that wrapped. Factor -1 is checked separately: it wraps only -2**63.
    divisor = np.where((factor == 0) | (factor == -1), 1, factor)
    wrapped = (product // divisor != diff) | (product % divisor != 0)
    wrapped = np.where(factor == 0, False, np.where(factor == -1, diff == _LEAST, wrapped))
    if bool(wrapped.any()):
        raise DiffOverflow(operation="multiplication")
    return product


def _reach(values: Ints) -> int:
    """The greatest absolute value."""
    return max(-int(values.min()), int(values.max()))
