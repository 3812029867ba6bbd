"""Sinks: a process of its own writes views to topics, files, databases and addresses, exactly once.

In: committed epochs from a state directory.
Out: each view's changes in the form of its target, with the position made durable together with them, and a status
file. Output topics are one target, with all positions in the same transaction.
Read first: publisher.py; history.py finds the changes, target.py says what a target does, kafka_target.py and the
other *_target.py do it, outgoing.py makes Kafka's messages, audit.py checks a topic.
"""
