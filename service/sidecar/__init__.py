"""The sidecar: serves committed answers over HTTP, in a process of its own that commits nothing.

In: a state directory that a service commits to, and HTTP requests.
Out: rows, change streams, status, metrics and the console; updates from clients go to Kafka, and pause, resume and
drain to a status file.
Read first: app.py, which builds the application; then context.py, the parts that all routes share, and rows.py.
"""
