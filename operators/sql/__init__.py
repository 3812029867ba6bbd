"""SQL: Catalyst's plans, which come as data, as collections.

In: the text of a program (statements.py) and, for each of its queries, the plan that Spark's optimizer made of it. Out:
collections of the language. Nothing here needs Java; service/sql lets Catalyst plan. Read first: translate.py.
"""
