"""The Python client of a service: `vernier.connect(url)` gives a Client. Nothing here imports the engine.

In: a URL and a question. Out: rows, tables and changes with their frontier, or a `ServerError`. Read client.py first.
"""

from vernier.service.client.client import Client, connect
from vernier.service.client.errors import NotVisible, ServerError, Unreachable

__all__ = ["Client", "NotVisible", "ServerError", "Unreachable", "connect"]
