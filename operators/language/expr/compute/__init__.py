"""How expressions are computed: one vectorised function per operation, on numpy and Arrow arrays.

In: an expression and the row type that it reads. Out: a `Bound` expression, with its type and a function from the words
of rows to a `Vector`. Read first: vector.py, then operations.py, the table of operations.
"""
