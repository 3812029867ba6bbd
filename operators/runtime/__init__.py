"""The runtime: what every operator of a running dataflow builds on.

In: the scopes of a `Plan`, the worker's traces and queues, and an exchange between workers. Out: scopes that run their
operators round by round, the slices of an epoch, and bounds on memory. It also has the base class `Operator`.
Read first: operator.py, then scope.py; exchange.py and slices.py for how workers stay in step.
"""
