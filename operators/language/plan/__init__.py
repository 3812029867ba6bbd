"""Nodes of the logical plan: what a collection means, before the planner decides how it is computed.

In: calls from language/collection/. Out: immutable nodes with typed rows, and aggregates and table functions as values.
planning/ reads them. Read first: node.py, then logical.py.
"""
