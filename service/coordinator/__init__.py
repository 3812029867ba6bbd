"""The coordinator: the driver process, which turns Spark's micro-batches into committed epochs.

In: settings, programs and the sources' Kafka topics. Out: manifests in the state directory, dead letters in Kafka, a
log line and optional spans per epoch, and the observed state of the intake. Read first: runner.py (one epoch), then
committer.py (what a commit contains) and driver.py (everything around them). Beside the committer: opening.py (may the
plan continue?), next_epoch.py (where the next epoch starts), source_entries.py and epoch_metrics.py (what a manifest
says about sources, and for monitoring), collector.py. Beside the driver: bundle.py (programs), service_topics.py,
failures.py (try again, or end).
"""
