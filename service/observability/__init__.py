"""What a service tells about itself while it runs: metrics, recent latency, logs, and progress bars.

In: counts and durations of epochs.
Out: totals in each manifest, which the sidecar exports as Prometheus metrics; log lines; a progress line on a terminal.
Read first: metrics.py, which has the catalogue of all metrics.
"""
