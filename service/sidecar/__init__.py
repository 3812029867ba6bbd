"""The sidecar: serves committed answers over HTTP, in a process of its own that never writes to the state.

In: a state directory that a service commits to, and HTTP requests. Out: rows, change streams, status, metrics and the
console; updates from clients go to Kafka, and pause, resume and drain to a status file. Read first: app.py, which
builds the application; context.py has the parts that all routes share, rows.py and changes.py the answers.
"""
