"""Output topics: publishes the changes of views to Kafka, exactly once, in a process of its own.

In: committed epochs from a state directory.
Out: messages in one of three formats, with the positions of all views in the same transaction, and a status file.
Read first: publisher.py; history.py finds the changes, outgoing.py turns them into messages, audit.py checks a topic.
"""
