"""Compiled loops over bytes; pure functions of arrays, whose callers check and allocate."""

import storage.kernels  # noqa: F401 - numba's cache, before the first kernel
