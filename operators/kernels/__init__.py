"""Compiled inner loops of the operators: numpy and numba only, one file per job."""

import vernier.storage.kernels  # noqa: F401 - numba's cache, before the first kernel
