"""Compiled loops over int64 arrays: numpy and numba only, one file per job; callers check, allocate and raise."""

# Before numba, and before the first kernel: what for, where they are kept, and how they are compiled.
import vernier.storage.kernels.processor  # isort: skip
import vernier.storage.kernels.cache
import vernier.storage.kernels.linking
import vernier.storage.kernels.names  # noqa: F401
