"""The Python client of a service: `vernier.connect(url)` returns a Client. Nothing here imports the engine.

In: a URL and a query.
Out: rows, tables and changes with their frontier, or a `ServerError`.
Read first: client.py.
"""

from vernier.service.client.client import Client, connect
from vernier.service.client.errors import NotVisible, ServerError, Unreachable

__all__ = ["Client", "NotVisible", "ServerError", "Unreachable", "connect"]
