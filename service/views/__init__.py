"""Views as readers see them: follows the committed epochs of a state directory and answers queries on the rows.

In: manifests and segments that a service has committed, read-only.
Out: rows as of a data time, changes between two data times, pages with cursors, the newest dead letters. The sidecar,
replay and the sinks build on it.
Read first: snapshot_reader.py, which follows epochs, then view.py, which is one view at one epoch.
"""
