"""Compiled loops over int64 arrays: the inner loops of storage and operators. They use only numpy and numba.

In: matrices of keyed rows, and tables of addresses of batches. Out: sorted, merged or located rows and a status code.
One file per job; callers check arguments, allocate and raise errors. Read first: tries.py and cells.py.
"""

# These must precede numba and the first kernel: the target processor, where kernels are cached, and how they are
# compiled.
import vernier.storage.kernels.processor  # isort: skip
import vernier.storage.kernels.cache
import vernier.storage.kernels.cached_library
import vernier.storage.kernels.front_end
import vernier.storage.kernels.linking
import vernier.storage.kernels.names  # noqa: F401
