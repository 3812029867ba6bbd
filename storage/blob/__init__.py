"""Where bytes are stored: a local directory or an object store behind one small interface, `Blob`.

In: byte strings and arrays with names, and a path or a fsspec URI. Out: files that exist whole or not at all, names
that only one process can create, locks and leases, and verified segments. Read first: blob.py, then segment.py.
"""
