"""The cluster: the worker processes of an epoch, and how they communicate with the driver and with each other.

In: the tasks of an attempt with their Kafka rows, started by Spark as a barrier stage. Out: one segment per shard in
the state directory, and a report to the driver, which commits when all workers have reported. Read first: worker.py
(one task), then rendezvous.py (the driver's side) and messages.py (the protocol).
"""
