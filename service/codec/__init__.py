"""Text forms of values that several parts of the service share: JSON of whole columns, and data times.

In: Arrow columns, or a time as a person or another system writes it.
Out: JSON texts; exact int64 nanoseconds.
Read first: instants.py for times, arrowjson.py for columns.
"""
