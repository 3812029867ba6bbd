"""The engine: a worker that runs a plan on its shard, epoch by epoch.

In: a `Plan`, the worker's state, an exchange with the other workers, and each epoch's updates. Out: the changes of
every view, and a state that is complete up to the epoch's end or that has moved to another plan.
Read first: worker.py; then migrate.py and fill.py (changing the plan) and local.py (all workers in one process).
"""
