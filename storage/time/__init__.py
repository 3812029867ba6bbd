"""Times and frontiers: the partial order of data times with loop rounds, as values without any data.

In: times as int64[n, d]. Out: their order, least upper and greatest lower bounds, antichains (frontiers), and the
compaction function `advance_by`. Read first: lattice.py, then antichain.py.
"""
