"""Column types and schemas.

In: annotations of a `vn.Schema` class, and values from Arrow, numpy or Python. Out: types (`Type`), row layouts
(`RowType`) and the int64 words that hold a value in a row, in an order that compares as the values do. Read first:
scalars.py, then schema.py; parts.py explains strings, lists, structs and decimals.
"""
