"""Group functions: what a reduction computes from all rows of a key.

In: `Groups`, the accumulated rows of many keys at once. Out: `Produced`, the output rows of each group with their
multiplicities. Each file holds one family, such as aggregates, ordered groups, sessions and as-of joins. Read first:
logic.py.
"""
