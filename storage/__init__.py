"""The storage layer: where updates and state live, on disk and in memory. It knows nothing of operators or of Spark.

In: updates, which are changes to collections as int64 matrices (updates.py). Out: traces of consolidated batches to
read and merge, and a state directory that commits one manifest per epoch (one Spark micro-batch). Read first:
updates.py, then trace/spine.py and state/state.py.
"""
