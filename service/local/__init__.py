"""`vernier.local(app)`: a program in a notebook or at Python's prompt, without Spark, Kafka or files.

In: a program, and updates that the user inserts.
Out: changes and rows as tables, and charts, which notebooks draw.
Read first: session.py.
"""

from vernier.service.local.session import Session, local

__all__ = ["Session", "local"]
