"""`vernier.Producer`: rows with nanosecond times go in, native messages under coarser message times go out.

In: rows of Python programs, of `vernier send` and of the demonstration. Out: messages and progress in a topic.
Read first: policy.py and batches.py (what is sent), then delivery.py (when), then producer.py (the class that is used).
"""
