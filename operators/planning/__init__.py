"""Planning: turns a program (a graph of logical nodes) into the physical plan from which every worker builds operators.

In: an `App` of the language, with its sources, views and delayed variables. Out: a `Plan`: operators in scopes, the
shapes of traces and queues, and where rows are placed on workers. On the way it fuses chains of row-wise steps, builds
equal structure once and drops exchanges that would move nothing. Read first: planner.py, then plan.py and op.py.
"""
