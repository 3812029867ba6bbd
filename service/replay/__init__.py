"""Replay: runs a program on files of updates instead of Kafka, for `vernier replay`.

In: a program and update files, all of them final.
Out: a change file, or the rows of views at a data time, and an account of time and memory.
Read first: replay.py; forked_engine.py (through packet.py and channel.py) and spark_engine.py are the engines,
rows_at.py collects rows.
"""
