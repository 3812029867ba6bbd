"""Compiled loops over int64 arrays: numpy and numba only, one file per job; callers check, allocate and raise."""

# Before the first kernel: how it is compiled, and where that is kept.
import storage.kernels.cache
import storage.kernels.names  # noqa: F401
