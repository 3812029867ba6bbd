"""The state directory: which epochs (Spark micro-batches) are committed, who may commit the next one, and what can be
deleted.

In: segments that workers wrote and a manifest that names them. Out: an epoch that exists atomically, read leases on
epochs, and tools that audit, back up, survey and reshard a state. Read first: state.py, then manifest.py.
"""
