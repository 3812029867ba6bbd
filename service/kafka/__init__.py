"""Kafka: how the service's own processes talk to brokers.

In come the settings' client keywords, out go messages that brokers have acknowledged. Read `transactions.py` first.
"""
