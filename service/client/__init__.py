"""The Python client of a service: `vernier.connect(url)` returns a Client. Nothing here imports the engine.

In: a URL and a query.
Out: rows, tables and changes with their frontier, or a `ServerError`.
Read first: client.py.
"""
