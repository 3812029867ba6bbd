"""Kafka: how the service's own processes talk to brokers. The sources' topics are read by Spark, and for epochs of few
messages by the driver (log_reader.py).

In: the client settings, messages to send, topics to read. Out: messages that the brokers have acknowledged, and the
committed records of topics. Read first: transactions.py, then dead_letter_queue.py, which uses it.
"""
