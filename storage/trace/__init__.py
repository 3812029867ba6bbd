"""Traces: the history of an arranged collection as a spine of immutable, sorted batches that are merged in the
background.

In: updates of one slice (an interval of data times) at a time, and the holds of readers. Out: batches to persist, the
histories of many keys in one kernel call, and cursors. Read first: spine.py, then batch.py.
"""
