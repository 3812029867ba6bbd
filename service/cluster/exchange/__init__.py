"""The exchange: how the workers of an epoch send rows and small values to each other while the dataflow runs.

In: arrays of int64 words for each peer. Out: the arrays that came from each peer, call by call, in lock step. Read
first: all_to_all.py (the calls). transport.py and shared_ring.py carry the messages.
"""
