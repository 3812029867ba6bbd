"""Compiled loops over int64 arrays: numpy and numba only, one file per job; callers check, allocate and raise."""

import storage.kernels.cache  # noqa: F401 - before the first kernel
