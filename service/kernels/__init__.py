"""Compiled loops over bytes; pure functions of arrays, whose callers check and allocate."""

import vernier.storage.kernels  # noqa: F401 - numba's cache, before the first kernel
