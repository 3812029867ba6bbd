"""Kernels: compiled loops over bytes and arrays. They are pure functions; their callers check and allocate.

In: message bytes, addresses of shared rings, or the addresses of a view's batch. Out: matrices of updates, messages, or
rows. Read first: json_values.py (scans one value), then json_messages.py (whole messages). rings.py serves the
exchange; views.py reads views by time.
"""

import vernier.storage.kernels  # noqa: F401 - configures numba's cache, before the first kernel
