"""Expressions over the columns of one row.

In: `col("a") + 1`, method calls and functions of the program. Out: an `Expr` tree, which compute/ binds to the columns
of a row and evaluates on whole batches of rows. Read first: expression.py, then evaluate.py.
"""
