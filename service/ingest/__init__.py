"""Ingest: turns Kafka rows into the input updates of an epoch, by pure functions of the log and the ingest state.

In: rows as Spark delivers them, and the ingest state and held updates of the newest manifest. Out: the updates of the
epoch's interval, updates held for later, dead letters, and the new frontier with its state. Read first: ingestion.py;
watermarks.py has the clocks, docs/messages.md the rules.
"""
